//! Control flow and functions.

use super::inference::{attribute, body, file, graph, int, integers, sizes, untyped, with};
use super::*;
use crate::proto::{AttributeProto, FunctionProto, NodeProto};

const INT64: i32 = 7;
const BOOL: i32 = 9;

/// Relu and then something else, of what the graph around has as `x`.
fn branch(operator: &str) -> GraphProto {
    GraphProto {
        node: vec![node("Kernel", &["x"], &["inner"]), node(operator, &["inner"], &["result"])],
        output: vec![untyped("result")],
        value_info: vec![info("inner", FLOAT, vec![size(1024)])],
        ..GraphProto::default()
    }
}

#[test]
fn branches_are_workspace_of_their_node() {
    let nodes = || {
        vec![
            with(
                node("If", &["c"], &["chosen"]),
                vec![body("then_branch", branch("Relu")), body("else_branch", branch("Custom"))],
            ),
            node("Relu", &["chosen"], &["y"]),
        ]
    };
    let with_condition = |condition: Option<bool>| {
        let mut other = branch("Custom");
        other.node[1].domain = "com.example".to_owned();
        other.output = vec![info("result", FLOAT, vec![size(2048)])];
        let mut nodes = nodes();
        nodes[0].attribute[1].g = Some(other);
        let constant = |is_true: bool| TensorProto {
            name: "c".to_owned(),
            data_type: BOOL,
            int32_data: vec![i32::from(is_true)],
            ..TensorProto::default()
        };
        let inputs =
            [Some(info("x", FLOAT, vec![size(1024)])), condition.is_none().then(|| info("c", BOOL, vec![]))];
        file(GraphProto {
            node: nodes,
            initializer: condition.map(constant).into_iter().collect(),
            input: inputs.into_iter().flatten().collect(),
            output: vec![untyped("y")],
            ..GraphProto::default()
        })
    };
    let resolved = |condition| OnnxReader::new().resolve(&with_condition(condition)).expect("a model");
    let shape = |model: &OnnxModel| {
        (sizes(model, "y"), model.value(model.find("y").expect("y")).expect("y").is_bound())
    };
    // Without the condition each branch may be taken: the larger one counts.
    let (either, then, other) = (resolved(None), resolved(Some(true)), resolved(Some(false)));
    assert_eq!(shape(&then), (vec![1024], false));
    assert_eq!(shape(&other), (vec![2048], false));
    assert_eq!(shape(&either), (vec![2048], true));
    let bodies = |model: &OnnxModel| {
        let node = model.graph.given_order()[0];
        model.bodies(node).iter().map(|body| (body.attribute.clone(), body.plan.height())).collect::<Vec<_>>()
    };
    let (first, second) = (("then_branch".to_owned(), 4096), ("else_branch".to_owned(), 4096 + 8192));
    assert_eq!(bodies(&then), std::slice::from_ref(&first));
    assert_eq!(bodies(&either), [first, second]);
    // The workspace of the branch, and the value that it gives; Relu is in place.
    assert_eq!([peak(&then), peak(&other)], [4096 + 4096, 4096 + 8192 + 8192]);
    // What a branch reads stays live until it is executed: the node reads it.
    let node = either.graph.given_order()[0];
    assert!(either.graph.inputs(node).expect("a node").contains(&either.find("x").expect("x")));
}

/// A loop that adds a row to `x` in each iteration, and collects it.
fn growing(count: Option<i64>) -> GraphProto {
    let add = GraphProto {
        input: vec![untyped("i"), untyped("go"), untyped("state")],
        node: vec![
            node("Identity", &["go"], &["go_on"]),
            with(node("Concat", &["state", "x"], &["next"]), vec![int("axis", 0)]),
            node("Relu", &["x"], &["row"]),
        ],
        output: vec![untyped("go_on"), untyped("next"), untyped("row")],
        ..GraphProto::default()
    };
    let mut nodes = vec![with(node("Loop", &["count", "", "x"], &["y", "rows"]), vec![body("body", add)])];
    nodes[0].name = "grow".to_owned();
    let x = info("x", FLOAT, vec![size(1), size(64)]);
    let mut graph = graph(x, nodes);
    match count {
        Some(count) => graph.initializer.push(integers("count", &[count])),
        None => graph.input.push(info("count", INT64, vec![])),
    }
    graph
}

