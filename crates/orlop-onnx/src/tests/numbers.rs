//! Sizes that are computed as runtimes compute them.

use super::inference::{file, graph, int, integers, sizes, untyped, with};
use super::*;
use crate::UnknownSize;
use crate::proto::NodeProto;
use half::{bf16, f16};

const INT32: i32 = 6;
const INT64: i32 = 7;
const FLOAT16: i32 = 10;
const BFLOAT16: i32 = 16;

/// The sizes of `y`.
fn result(graph: GraphProto) -> Vec<u64> {
    sizes(&OnnxReader::new().resolve(&file(graph)).expect("a model"), "y")
}

/// Returns the length of a slice by the text of the operator: both ends are clamped, and the elements between
/// them are counted.
fn stepped(size: i64, start: i64, end: i64, step: i64) -> u64 {
    let from_end = |end: i64| if end < 0 { end.saturating_add(size) } else { end };
    let last = if step > 0 { size } else { size - 1 };
    let (mut at, end) = (from_end(start).max(0).min(last), from_end(end).max(last - size).min(last));
    let mut length = 0;
    while (0..size).contains(&at) && if step > 0 { at < end } else { at > end } {
        (at, length) = (at.saturating_add(step), length + 1);
    }
    length
}

#[test]
fn slices_have_the_length_of_the_standard() {
    let ends = [i64::MIN, -10, -6, -5, -4, -1, 0, 1, 3, 4, 5, 6, 10, i64::MAX];
    let mut cases = Vec::new();
    for size in [0, 1, 5] {
        for step in [i64::MIN, -3, -2, -1, 1, 2, 3, i64::MAX] {
            cases.extend(ends.into_iter().flat_map(|start| ends.map(|end| (size, start, end, step))));
        }
    }
    for (length, start, end, step) in cases {
        let sliced = GraphProto {
            initializer: [("from", start), ("to", end), ("axes", 0), ("step", step)]
                .map(|(name, number)| integers(name, &[number]))
                .to_vec(),
            ..graph(
                info("x", FLOAT, vec![size(length)]),
                vec![node("Slice", &["x", "from", "to", "axes", "step"], &["y"])],
            )
        };
        let expected = stepped(length, start, end, step);
        assert_eq!(result(sliced), [expected], "{length} from {start} to {end} by {step}");
    }
    assert_eq!(stepped(5, -10, i64::MIN, -1), 1);
}

#[test]
fn halves_are_rounded_as_halves() {
    // 257 / 1 in bfloat16 is 256 (even), 259 / 1 is 260. 2049 in float16 is 2048, 2051 is 2052.
    let cast = |data_type: i32, number: i64| GraphProto {
        initializer: vec![integers("number", &[number])],
        ..graph(
            info("x", FLOAT, vec![size(1)]),
            vec![
                with(node("Cast", &["number"], &["half"]), vec![int("to", i64::from(data_type))]),
                with(node("Cast", &["half"], &["target"]), vec![int("to", 7)]),
                node("Expand", &["x", "target"], &["y"]),
            ],
        )
    };
    for (data_type, number, rounded) in [
        (BFLOAT16, 257, 256),
        (BFLOAT16, 259, 260),
        (FLOAT16, 2049, 2048),
        (FLOAT16, 2051, 2052),
        (FLOAT, 2051, 2051),
    ] {
        assert_eq!(result(cast(data_type, number)), [rounded], "{data_type}: {number}");
    }
}

