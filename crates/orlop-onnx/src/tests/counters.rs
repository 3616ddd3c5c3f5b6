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
    // There is at least one iteration.
    assert_eq!((sizes(&down, "y"), row(&down)), (vec![9_999], vec![10_000]));
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

/// A loop without a trip count that goes on while `i` is less than 5,000. Each iteration appends two rows to
/// its state, and a tensor to a sequence.
fn appending(comparison: NodeProto) -> Result<OnnxModel, OnnxError> {
    let iteration = GraphProto {
        input: ["number", "go", "i", "rows", "list"].map(untyped).to_vec(),
        node: vec![
            node("Add", &["i", "one"], &["next"]),
            comparison,
            with(node("Concat", &["rows", "x"], &["more"]), vec![int("axis", 0)]),
            node("SequenceInsert", &["list", "x"], &["longer"]),
            node("Identity", &["x"], &["row"]),
        ],
        output: ["go_on", "next", "more", "longer", "row"].map(untyped).to_vec(),
        ..GraphProto::default()
    };
    let looped = node("Loop", &["", "yes", "zero", "x", "empty"], &["last", "all", "tensors", "stacked"]);
    let nodes = vec![
        node("SequenceEmpty", &[], &["empty"]),
        with(looped, vec![body("body", iteration)]),
        with(node("ConcatFromSequence", &["tensors"], &["joined"]), vec![int("axis", 0)]),
    ];
    let mut graph = graph(info("x", FLOAT, vec![size(2), size(3)]), nodes);
    graph.output = ["last", "all", "joined", "stacked"].map(untyped).to_vec();
    let scalar = |name, number| TensorProto { dims: vec![], ..integers(name, &[number]) };
    graph.initializer.extend([scalar("zero", 0), scalar("one", 1), scalar("end", 5000)]);
    let yes = TensorProto { data_type: BOOL, int32_data: vec![1], dims: vec![], ..integers("yes", &[1]) };
    graph.initializer.push(yes);
    OnnxReader::new().resolve(&file(graph))
}

/// Neither the iterations nor the sizes need a bound by the user.
#[test]
fn a_counter_that_is_compared_bounds_the_loop() {
    let compared = [
        (node("Less", &["next", "end"], &["go_on"]), 5000),
        (node("Less", &["i", "end"], &["go_on"]), 5001),
        (node("LessOrEqual", &["next", "end"], &["go_on"]), 5001),
        (node("Greater", &["end", "next"], &["go_on"]), 5000),
        (node("GreaterOrEqual", &["end", "i"], &["go_on"]), 5002),
        (node("Less", &["number", "end"], &["go_on"]), 5001),
    ];
    for (comparison, count) in compared {
        let label = format!("{} of {:?}", comparison.op_type, comparison.input);
        let model = appending(comparison).expect("a bound");
        let found = ["all", "joined", "stacked"].map(|name| sizes(&model, name));
        assert_eq!(found, [vec![2 + 2 * count, 3], vec![2 * count, 3], vec![count, 2, 3]], "{label}");
        let is_bound = |name| model.value(model.find(name).expect(name)).expect(name).is_bound();
        assert!(!["all", "joined", "stacked"].map(is_bound).contains(&true), "{label}: exact");
    }
    // The first iteration is executed before the condition is.
    let ended = appending(node("Greater", &["next", "end"], &["go_on"])).expect("one iteration");
    assert_eq!(sizes(&ended, "stacked"), [1, 2, 3]);
    let endless = appending(node("Greater", &["next", "zero"], &["go_on"])).expect_err("no bound");
    assert!(matches!(endless, OnnxError::UnknownSizes { .. }), "{endless}");
}

/// A loop of this many iterations whose body is these nodes, which read `i` and `x` and write `result`.
fn repeated(name: &str, count: &str, nodes: Vec<NodeProto>) -> NodeProto {
    let iteration = GraphProto {
        input: ["i", "go"].map(untyped).to_vec(),
        node: [nodes, vec![node("Identity", &["go"], &["go_on"])]].concat(),
        output: ["go_on", "result"].map(untyped).to_vec(),
        ..GraphProto::default()
    };
    with(node("Loop", &[count, ""], &[name]), vec![body("body", iteration)])
}

/// Returns the sizes of `y`, and whether they are bounds.
fn counted(nodes: Vec<NodeProto>) -> (Vec<u64>, bool) {
    let mut graph = graph(info("x", FLOAT, vec![size(2)]), nodes);
    let scalar = |name, number| TensorProto { dims: vec![], ..integers(name, &[number]) };
    graph.initializer.extend([scalar("one", 1), scalar("twenty", 20), scalar("thousand", 1000)]);
    let model = OnnxReader::new().resolve(&file(graph)).expect("a model");
    (sizes(&model, "y"), model.value(model.find("y").expect("y")).expect("y").is_bound())
}

/// Iterations of the same sizes are not followed one by one: a million would take too many steps.
#[test]
fn iterations_of_the_same_sizes_are_counted() {
    let inner = repeated("result", "thousand", vec![node("Relu", &["x"], &["result"])]);
    assert_eq!(counted(vec![repeated("y", "thousand", vec![inner])]), (vec![1000, 1000, 2], false));
}

/// Where a size depends on the iteration, following it gives more than its bound.
#[test]
fn iterations_of_other_sizes_are_followed() {
    let row = vec![node("Add", &["i", "one"], &["next"]), node("Range", &["i", "next", "one"], &["result"])];
    assert_eq!(counted(vec![repeated("y", "twenty", row)]), (vec![20, 1], false));
}

/// Covering all iterations at once would lose the bound of a state that is no counter.
#[test]
fn a_bounded_state_is_followed() {
    let iteration = GraphProto {
        input: ["i", "go", "n"].map(untyped).to_vec(),
        node: vec![
            node("Add", &["n", "one"], &["more"]),
            node("Min", &["more", "twenty"], &["next"]),
            node("Identity", &["go"], &["go_on"]),
        ],
        output: ["go_on", "next"].map(untyped).to_vec(),
        ..GraphProto::default()
    };
    let nodes = vec![
        node("NonZero", &["x"], &["found"]),
        node("Shape", &["found"], &["sizes"]),
        node("Gather", &["sizes", "one"], &["count"]),
        with(node("Loop", &["thousand", "", "count"], &["last"]), vec![body("body", iteration)]),
        node("Unsqueeze", &["last", "axes"], &["row"]),
        node("ConstantOfShape", &["row"], &["y"]),
    ];
    let mut graph = graph(info("x", FLOAT, vec![size(2)]), nodes);
    let scalar = |name, number| TensorProto { dims: vec![], ..integers(name, &[number]) };
    graph.initializer.extend([scalar("one", 1), scalar("twenty", 20), scalar("thousand", 1000)]);
    graph.initializer.push(integers("axes", &[0]));
    let model = OnnxReader::new().resolve(&file(graph)).expect("a bound");
    assert_eq!(sizes(&model, "y"), [20]);
}
