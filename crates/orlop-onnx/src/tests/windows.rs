//! Windows at the edge of their input.

use super::inference::{attribute, file, graph, int, sizes, with};
use super::*;
use crate::proto::AttributeProto;

/// Returns the size that an operator gives for a row of `input` elements. `None` if it is refused.
fn row(operator: &str, input: i64, kernel: i64, stride: i64, rounds_up: bool) -> Option<u64> {
    let numbers = |name: &str, number: i64| AttributeProto { ints: vec![number], ..attribute(name) };
    let inputs: &[&str] = if operator == "Conv" { &["x", "weights"] } else { &["x"] };
    let mut attributes = vec![numbers("kernel_shape", kernel), numbers("strides", stride)];
    if rounds_up {
        attributes.push(int("ceil_mode", 1));
    }
    let shape = vec![size(1), size(1), size(input)];
    let mut graph = graph(info("x", FLOAT, shape), vec![with(node(operator, inputs, &["y"]), attributes)]);
    graph.initializer = vec![weight("weights", &[1, 1, kernel])];
    let model = OnnxReader::new().resolve(&file(graph)).ok()?;
    Some(sizes(&model, "y")[2])
}

/// The numbers are those of ONNX Runtime 1.32 on a CPU.
#[test]
fn pooling_windows_may_exceed_their_input() {
    // Input, kernel and stride; without and with rounding up.
    for ((input, kernel, stride), places) in [
        ((1, 3, 2), [Some(0), Some(0)]),
        ((1, 4, 1), [None, None]),
        ((2, 3, 2), [Some(1), Some(1)]),
        ((2, 3, 1), [Some(0), Some(0)]),
        ((2, 4, 1), [None, None]),
        ((2, 5, 2), [Some(0), Some(0)]),
        ((2, 6, 2), [None, None]),
        ((3, 6, 2), [Some(0), Some(0)]),
        ((4, 3, 2), [Some(1), Some(2)]),
        ((4, 5, 2), [Some(1), Some(1)]),
    ] {
        for operator in ["MaxPool", "AveragePool"] {
            let given = [false, true].map(|rounds_up| row(operator, input, kernel, stride, rounds_up));
            assert_eq!(given, places, "{operator}: {kernel} over {input}, by {stride}");
        }
    }
    assert_eq!([row("Conv", 2, 3, 2, false), row("Conv", 3, 3, 2, false)], [None, Some(1)]);
}