#[test]
fn ranges_have_memory_for_the_largest_number_that_runtimes_compute() {
    // In `f64` there is one element less: the distance is rounded up in its type.
    for (data_type, limit) in [(FLOAT, 16_777_220), (FLOAT16, 2052), (BFLOAT16, 260)] {
        let number = |(name, number): (&str, f32)| TensorProto {
            name: name.to_owned(),
            data_type,
            raw_data: match data_type {
                FLOAT16 => f16::from_f32(number).to_le_bytes().to_vec(),
                BFLOAT16 => bf16::from_f32(number).to_le_bytes().to_vec(),
                _ => number.to_le_bytes().to_vec(),
            }
            .into(),
            ..TensorProto::default()
        };
        let numbers = [("start", 1.0), ("limit", limit as f32), ("step", 1.0)];
        let range = GraphProto {
            initializer: numbers.map(number).to_vec(),
            ..graph(untyped("x"), vec![node("Range", &["start", "limit", "step"], &["y"])])
        };
        let range = GraphProto { input: Vec::new(), ..range };
        assert_eq!(result(range), [limit], "{data_type}");
    }
}

#[test]
fn what_is_computed_from_a_size_without_bound_has_none() {
    let of_microsoft = |node: NodeProto| NodeProto { domain: "com.microsoft".to_owned(), ..node };
    for (node, expected) in [
        (of_microsoft(node("Rfft", &["open"], &["y"])), vec![5, 2]),
        (with(node("Split", &["open"], &["y", "z"]), vec![int("axis", 0)]), vec![5]),
    ] {
        let mut graph =
            graph(info("x", FLOAT, vec![size(1)]), vec![super::node("Custom", &["x"], &["open"]), node]);
        graph.node[0].domain = "com.example".to_owned();
        graph.value_info = vec![info("open", FLOAT, vec![symbol("n")])];
        let file = file(graph);
        let error = OnnxReader::new().resolve(&file).expect_err("no bound");
        let OnnxError::UnknownSizes { values } = error else { panic!("{error}") };
        assert_eq!(values.iter().map(|value| &*value.value).collect::<Vec<_>>(), ["open"]);
        let bound = if expected.len() == 2 { 8 } else { 9 };
        let model = OnnxReader::new().bound("open", &[bound]).resolve(&file).expect("a bound");
        assert_eq!(sizes(&model, "y"), expected);
    }
}

#[test]
fn a_type_that_is_left_open_is_that_of_the_scale() {
    let scale = TensorProto { dims: Vec::new(), ..weight("scale", &[]) };
    let dequantize = with(node("DequantizeLinear", &["x", "scale"], &["y"]), vec![int("output_dtype", 0)]);
    let dequantized =
        GraphProto { initializer: vec![scale], ..graph(info("x", 3, vec![size(7)]), vec![dequantize]) };
    assert_eq!(result(dequantized), [7]);
}

#[test]
fn inputs_that_decide_sizes_are_named_through_nodes() {
    let mut graph = graph(
        info("x", FLOAT, vec![size(1)]),
        vec![
            node("Add", &["a", "b"], &["sum"]),
            node("Expand", &["x", "sum"], &["y"]),
            node("Expand", &["x", "c"], &["z"]),
        ],
    );
    graph.input.extend(["a", "b", "c"].map(|name| info(name, 7, vec![size(1)])));
    let error = OnnxReader::new().resolve(&file(graph)).expect_err("open sizes");
    let OnnxError::UnknownSizes { values } = error else { panic!("{error}") };
    let inputs: Vec<_> = values.iter().map(|UnknownSize { inputs, .. }| inputs.join(" ")).collect();
    assert_eq!(inputs, ["a b", "c"]);
}

/// Memory for any number of 32 bits is of no use: the number is asked for.
#[test]
fn the_type_of_a_number_is_no_bound() {
    for data_type in [INT32, INT64] {
        let nodes = vec![
            with(node("Cast", &["x"], &["n"]), vec![int("to", INT64.into())]),
            node("ConstantOfShape", &["n"], &["y"]),
        ];
        let file = file(graph(info("x", data_type, vec![size(1)]), nodes));
        let error = OnnxReader::new().resolve(&file).expect_err("any number");
        let OnnxError::UnknownSizes { values } = error else { panic!("{error}") };
        assert_eq!(values[0].inputs, ["x"]);
        let model = OnnxReader::new().value("x", &[7.0]).resolve(&file).expect("a number");
        assert_eq!(sizes(&model, "y"), [7]);
    }
}
