//! The shapes of values, as other programs compute them: `testdata/onnx-shapes`.

use super::testdata;
use orlop_onnx::{OnnxError, OnnxFile, OnnxModel, OnnxReader};
use serde::Deserialize;
use std::fmt::Write as _;

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
                true => sizes.len() == output.sizes.len() && sizes.iter().zip(&output.sizes).all(|(max, is)| max >= is),
                false => sizes == output.sizes,
            };
            if !is_same || value.data_type() != Some(output.r#type) {
                let found = (sizes, value.data_type().unwrap_or(0));
                let _ = write!(differences, " {}: {found:?}, not {:?}", output.name, (&output.sizes, output.r#type));
            }
        }
        differences
    }
}

fn cases(file: &str) -> Vec<Case> {
    let text = String::from_utf8(testdata(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn decoded(digits: &str) -> OnnxFile {
    let bytes: Vec<u8> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    OnnxFile::decode(bytes).unwrap()
}

#[test]
fn nodes_have_the_shapes_of_onnx_s_own_tests() {
    let cases = cases("onnx-shapes/nodes.jsonl");
    let mut wrong = String::new();
    for case in &cases {
        match case.resolve(&decoded(&case.model)) {
            Ok(model) => {
                let differences = case.differences(&model);
                if !differences.is_empty() {
                    let _ = writeln!(wrong, "{}:{differences}", case.name);
                }
            }
            // The size of a picture is in its file.
            Err(OnnxError::UnknownSizes { .. }) if case.name.starts_with("test_image_decoder") => {}
            Err(error) => {
                let _ = writeln!(wrong, "{}: {error}", case.name);
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases\n{wrong}", cases.len());
}