#[test]
fn loops_are_followed() {
    let model = OnnxReader::new().resolve(&file(growing(Some(5)))).expect("five iterations");
    assert_eq!((sizes(&model, "y"), sizes(&model, "rows")), (vec![6, 64], vec![5, 1, 64]));
    let [body] = model.bodies(model.graph.given_order()[0]) else { panic!("one body") };
    // State and new state of the last iteration, the row, and two conditions.
    assert!(
        (256 * (5 + 6 + 1)..256 * (5 + 6 + 1 + 4)).contains(&body.plan.height()),
        "{}",
        body.plan.height()
    );
    let none = OnnxReader::new().resolve(&file(growing(Some(0)))).expect("no iteration");
    assert_eq!(sizes(&none, "y"), [1, 64]);

    // Without a count the size has no bound, but from the user.
    let file = file(growing(None));
    let error = OnnxReader::new().resolve(&file).expect_err("no bound");
    assert!(matches!(&error, OnnxError::UnknownSizes { values } if values[0].inputs == ["count"]), "{error}");
    let bound = OnnxReader::new().bound("grow", &[7]).resolve(&file).expect("a bound");
    assert_eq!((sizes(&bound, "y"), sizes(&bound, "rows")), (vec![8, 64], vec![7, 1, 64]));
    let given = OnnxReader::new().value("count", &[3.0]).resolve(&file).expect("a count");
    assert_eq!(sizes(&given, "y"), [4, 64]);
}

/// A bound holds for loops that their condition ends, with the largest count, or without one.
#[test]
fn bounds_hold_for_loops_with_a_condition() {
    let resolved = |count: Option<i64>, condition: &str, bound: u64| {
        let mut graph = growing(Some(count.unwrap_or(0)));
        let number = if count.is_some() { "count" } else { "" };
        graph.node[0].input = [number, condition, "x"].map(str::to_owned).to_vec();
        let body = graph.node[0].attribute[0].g.as_mut().expect("a body");
        body.node[0] = node("Identity", &["again"], &["go_on"]);
        graph.input.push(info("again", BOOL, vec![]));
        OnnxReader::new().bound("grow", &[bound]).resolve(&file(graph))
    };
    for count in [None, Some(i64::MAX), Some(9)] {
        let model = resolved(count, "again", 7).expect("a bound");
        assert_eq!((sizes(&model, "y"), sizes(&model, "rows")), (vec![8, 64], vec![7, 1, 64]), "{count:?}");
    }
    assert_eq!(sizes(&resolved(Some(3), "again", 7).expect("a bound"), "y"), [4, 64]);
    // Without a condition, or with one that always holds, a count is the number of iterations.
    assert_eq!(sizes(&resolved(Some(3), "", 7).expect("a bound"), "y"), [4, 64]);
    let mut always = growing(Some(9));
    always.node[0].input[1] = "yes".to_owned();
    always.initializer.push(TensorProto {
        data_type: BOOL,
        int32_data: vec![1],
        dims: vec![],
        ..integers("yes", &[])
    });
    let always = OnnxReader::new().bound("grow", &[7]).resolve(&file(always));
    for result in [resolved(Some(9), "", 7), always] {
        let error = result.expect_err("nine iterations");
        assert!(matches!(&error, OnnxError::Contradiction { node, .. } if node == "grow"), "{error}");
    }
}

