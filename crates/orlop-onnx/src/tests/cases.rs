//! Branches whose results differ in rank.

use super::inference::{body, file, graph, sizes, untyped, with};
use super::*;
use crate::proto::NodeProto;

const BOOL: i32 = 9;

/// A branch that returns a value of the graph around.
fn identity(name: &str) -> GraphProto {
    GraphProto {
        node: vec![node("Identity", &[name], &["result"])],
        output: vec![untyped("result")],
        ..GraphProto::default()
    }
}

/// A case that contradicts what follows does not happen; otherwise there is room for either.
#[test]
fn branches_of_different_ranks_are_followed_both() {
    let chosen = || {
        with(
            node("If", &["c"], &["chosen"]),
            vec![body("then_branch", identity("matrix")), body("else_branch", identity("row"))],
        )
    };
    let model = |mut nodes: Vec<NodeProto>| {
        nodes.insert(0, chosen());
        let mut graph = graph(info("c", BOOL, vec![]), nodes);
        graph.input.extend([
            info("matrix", FLOAT, vec![size(2), size(8)]),
            info("row", FLOAT, vec![size(40)]),
            info("other", FLOAT, vec![size(8), size(3)]),
        ]);
        OnnxReader::new().resolve(&file(graph))
    };
    // Both happen: the row has more elements, and the sizes are one or two.
    let either =
        model(vec![node("Neg", &["chosen"], &["n"]), node("Shape", &["n"], &["y"])]).expect("a model");
    assert_eq!(
        (sizes(&either, "chosen"), sizes(&either, "n"), sizes(&either, "y")),
        (vec![40], vec![40], vec![2])
    );
    // A row of 40 cannot be multiplied by 8 rows.
    let one = model(vec![node("MatMul", &["chosen", "other"], &["y"])]).expect("a model");
    assert_eq!((sizes(&one, "chosen"), sizes(&one, "y")), (vec![2, 8], vec![2, 3]));
    // Neither happens.
    let none =
        model(vec![node("MatMul", &["chosen", "row"], &["y"]), node("MatMul", &["y", "matrix"], &["z"])]);
    assert!(matches!(none, Err(OnnxError::Contradiction { .. })), "{none:?}");
}

/// What a body returns is not known to have the rank that it has in one case.
#[test]
fn a_body_whose_rank_is_not_known_says_so() {
    let inner = with(
        node("If", &["d"], &["result"]),
        vec![body("then_branch", identity("matrix")), body("else_branch", identity("row"))],
    );
    let outer = GraphProto { node: vec![inner], output: vec![untyped("result")], ..GraphProto::default() };
    let chosen = with(
        node("If", &["c"], &["chosen"]),
        vec![body("then_branch", outer), body("else_branch", identity("matrix"))],
    );
    let mut graph = graph(info("c", BOOL, vec![]), vec![chosen, node("Shape", &["chosen"], &["y"])]);
    graph.input.extend([
        info("d", BOOL, vec![]),
        info("matrix", FLOAT, vec![size(2), size(8)]),
        info("row", FLOAT, vec![size(40)]),
    ]);
    let error = OnnxReader::new().resolve(&file(graph)).expect_err("a rank that is not known");
    let OnnxError::UnknownSizes { values } = &error else { panic!("{error}") };
    assert!(values.iter().any(|value| value.value == "chosen"), "{values:?}");
}
