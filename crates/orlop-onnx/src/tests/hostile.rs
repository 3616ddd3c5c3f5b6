//! Files that are made to cost much.

use super::inference::{attribute, body, file, int, integers, sizes, untyped, with};
use super::*;
use crate::proto::{FunctionProto, NodeProto};

const BOOL: i32 = 9;

fn function(name: &str, node: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: name.to_owned(),
        domain: "local".to_owned(),
        input: ["a", "c", "n"].map(str::to_owned).to_vec(),
        output: vec!["b".to_owned()],
        node,
        ..FunctionProto::default()
    }
}

fn call(name: &str, input: &[&str], output: &[&str]) -> NodeProto {
    NodeProto { domain: "local".to_owned(), ..node(name, input, output) }
}

fn resolved(functions: Vec<FunctionProto>) -> Result<OnnxModel, OnnxError> {
    let graph = GraphProto {
        input: vec![info("x", FLOAT, vec![size(64)]), info("c", BOOL, vec![])],
        initializer: vec![integers("n", &[1])],
        node: vec![call("0", &["x", "c", "n"], &["y"])],
        output: vec![untyped("y")],
        ..GraphProto::default()
    };
    OnnxReader::new()
        .read(&ModelProto { graph: Some(graph), functions, ..Default::default() }.encode_to_vec())
}

/// A node that gives `output`, under this number of nested graphs.
fn nested(mut inner: NodeProto, output: &str, graphs: usize) -> NodeProto {
    for _ in 0..graphs {
        let result = inner.output[0].clone();
        let graph =
            |node| GraphProto { node: vec![node], output: vec![untyped(&result)], ..Default::default() };
        let other = node("Relu", &["a"], &[&result]);
        let branches = vec![body("then_branch", graph(inner)), body("else_branch", graph(other))];
        inner = with(node("If", &["c"], &[output]), branches);
    }
    inner
}

/// Functions that call each other, each under nested graphs.
fn chain(calls: usize, graphs: usize) -> Vec<FunctionProto> {
    let link = |index: usize| nested(call(&(index + 1).to_string(), &["a", "c", "n"], &["b"]), "b", graphs);
    let mut functions: Vec<_> =
        (0..calls).map(|index| function(&index.to_string(), vec![link(index)])).collect();
    functions.push(function(&calls.to_string(), vec![node("Relu", &["a"], &["b"])]));
    functions
}

#[test]
fn loops_are_inferred_as_deep_as_they_may_be_nested() {
    let nested = |mut inner: NodeProto| {
        for _ in 0..20 {
            let state = inner.output[0].clone();
            let graph = GraphProto {
                input: ["i", "go", "s"].map(untyped).to_vec(),
                node: vec![inner],
                output: vec![untyped("go"), untyped(&state)],
                ..GraphProto::default()
            };
            inner = with(node("Loop", &["n", "", "a"], &["b"]), vec![body("body", graph)]);
        }
        inner
    };
    let link = |index: usize| nested(call(&(index + 1).to_string(), &["a", "c", "n"], &["b"]));
    let mut functions: Vec<_> = (0..3).map(|index| function(&index.to_string(), vec![link(index)])).collect();
    functions.push(function("3", vec![with(node("Concat", &["a", "a"], &["b"]), vec![int("axis", 0)])]));
    assert_eq!(sizes(&resolved(functions).expect("a model"), "y"), [128]);
}

#[test]
fn nested_graphs_of_nested_functions_are_limited() {
    let model = resolved(chain(3, 20)).expect("a model");
    assert_eq!(model.graph.node_count(), 1);
    assert!(matches!(resolved(chain(63, 20)), Err(OnnxError::TooComplex { .. })));
    // A call gives a graph, and each function wraps it in others.
    let given = AttributeProto { ref_attr_name: "given".to_owned(), ..attribute("given") };
    let link = |index: usize| {
        let inner = with(node("Relu", &["a"], &["b"]), vec![given.clone()]);
        let node = vec![nested(inner, "b", 20)];
        let wrapped = GraphProto { node, output: vec![untyped("b")], ..Default::default() };
        with(call(&(index + 1).to_string(), &["a", "c", "n"], &["b"]), vec![body("given", wrapped)])
    };
    let functions = (0..63).map(|index| function(&index.to_string(), vec![link(index)]));
    let last = function("63", vec![node("Relu", &["a"], &["b"])]);
    let result = resolved(functions.chain([last]).collect());
    assert!(matches!(result, Err(OnnxError::TooComplex { .. })), "{result:?}");
}

#[test]
fn what_calls_copy_is_limited() {
    // Each function calls the next one twice: an attribute of 64 KiB would be copied 2^18 times.
    let double = |index: usize| {
        let next = (index + 1).to_string();
        function(&index.to_string(), vec![call(&next, &["a"], &["t"]), call(&next, &["t"], &["b"])])
    };
    let numbers = AttributeProto { ints: vec![1; 1 << 13], ..attribute("axes") };
    let last = function("18", vec![with(node("Relu", &["a"], &["b"]), vec![numbers])]);
    let result = resolved((0..18).map(double).chain([last]).collect());
    assert!(matches!(result, Err(OnnxError::TooComplex { .. })), "{result:?}");
}

#[test]
fn all_that_a_loop_copies_is_counted() {
    // A body without nodes: each iteration copies what it captures, and its results.
    let resolved = |count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!("x{index}")).collect();
        let inner = GraphProto {
            input: vec![untyped("i"), untyped("go"), untyped("s")],
            output: ["go", "s"].into_iter().chain(names.iter().map(|name| &**name)).map(untyped).collect(),
            ..GraphProto::default()
        };
        let outer = GraphProto {
            input: vec![untyped("j"), untyped("go_on"), untyped("t")],
            node: vec![
                with(node("Loop", &["one", "", "t"], &["u"]), vec![body("body", inner)]),
                with(node("Concat", &["u", "x0"], &["next"]), vec![int("axis", 0)]),
            ],
            output: vec![untyped("go_on"), untyped("next")],
            ..GraphProto::default()
        };
        let graph = GraphProto {
            input: names.iter().map(|name| info(name, FLOAT, vec![size(1)])).collect(),
            initializer: vec![integers("n", &[100]), integers("one", &[1])],
            node: vec![with(node("Loop", &["n", "", "x0"], &["y"]), vec![body("body", outer)])],
            output: vec![untyped("y")],
            ..GraphProto::default()
        };
        OnnxReader::new().resolve(&file(graph))
    };
    assert_eq!(sizes(&resolved(4).expect("a small body"), "y"), [101]);
    let error = resolved(1 << 12).expect_err("a large body");
    assert!(matches!(error, OnnxError::UnknownSizes { .. }), "{error}");
}