/// A number that each iteration increases, in a loop with more iterations than are followed and whose end
/// depends on data: it has no upper bound, and what is cut out of a table with it has.
#[test]
fn numbers_that_grow_keep_their_lower_bound() {
    let cut = GraphProto {
        input: vec![untyped("i"), untyped("go"), untyped("from")],
        node: vec![
            node("Identity", &["again"], &["go_on"]),
            node("Add", &["from", "one"], &["next"]),
            node("Min", &["next", "end"], &["to"]),
            node("Range", &["from", "to", "one"], &["row"]),
        ],
        output: vec![untyped("go_on"), untyped("next"), untyped("row")],
        ..GraphProto::default()
    };
    let nodes = vec![with(node("Loop", &["count", "yes", "zero"], &["last", "y"]), vec![body("body", cut)])];
    let mut graph = graph(info("again", BOOL, vec![]), nodes);
    let number = |name, number| TensorProto { dims: vec![], ..integers(name, &[number]) };
    let yes = TensorProto { data_type: BOOL, int32_data: vec![1], dims: vec![], ..integers("yes", &[]) };
    graph.initializer.extend([number("zero", 0), number("one", 1), number("end", 501), yes]);
    graph.initializer.push(number("count", 5000));
    let model = OnnxReader::new().resolve(&file(graph)).expect("a bound");
    assert_eq!(sizes(&model, "y"), [5000, 501]);
}

/// A state that begins as a placeholder, in a loop whose end depends on data: after the first iteration it
/// has another rank, and its place has room for both.
#[test]
fn a_placeholder_is_replaced_by_the_first_iteration() {
    let step = GraphProto {
        input: vec![untyped("i"), untyped("go"), untyped("state")],
        node: vec![node("Identity", &["again"], &["go_on"]), node("Relu", &["x"], &["next"])],
        output: vec![untyped("go_on"), untyped("next")],
        ..GraphProto::default()
    };
    let start = with(node("Loop", &["count", "yes", "placeholder"], &["y"]), vec![body("body", step)]);
    let mut graph = graph(info("x", FLOAT, vec![size(2), size(128)]), vec![start]);
    graph.input.push(info("again", BOOL, vec![]));
    let yes = TensorProto { data_type: BOOL, int32_data: vec![1], dims: vec![], ..integers("yes", &[]) };
    let placeholder = weight("placeholder", &[1]);
    graph.initializer.extend([integers("count", &[5000]), yes, placeholder]);
    let model = OnnxReader::new().resolve(&file(graph)).expect("a rank");
    assert_eq!(sizes(&model, "y"), [2, 128]);
    let [body] = model.bodies(model.graph.given_order()[0]) else { panic!("one body") };
    assert!(body.plan.height() >= 2 * 1024, "state and new state: {}", body.plan.height());
}

/// A bound is about the number of elements where a value has another rank.
#[test]
fn bounds_of_another_rank_are_compared_by_their_elements() {
    let graph = |sizes| graph(info("x", FLOAT, sizes), vec![node("Relu", &["x"], &["y"])]);
    let resolved = |sizes| OnnxReader::new().bound("y", &[1]).resolve(&file(graph(sizes)));
    assert_eq!(sizes(&resolved(vec![]).expect("one element"), "y"), Vec::<u64>::new());
    let error = resolved(vec![size(2), size(1)]).expect_err("two elements");
    assert!(matches!(error, OnnxError::Contradiction { .. }), "{error}");
}

#[test]
fn a_condition_that_may_be_ignored_ends_nothing() {
    // The body says that no iteration follows, in a loop that starts without a condition, and with one.
    let sizes_of = |condition: &str| {
        let mut graph = growing(Some(5));
        let no = TensorProto { data_type: BOOL, int32_data: vec![0], dims: vec![], ..integers("no", &[0]) };
        let yes = TensorProto { int32_data: vec![1], name: "yes".to_owned(), ..no.clone() };
        graph.initializer.extend([no, yes]);
        graph.node[0].input[1] = condition.to_owned();
        let body = graph.node[0].attribute[0].g.as_mut().expect("a body");
        body.node[0] = node("Identity", &["no"], &["go_on"]);
        let model = OnnxReader::new().resolve(&file(graph)).expect("a loop");
        sizes(&model, "y")
    };
    assert_eq!([sizes_of(""), sizes_of("yes"), sizes_of("no")], [vec![6, 64], vec![2, 64], vec![1, 64]]);
}

