//! Single nodes, with the types and the shapes that ONNX Runtime 1.32 gives them on a CPU, or, where it has
//! no kernel, those that the operator's own documentation has.

use super::inference::{attribute, file, graph, int, integers, sizes, untyped};
use super::*;
use crate::proto::AttributeProto;

const INT32: i32 = 6;
const INT64: i32 = 7;
const STRING: i32 = 8;

/// A type and sizes. `None` for sizes that are not known.
type Value = (i32, Option<Vec<u64>>);

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name) }
}

fn floats(name: &str, count: usize) -> AttributeProto {
    AttributeProto { floats: vec![0.5; count], ..attribute(name) }
}

fn texts(name: &str, count: u8) -> AttributeProto {
    AttributeProto { strings: (0..count).map(|text| vec![b'a' + text]).collect(), ..attribute(name) }
}

/// Returns the `count` outputs of a node with inputs of these types and sizes.
fn outputs(
    (domain, operator): (&str, &str),
    inputs: &[(i32, &[i64])],
    attributes: Vec<AttributeProto>,
    count: usize,
) -> Vec<Value> {
    let named = |prefix: &str, count: usize| (0..count).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>();
    let (input, output) = (named("x", inputs.len()), named("y", count));
    let infos = input.iter().zip(inputs).map(|(name, &(of, sizes))| {
        let sizes = sizes.iter().map(|&of| size(of)).collect();
        info(name, of, sizes)
    });
    let graph = GraphProto {
        input: infos.collect(),
        output: output.iter().map(|name| untyped(name)).collect(),
        node: vec![NodeProto {
            input: input.clone(),
            output: output.clone(),
            op_type: operator.to_owned(),
            domain: domain.to_owned(),
            attribute: attributes,
            ..NodeProto::default()
        }],
        ..GraphProto::default()
    };
    let model = OnnxReader::new().resolve(&file(graph)).expect(operator);
    let values = output.iter().map(|name| model.value(model.find(name).expect(name)).expect(name));
    values.map(|value| (value.data_type().unwrap_or(0), value.sizes().map(<[u64]>::to_vec))).collect()
}

fn is(data_type: i32, sizes: &[u64]) -> Value {
    (data_type, Some(sizes.to_vec()))
}

#[test]
fn support_vectors_without_probabilities_have_a_score_for_each_pair_of_classes() {
    let scores = |classes: i64, more: &[&str]| {
        let labels: Vec<i64> = (0..classes).collect();
        let more = more.iter().map(|name| floats(name, 3));
        let attributes = [ints("classlabels_ints", &labels)].into_iter().chain(more).collect();
        outputs(("ai.onnx.ml", "SVMClassifier"), &[(FLOAT, &[5, 3])], attributes, 2)
    };
    let expected = |columns: u64| vec![is(INT64, &[5]), is(FLOAT, &[5, columns])];
    for (classes, pairs) in [(2, 2), (3, 3), (4, 6), (5, 10)] {
        assert_eq!(scores(classes, &["support_vectors"]), expected(pairs), "{classes} classes");
    }
    assert_eq!(scores(5, &["support_vectors", "prob_a", "prob_b"]), expected(5));
    assert_eq!(scores(5, &["coefficients"]), expected(5));
}

#[test]
fn the_first_label_encoder_maps_texts_to_positions_and_back() {
    let encoded = |of: i32, attributes: Vec<AttributeProto>| {
        outputs(("ai.onnx.ml", "LabelEncoder"), &[(of, &[1, 3])], attributes, 1)
    };
    let first = || {
        let default = AttributeProto { s: Some(b"z".to_vec()), ..attribute("default_string") };
        vec![texts("classes_strings", 3), default, int("default_int64", -1)]
    };
    assert_eq!(encoded(STRING, first()), [is(INT64, &[1, 3])]);
    assert_eq!(encoded(INT64, first()), [is(STRING, &[1, 3])]);
    assert_eq!(encoded(INT64, vec![texts("values_strings", 2)]), [is(STRING, &[1, 3])]);
}

