//! Loops of many iterations with numbers that each of them increases.

use super::inference::{body, file, graph, int, integers, sizes, untyped, with};
use super::*;

const INT64: i32 = 7;
const BOOL: i32 = 9;

/// A loop of 5,000 iterations, or less if the data says so, that gives a row of as many elements as `n` has
/// at its end. `n` begins with 10,000, `m` with 1; `nodes` compute `next` from them, and `grown` from `m`.
/// Each iteration makes a row of the current number, too.
fn counting(nodes: Vec<NodeProto>) -> Result<OnnxModel, OnnxError> {
    let mut nodes = nodes;
    nodes.push(node("Identity", &["unknown"], &["go_on"]));
    nodes.push(node("Range", &["zero", "n", "one"], &["row"]));
    let count = GraphProto {
        input: ["i", "go", "n", "m"].map(untyped).to_vec(),
        node: nodes,
        output: ["go_on", "next", "grown"].map(untyped).to_vec(),
        ..GraphProto::default()
    };
    let looped = node("Loop", &["count", "yes", "start", "one"], &["last", "other"]);
    let nodes =
        vec![with(looped, vec![body("body", count)]), node("Range", &["zero", "last", "one"], &["y"])];
    let mut graph = graph(info("x", FLOAT, vec![size(1)]), nodes);
    let scalar = |name, number| TensorProto { dims: vec![], ..integers(name, &[number]) };
    graph.initializer.extend([scalar("zero", 0), scalar("one", 1), scalar("two", 2)]);
    graph.initializer.extend([scalar("count", 5000), scalar("start", 10_000)]);
    let yes = TensorProto { data_type: BOOL, int32_data: vec![1], dims: vec![], ..integers("yes", &[1]) };
    graph.initializer.push(yes);
    graph.input.push(info("unknown", BOOL, vec![]));
    OnnxReader::new().resolve(&file(graph))
}

#[test]
fn counters_have_the_bound_of_the_iterations() {
    let same = || node("Identity", &["m"], &["grown"]);
    let row = |model: &OnnxModel| {
        let [body] = model.bodies(model.graph.given_order()[0]) else { panic!("one body") };
        sizes(&body.model, "row")
    };
    let up = counting(vec![node("Add", &["two", "n"], &["next"]), same()]).expect("a counter");
    assert_eq!((sizes(&up, "y"), row(&up)), (vec![10_000 + 2 * 5000], vec![10_000 + 2 * 4999]));

    let casts = vec![
        with(node("Cast", &["n"], &["float"]), vec![int("to", FLOAT.into())]),
        with(node("Cast", &["one"], &["unit"]), vec![int("to", FLOAT.into())]),
        node("Sub", &["float", "unit"], &["less"]),
        with(node("Cast", &["less"], &["next"]), vec![int("to", INT64.into())]),
        same(),
    ];
    let down = counting(casts).expect("a counter");
    assert_eq!((sizes(&down, "y"), row(&down)), (vec![10_000], vec![10_000]));
}

/// What looks like a counter in the first iteration is not one if later ones add another number.
#[test]
fn numbers_that_grow_in_other_ways_have_no_bound() {
    let faster = vec![node("Add", &["m", "m"], &["grown"]), node("Add", &["n", "m"], &["next"])];
    let doubled = vec![node("Identity", &["m"], &["grown"]), node("Add", &["n", "n"], &["next"])];
    for nodes in [faster, doubled] {
        let error = counting(nodes).expect_err("no counter");
        assert!(matches!(error, OnnxError::UnknownSizes { .. }), "{error}");
    }
}