#[test]
fn functions_are_inlined() {
    let call = |name: &str, input: &[&str], output: &[&str]| NodeProto {
        domain: "local".to_owned(),
        ..node(name, input, output)
    };
    let function = |name: &str, node: Vec<NodeProto>| FunctionProto {
        name: name.to_owned(),
        domain: "local".to_owned(),
        input: vec!["a".to_owned()],
        output: vec!["b".to_owned()],
        node,
        ..FunctionProto::default()
    };
    let axis = AttributeProto { ref_attr_name: "by".to_owned(), ..attribute("axis") };
    let mut functions = vec![
        function(
            "Outer",
            vec![with(call("Inner", &["a"], &["t"]), vec![int("by", 1)]), call("Inner", &["t"], &["b"])],
        ),
        function("Inner", vec![with(node("Concat", &["a", "a"], &["b"]), vec![axis])]),
    ];
    functions[1].attribute_proto = vec![int("by", 0)];
    let decoded = |functions: &[FunctionProto]| {
        let graph = graph(info("x", FLOAT, vec![size(2), size(3)]), vec![call("Outer", &["x"], &["y"])]);
        let model = ModelProto { graph: Some(graph), functions: functions.to_vec(), ..ModelProto::default() };
        OnnxReader::new().read(&model.encode_to_vec())
    };
    let model = decoded(&functions).expect("functions");
    assert_eq!((model.graph.node_count(), sizes(&model, "y")), (2, vec![4, 6]));
    // A function that calls itself is no model.
    functions[1].node.push(call("Outer", &["a"], &["c"]));
    assert!(matches!(decoded(&functions), Err(OnnxError::TooComplex { .. })));
}

#[test]
fn nested_loops_end() {
    // Each level doubles the iterations: they are not all followed.
    let mut inner = GraphProto {
        input: vec![untyped("i"), untyped("go"), untyped("s")],
        node: vec![node("Identity", &["go"], &["g"]), node("Add", &["s", "count"], &["t"])],
        output: vec![untyped("g"), untyped("t")],
        ..GraphProto::default()
    };
    for _ in 0..6 {
        inner.node[1] = with(node("Loop", &["count", "", "s"], &["t"]), vec![body("body", inner.clone())]);
    }
    let start = vec![with(node("Loop", &["count", "", "x"], &["y"]), vec![body("body", inner)])];
    let mut graph = graph(info("unused", FLOAT, vec![]), start);
    graph.initializer.extend([integers("count", &[1000]), integers("x", &[0])]);
    let result = OnnxReader::new().resolve(&file(graph));
    assert!(matches!(result, Err(OnnxError::TooComplex { .. })), "{result:?}");
}

#[test]
fn only_the_body_is_executed() {
    // A graph attribute that means nothing, before the body: it has fewer values.
    let other = || body("note", branch("Relu"));
    let mut grown = growing(Some(5));
    grown.node[0].attribute.insert(0, other());
    let model = OnnxReader::new().resolve(&file(grown)).expect("a loop");
    let attributes = |model: &OnnxModel, node: usize| {
        let bodies = model.bodies(model.graph.given_order()[node]).iter();
        bodies.map(|body| (body.attribute.clone(), sizes(&body.model, "row"))).collect::<Vec<_>>()
    };
    assert_eq!(attributes(&model, 0), [("body".to_owned(), vec![1, 64])]);

    let row = GraphProto {
        input: vec![untyped("slice")],
        node: vec![
            node("Exp", &["slice"], &["a"]),
            node("Exp", &["a"], &["b"]),
            node("Exp", &["b"], &["row"]),
        ],
        output: vec![untyped("row")],
        ..GraphProto::default()
    };
    let x = || info("x", FLOAT, vec![size(1024), size(64)]);
    let scan = with(
        node("Scan", &["x"], &["y"]),
        vec![other(), int("num_scan_inputs", 1), body("body", row.clone())],
    );
    let model = OnnxReader::new().resolve(&file(graph(x(), vec![scan]))).expect("a scan");
    assert_eq!(attributes(&model, 0), [("body".to_owned(), vec![64])]);
    let map = with(node("SequenceMap", &["s"], &["y"]), vec![other(), body("body", row)]);
    let nodes = vec![node("SequenceConstruct", &["x"], &["s"]), map];
    let model = OnnxReader::new().resolve(&file(graph(x(), nodes))).expect("a map");
    assert_eq!(attributes(&model, 1), [("body".to_owned(), vec![1024, 64])]);
}

