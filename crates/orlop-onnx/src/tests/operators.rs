//! Single nodes, with the types and the shapes that ONNX Runtime 1.32 gives them on a CPU, or, where it has no
//! kernel, those that the operator's own documentation has.

use super::inference::{attribute, file, int, untyped};
use super::*;
use crate::proto::AttributeProto;

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