#[test]
fn operators_that_onnx_retired_have_shapes() {
    const IMAGE: (i32, &[i64]) = (FLOAT, &[1, 3, 8, 6]);
    for operator in ["Affine", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"] {
        assert_eq!(
            outputs(("", operator), &[IMAGE], Vec::new(), 1),
            [is(FLOAT, &[1, 3, 8, 6])],
            "{operator}"
        );
    }
    let crop = |attributes| outputs(("", "Crop"), &[IMAGE], attributes, 1);
    assert_eq!(crop(vec![ints("border", &[1, 2, 1, 0])]), [is(FLOAT, &[1, 3, 6, 4])]);
    let scaled = vec![ints("border", &[1, 2, 1, 1]), ints("scale", &[3, 2])];
    assert_eq!(crop(scaled), [is(FLOAT, &[1, 3, 3, 2])]);

    let sliced = GraphProto {
        initializer: vec![integers("starts", &[1, 2]), integers("ends", &[3, 5]), integers("axes", &[1, 3])],
        ..graph(
            info("x", FLOAT, [1, 3, 8, 6].map(size).to_vec()),
            vec![node("DynamicSlice", &["x", "starts", "ends", "axes"], &["y"])],
        )
    };
    let model = OnnxReader::new().resolve(&file(sliced)).expect("a slice");
    assert_eq!(sizes(&model, "y"), [1, 2, 8, 3]);
}

#[test]
fn operators_of_onnx_runtime_for_texts_and_masks_have_shapes() {
    let microsoft = |operator, inputs: &[(i32, &[i64])], attributes| {
        outputs(("com.microsoft", operator), inputs, attributes, 1)
    };
    let window = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
    let image: &[i64] = &[1, 3, 8, 6];
    assert_eq!(
        microsoft("MaxpoolWithMask", &[(FLOAT, image), (INT32, image)], window),
        [is(FLOAT, &[1, 3, 4, 3])]
    );
    let embedding: &[(i32, &[i64])] =
        &[(INT32, &[2, 5]), (FLOAT, &[6, 1, 2, 4]), (FLOAT, &[6]), (FLOAT, &[8, 4])];
    assert_eq!(microsoft("WordConvEmbedding", embedding, Vec::new()), [is(FLOAT, &[2, 6])]);
    // The number of words is not known, and is not asked for: texts are in no plan.
    assert_eq!(microsoft("Tokenizer", &[(STRING, &[1, 2])], Vec::new()), [(0, None)]);
}

#[test]
fn quantization_of_qonnx_keeps_shapes() {
    for domain in ["onnx.brevitas", "qonnx.custom_op.general", "finn.custom_op.general"] {
        let inputs: &[(i32, &[i64])] = &[(FLOAT, &[2, 3]), (FLOAT, &[]), (FLOAT, &[]), (FLOAT, &[])];
        assert_eq!(outputs((domain, "Quant"), inputs, Vec::new(), 1), [is(FLOAT, &[2, 3])], "{domain}");
    }
}

#[test]
fn detections_of_tensorrt_are_as_many_as_an_attribute_says() {
    const BOXES: &[(i32, &[i64])] = &[(FLOAT, &[2, 900, 4]), (FLOAT, &[2, 900, 80])];
    let expected = |count: u64, classes: i32| {
        let rows = &[2, count];
        vec![is(INT32, &[2, 1]), is(FLOAT, &[2, count, 4]), is(FLOAT, rows), is(classes, rows)]
    };
    let efficient =
        |domain| outputs((domain, "EfficientNMS_TRT"), BOXES, vec![int("max_output_boxes", 30)], 4);
    assert_eq!(["", "TRT"].map(efficient), [(); 2].map(|()| expected(30, INT32)));
    let batched = outputs(("TRT", "BatchedNMSDynamic_TRT"), BOXES, vec![int("keepTopK", 50)], 4);
    assert_eq!(batched, expected(50, FLOAT));
}