#[test]
fn iterations_that_contradict_the_state_are_not_executed() {
    // The state doubles, and is added to a tensor of eight elements or of one: the third iteration is none.
    let resolved = |condition: &str| {
        let double = GraphProto {
            input: vec![untyped("i"), untyped("go"), untyped("state")],
            node: vec![
                node("Identity", &[condition], &["go_on"]),
                with(node("Concat", &["state", "state"], &["next"]), vec![int("axis", 0)]),
                node("Add", &["next", "eight"], &["sum"]),
            ],
            output: vec![untyped("go_on"), untyped("next")],
            ..GraphProto::default()
        };
        let nodes = vec![with(node("Loop", &["count", "yes", "x"], &["y"]), vec![body("body", double)])];
        let mut graph = graph(info("x", FLOAT, vec![size(4)]), nodes);
        let yes = TensorProto { data_type: BOOL, int32_data: vec![1], dims: vec![], ..integers("yes", &[1]) };
        graph.initializer.extend([integers("count", &[10]), weight("eight", &[8]), yes]);
        graph.input.push(info("unknown", BOOL, vec![]));
        OnnxReader::new().resolve(&file(graph))
    };
    assert_eq!(sizes(&resolved("unknown").expect("one iteration"), "y"), [8]);
    let error = resolved("yes").expect_err("ten iterations");
    assert!(matches!(error, OnnxError::Contradiction { .. }), "{error}");
}

/// Elements can be given for inputs of the model, not for those of a body.
#[test]
fn a_body_asks_for_no_elements() {
    let body_graph = GraphProto {
        input: ["i", "go_on", "state"].map(untyped).to_vec(),
        initializer: vec![integers("zero", &[0]), integers("one", &[1])],
        node: vec![
            node("Identity", &["go_on"], &["goes_on"]),
            node("Add", &["state", "state"], &["next"]),
            node("Squeeze", &["zero"], &["from"]),
            node("Squeeze", &["one"], &["by"]),
            node("Range", &["from", "state", "by"], &["row"]),
        ],
        output: ["goes_on", "next"].map(untyped).to_vec(),
        ..GraphProto::default()
    };
    let nodes = vec![with(node("Loop", &["count", "yes", "start"], &["y"]), vec![body("body", body_graph)])];
    let mut graph = graph(info("x", FLOAT, vec![size(1)]), nodes);
    graph.input.extend([
        info("count", INT64, vec![]),
        info("yes", BOOL, vec![]),
        info("start", INT64, vec![]),
    ]);
    let error = OnnxReader::new().resolve(&file(graph)).expect_err("a range of any length");
    let OnnxError::UnknownSizes { values } = &error else { panic!("{error}") };
    let row = values.iter().find(|value| value.value == "row").expect("it has no bound");
    assert!(row.inputs.is_empty(), "{:?}", row.inputs);
}

/// Exporters write a scalar in one branch and a row of one element in the other.
#[test]
fn branches_of_one_element_have_a_size_whatever_their_ranks() {
    let branch = |name: &str| GraphProto {
        node: vec![node("Identity", &[name], &["result"])],
        output: vec![untyped("result")],
        ..GraphProto::default()
    };
    let chosen = with(
        node("If", &["c"], &["chosen"]),
        vec![body("then_branch", branch("scalar")), body("else_branch", branch("row"))],
    );
    let mut graph = graph(info("c", BOOL, vec![]), vec![chosen, node("Neg", &["chosen"], &["y"])]);
    graph.input.extend([info("scalar", FLOAT, vec![]), info("row", FLOAT, vec![size(1)])]);
    let model = OnnxReader::new().resolve(&file(graph)).expect("a model");
    assert_eq!((sizes(&model, "chosen"), sizes(&model, "y")), (vec![1], vec![1]));
    assert!(model.value(model.find("y").expect("y")).expect("y").is_bound());
}
