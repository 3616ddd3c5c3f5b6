//! The shapes of values, as other programs compute them: `testdata/onnx-shapes`.

use super::testdata;
use orlop_onnx::{OnnxError, OnnxFile, OnnxModel, OnnxReader};
use orlop_plan::{Planner, verify};
use proptest::prelude::*;
use serde::Deserialize;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// A model with inputs, and the types and sizes of values in a run with these.
#[derive(Deserialize)]
struct Case {
    name: String,
    /// The file, in hexadecimal digits; empty if it is elsewhere.
    #[serde(default)]
    model: String,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Input {
    name: String,
    sizes: Vec<u64>,
    /// Those of small inputs.
    elements: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    /// ONNX's number for the type.
    r#type: i32,
    sizes: Vec<u64>,
}

const STRING: i32 = 8;

impl Case {
    fn resolve(&self, file: &OnnxFile) -> Result<OnnxModel, OnnxError> {
        let mut reader = OnnxReader::new();
        for input in &self.inputs {
            reader = reader.input(&input.name, &input.sizes);
            if let Some(elements) = &input.elements {
                reader = reader.value(&input.name, elements);
            }
        }
        reader.resolve(file)
    }

    /// Returns what differs.
    fn differences(&self, model: &OnnxModel) -> String {
        let mut differences = String::new();
        for output in &self.outputs {
            let Some(value) = model.find(&output.name).and_then(|value| model.value(value)) else {
                let _ = write!(differences, " {} is missing", output.name);
                continue;
            };
            let Some(sizes) = value.sizes() else {
                // How many words a text has is not known, and takes no planned memory.
                if output.r#type == STRING {
                    continue;
                }
                let _ = write!(differences, " {} has no size", output.name);
                continue;
            };
            let is_same = match value.is_bound() {
                true => {
                    sizes.len() == output.sizes.len()
                        && sizes.iter().zip(&output.sizes).all(|(max, is)| max >= is)
                }
                false => sizes == output.sizes,
            };
            if !is_same || value.data_type() != Some(output.r#type) {
                let found = (sizes, value.data_type().unwrap_or(0));
                let _ = write!(
                    differences,
                    " {}: {found:?}, not {:?}",
                    output.name,
                    (&output.sizes, output.r#type)
                );
            }
        }
        differences
    }
}

fn cases(file: &str) -> Vec<Case> {
    let text = String::from_utf8(testdata(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| cases("onnx-shapes/nodes.jsonl"));

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Returns what is wrong with cases that have their models.
fn wrong(cases: &[Case]) -> String {
    let mut wrong = String::new();
    for case in cases {
        let differences = match OnnxFile::decode(bytes(&case.model)).and_then(|file| case.resolve(&file)) {
            Ok(model) => case.differences(&model),
            // The size of a picture is in its file.
            Err(OnnxError::UnknownSizes { .. }) if case.name.starts_with("test_image_decoder") => continue,
            Err(error) => error.to_string(),
        };
        if !differences.is_empty() {
            let _ = writeln!(wrong, "{}: {differences}", case.name);
        }
    }
    wrong
}

#[test]
fn nodes_have_the_shapes_of_onnx_s_own_tests() {
    assert_eq!(CASES.len(), 1991);
    assert_eq!(wrong(&CASES), "");
}

#[test]
fn nodes_of_onnx_runtime_have_the_shapes_of_a_run() {
    let cases = cases("onnx-shapes/contrib.jsonl");
    assert_eq!(cases.len(), 94);
    assert_eq!(wrong(&cases), "");
}

#[test]
fn values_have_the_shapes_of_a_run() {
    let mut peaks = Vec::new();
    for case in cases("onnx-shapes/wild.jsonl") {
        let file = OnnxFile::decode(testdata(&format!("onnx-wild/{}.onnx", case.name))).unwrap();
        let model = case.resolve(&file).unwrap();
        assert_eq!(case.differences(&model), "", "{}", case.name);
        let lifetimes = model.graph.lifetimes(&model.graph.given_order()).unwrap();
        let plan = Planner::new().plan(lifetimes.problem());
        verify(lifetimes.problem(), &plan).unwrap();
        peaks.push((case.name, lifetimes.problem().lower_bound()));
    }
    let expected = [
        ("basic_pitch__nmp", 4_843_520),
        ("ddddocr__common_det", 8_306_688),
        ("magika__model", 2_631_684),
        ("onnx_asr__nemo80_conv", 1_239_880),
        ("onnx_asr__resample_24_16", 384_520),
        ("onnx_asr__whisper80", 19_299_344),
        ("rapidocr_onnxruntime__ch_PP-OCRv4_det_infer", 34_668_544),
        ("rapidocr_onnxruntime__ch_ppocr_mobile_v2.0_cls_infer", 331_776),
        ("silero_vad__silero_vad_16k_op15", 533_249),
        ("silero_vad__silero_vad_op18_ifless", 8_193),
    ];
    assert_eq!(peaks, expected.map(|(name, peak)| (name.to_owned(), peak)));
}

proptest! {
    #[test]
    fn damaged_nodes_do_no_harm(
        case in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let case = case.get(&CASES);
        let mut bytes = bytes(&case.model);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(file) = OnnxFile::decode(bytes)
            && let Ok(model) = case.resolve(&file)
            && let Ok(lifetimes) = model.graph.lifetimes(&model.graph.given_order())
        {
            let plan = Planner::new().plan(lifetimes.problem());
            prop_assert!(verify(lifetimes.problem(), &plan).is_ok());
        }
    }
}

#[cfg(feature = "plan-file")]
#[test]
fn plans_of_all_nodes_are_right() {
    for case in &*CASES {
        let file = OnnxFile::decode(bytes(&case.model)).unwrap();
        let Ok(model) = case.resolve(&file) else { continue };
        let order = model.graph.given_order();
        let lifetimes = model.graph.lifetimes(&order).unwrap();
        let plan = Planner::new().plan(lifetimes.problem());
        let plan = orlop_onnx::ModelPlan::new(&model, &order, &lifetimes, &plan);
        assert_eq!(plan.check(&file), Ok(()), "{}", case.name);
    }
}
