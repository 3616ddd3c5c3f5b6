//! Sizes that are inferred, and what is asked for.

use super::*;
use crate::proto::{AttributeProto, NodeProto, OperatorSetIdProto};
use crate::{InputConflict, InputSize, OnnxFile, UnknownSize};

const INT64: i32 = 7;

/// A value of which the file says nothing.
pub(super) fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.to_owned(), r#type: None }
}

pub(super) fn unnamed() -> Dimension {
    Dimension { size: None }
}

pub(super) fn attribute(name: &str) -> AttributeProto {
    AttributeProto { name: name.to_owned(), ..AttributeProto::default() }
}

pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name) }
}

pub(super) fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), ..attribute(name) }
}

pub(super) fn with(mut node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    node.attribute = attributes;
    node
}

pub(super) fn integers(name: &str, numbers: &[i64]) -> TensorProto {
    let dims = vec![i64::try_from(numbers.len()).expect("few")];
    TensorProto {
        name: name.to_owned(),
        data_type: INT64,
        dims,
        int64_data: numbers.to_vec(),
        ..TensorProto::default()
    }
}

pub(super) fn file(graph: GraphProto) -> OnnxFile {
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    let model = ModelProto { graph: Some(graph), opset_import, ..ModelProto::default() };
    OnnxFile::decode(model.encode_to_vec()).expect("a model")
}

pub(super) fn sizes(model: &OnnxModel, name: &str) -> Vec<u64> {
    model.value(model.find(name).expect(name)).and_then(|value| value.sizes()).expect(name).to_vec()
}

/// A graph with one input `x`, and a result `y` of which nothing is known.
pub(super) fn graph(x: ValueInfoProto, node: Vec<NodeProto>) -> GraphProto {
    GraphProto { node, input: vec![x], output: vec![untyped("y")], ..GraphProto::default() }
}

/// `y` has the elements of `x`, `[n, 3, 4]`, as `[n * 3, 4]`: computed by nodes.
fn computed(x: ValueInfoProto) -> GraphProto {
    GraphProto {
        initializer: vec![integers("zero", &[0]), integers("three", &[3]), integers("four", &[4])],
        ..graph(
            x,
            vec![
                node("Shape", &["x"], &["shape"]),
                with(node("Gather", &["shape", "zero"], &["n"]), vec![int("axis", 0)]),
                node("Mul", &["n", "three"], &["rows"]),
                with(node("Concat", &["rows", "four"], &["target"]), vec![int("axis", 0)]),
                node("Reshape", &["x", "target"], &["y"]),
            ],
        )
    }
}

#[test]
fn sizes_are_computed_by_nodes() {
    let file = file(computed(info("x", FLOAT, vec![symbol("n"), size(3), size(4)])));
    for n in [1, 5, 1000] {
        let model = OnnxReader::new().bind("n", n).resolve(&file).expect("bound");
        assert_eq!((sizes(&model, "y"), model.unused_bindings.len()), (vec![3 * n, 4], 0));
        let by_sizes = OnnxReader::new().input("x", &[n, 3, 4]).resolve(&file).expect("sizes");
        assert_eq!(by_sizes.graph, model.graph);
    }
}

#[test]
fn all_that_is_missing_is_asked_for_at_once() {
    let open = vec![unnamed(), symbol("n"), size(3), symbol("?"), size(-1)];
    let graph = GraphProto {
        input: vec![info("x", FLOAT, open), untyped("z"), info("w", FLOAT, vec![size(2)])],
        ..graph(untyped("x"), vec![node("Relu", &["x"], &["y"])])
    };
    let file = file(graph);
    let error = OnnxReader::new().resolve(&file).expect_err("open sizes");
    assert_eq!(error.to_string(), "sizes of inputs are missing: \"x\" [?, n, 3, ?, ?], \"z\" of any shape");
    let OnnxError::MissingSizes { inputs } = error else { panic!("{error}") };
    let symbol = InputSize::Symbol("n".to_owned());
    let expected = [InputSize::Unknown, symbol, InputSize::Number(3), InputSize::Unknown, InputSize::Unknown];
    assert_eq!(inputs[0].sizes.as_deref(), Some(&expected[..]));

    let positions = OnnxReader::new().bind("x:0", 2).bind("n", 4).bind("x:3", 5).bind("x:4", 6);
    let model = positions.input("z", &[]).resolve(&file).expect("by position");
    assert_eq!((sizes(&model, "y"), model.unused_bindings.len()), (vec![2, 4, 3, 5, 6], 0));
    let model = OnnxReader::new().next_input(&[2, 4, 3, 5, 6]).next_input(&[]).resolve(&file);
    assert_eq!(sizes(&model.expect("in their order"), "y"), [2, 4, 3, 5, 6]);
}

#[test]
fn what_contradicts_the_file_is_refused() {
    let two = |name: &str| info(name, FLOAT, vec![symbol("n"), size(3)]);
    let file = file(GraphProto {
        input: vec![two("x"), two("z")],
        ..graph(two("x"), vec![node("MatMul", &["x", "z"], &["y"])])
    });
    let refused = |reader: OnnxReader| reader.resolve(&file).expect_err("a contradiction");
    let conflict = |reader| match refused(reader) {
        OnnxError::InputConflict { conflict, .. } => conflict,
        error => panic!("{error}"),
    };
    let reader = OnnxReader::new;
    assert_eq!(conflict(reader().input("x", &[2])), InputConflict::Rank { given: 1, in_file: 2 });
    let size = InputConflict::Size { dimension: 1, given: 4, known: 3 };
    assert_eq!(conflict(reader().input("x", &[2, 4])), size);
    // Both inputs have the same name for a size.
    let size = InputConflict::Size { dimension: 0, given: 5, known: 2 };
    assert_eq!(conflict(reader().input("x", &[2, 3]).input("z", &[5, 3])), size);
    assert_eq!(conflict(reader().bind("n", 2).value("x", &[1.0])), InputConflict::Elements { given: 1 });
    let unknown = refused(reader().input("w", &[1]));
    assert_eq!(unknown.to_string(), "the model has no input \"w\": its inputs are \"x\", \"z\"");
    let row = [[1, 3]; 3].iter().fold(reader(), |reader, sizes| reader.next_input(sizes));
    assert_eq!(refused(row), OnnxError::TooManyInputs { inputs: 2 });
    // Inner sizes of the product: 3 and n.
    assert_eq!(sizes(&reader().bind("n", 3).resolve(&file).expect("a square"), "y"), [3, 3]);
    let product = refused(reader().bind("n", 2));
    assert!(
        matches!(&product, OnnxError::Contradiction { operator, .. } if operator == "MatMul"),
        "{product}"
    );
}

#[test]
fn numbers_for_internal_names_make_nothing_smaller() {
    let mut graph = computed(info("x", FLOAT, vec![symbol("n"), size(3), size(4)]));
    graph.value_info = vec![info("y", FLOAT, vec![symbol("rows"), size(4)])];
    graph.node.push(node("Custom", &["y"], &["z"]));
    graph.node[5].domain = "com.example".to_owned();
    graph.output = vec![info("z", FLOAT, vec![symbol("unknown")])];
    let file = file(graph);
    let reader = OnnxReader::new().bind("n", 100).bind("rows", 1);
    let error = reader.resolve(&file).expect_err("an operator without a rule");
    let OnnxError::UnknownSizes { values } = error else { panic!("{error}") };
    assert_eq!(values.iter().map(|unknown| &*unknown.value).collect::<Vec<_>>(), ["z"]);
    let model = reader.clone().bound("z", &[7]).resolve(&file).expect("a bound");
    assert_eq!((sizes(&model, "y"), sizes(&model, "z")), (vec![300, 4], vec![7]));
    // A bound below what follows from the inputs is refused.
    let error = reader.bound("z", &[7]).bound("y", &[299, 4]).resolve(&file).expect_err("too small");
    assert!(matches!(error, OnnxError::Contradiction { .. }), "{error}");
}

/// Operators without a rule often give integers of 64 bits: indices, token ids.
#[test]
fn bounds_of_values_without_a_type_have_memory_for_any_common_one() {
    let x = info("x", FLOAT, vec![size(4)]);
    let mut graph = graph(x, vec![node("Custom", &["x"], &["ids"]), node("Relu", &["ids"], &["y"])]);
    graph.node[0].domain = "com.example".to_owned();
    let resolved = |graph| OnnxReader::new().bound("ids", &[4, 8]).resolve(&file(graph)).expect("a bound");
    assert_eq!(peak(&resolved(graph.clone())), 4 * 8 * 8);
    // What the file says of the type counts.
    let tensor_type = Some(TensorTypeProto { elem_type: FLOAT, shape: None });
    let r#type = Some(TypeProto { tensor_type, ..TypeProto::default() });
    graph.value_info = vec![ValueInfoProto { name: "ids".to_owned(), r#type }];
    assert_eq!(peak(&resolved(graph)), 4 * 8 * 4);
}

#[test]
fn ranges_have_memory_for_each_of_their_sizes() {
    let by_rows = file(computed(info("x", FLOAT, vec![symbol("n"), size(3), size(4)])));
    let range = OnnxReader::new().bind_range("n", 1..=8).resolve(&by_rows).expect("a range");
    let value = range.value(range.find("y").expect("y")).expect("y");
    assert_eq!((value.sizes(), value.is_bound()), (Some(&[24, 4][..]), true));
    // Inputs whose names are alike have equal sizes. Of others one may be broadcast, which is not in place.
    let sum = |first: &str, second: &str| {
        let row = |name: &str, of: &str| info(name, FLOAT, vec![symbol(of)]);
        let graph = GraphProto {
            node: vec![
                node("Exp", &["x"], &["a"]),
                node("Exp", &["z"], &["b"]),
                node("Add", &["a", "b"], &["y"]),
            ],
            input: vec![row("x", first), row("z", second)],
            output: vec![untyped("y")],
            ..GraphProto::default()
        };
        file(graph)
    };
    let of = |file: &OnnxFile, reader: OnnxReader| peak(&reader.resolve(file).expect("sizes"));
    let (alike, both, grown) = (sum("n", "n"), sum("n", "m"), sum("n + 1", "n + 1"));
    assert_eq!(of(&alike, OnnxReader::new().bind("n", 64)), 2 * 256);
    assert_eq!(of(&alike, OnnxReader::new().bind_range("n", 1..=64)), 2 * 256);
    assert_eq!(of(&grown, OnnxReader::new().bind_range("n", 0..=63)), 2 * 256);
    assert_eq!(of(&both, OnnxReader::new().bind_range("n", 1..=64).bind_range("m", 1..=64)), 3 * 256);
}

/// Rows of a batch, as exporters compute them from the shape of their input.
#[test]
fn sizes_in_two_places_are_one_size() {
    let nodes = |targets: &[&str]| {
        vec![
            node("Shape", &["x"], &["shape"]),
            node("Gather", &["shape", "first"], &["batch"]),
            node("Gather", &["shape", "second"], &["rows"]),
            node("Mul", &["batch", "rows"], &["all"]),
            with(node("Concat", targets, &["target"]), vec![int("axis", 0)]),
            node("Reshape", &["x", "all_and_rest"], &["flat"]),
            node("Reshape", &["flat", "target"], &["y"]),
        ]
    };
    let y = |targets: &[&str]| {
        let mut nodes = nodes(targets);
        let joint = with(node("Concat", &["all", "rest"], &["all_and_rest"]), vec![int("axis", 0)]);
        nodes.insert(5, joint);
        let graph = GraphProto {
            initializer: [("first", 0), ("second", 1), ("rest", -1), ("two", 2)]
                .map(|(name, number)| integers(name, &[number]))
                .to_vec(),
            ..graph(info("x", FLOAT, vec![symbol("n"), symbol("m"), size(2), size(5)]), nodes)
        };
        let reader = OnnxReader::new().bind_range("n", 1..=6).bind_range("m", 1..=40);
        sizes(&reader.resolve(&file(graph)).expect("ranges"), "y")
    };
    assert_eq!(y(&["batch", "rest"]), [6, 400]);
    assert_eq!(y(&["rest", "rows", "two"]), [30, 40, 2]);
    assert_eq!(y(&["all", "rest"]), [240, 10]);
    assert_eq!(y(&["batch", "rows", "rest"]), [6, 40, 10]);
}

/// A state that has `n` and `7 - n` numbers by turns: it has those of `z` only at first. Where one of them
/// has one number, it is broadcast, and cannot be written over.
#[test]
fn a_size_of_a_state_is_not_the_same_in_all_iterations() {
    let turn = GraphProto {
        node: vec![
            node("Exp", &["state"], &["one"]),
            node("Exp", &["z"], &["other"]),
            node("Add", &["one", "other"], &["sum"]),
            node("Shape", &["state"], &["count"]),
            node("Sub", &["seven", "count"], &["rest"]),
            node("ConstantOfShape", &["rest"], &["new"]),
            node("Identity", &["on"], &["goes_on"]),
        ],
        input: vec![untyped("number"), untyped("on"), untyped("state")],
        output: vec![untyped("goes_on"), untyped("new"), untyped("sum")],
        ..GraphProto::default()
    };
    let row = |name: &str| info(name, FLOAT, vec![symbol("n")]);
    let repeated = with(node("Loop", &["trips", "", "x"], &["y", "sums"]), vec![body("body", turn)]);
    let graph = GraphProto {
        initializer: [("trips", 5000), ("seven", 7)].map(|(name, of)| integers(name, &[of])).to_vec(),
        input: vec![row("x"), row("z")],
        ..graph(untyped("x"), vec![repeated])
    };
    let model = OnnxReader::new().bind_range("n", 1..=6).resolve(&file(graph)).expect("a range");
    let node = model.graph.given_order()[0];
    let body = &model.bodies(node)[0].model;
    assert_eq!(body.graph.in_place_sources(body.find("sum").expect("it is there")), []);
    assert_eq!((sizes(&model, "y"), sizes(body, "sum")), (vec![6], vec![6]));
}

#[test]
fn sizes_that_depend_on_data_have_a_bound() {
    let nodes = vec![
        node("NonZero", &["x"], &["places"]),
        node("Transpose", &["places"], &["rows"]),
        node("Shape", &["rows"], &["shape"]),
        node("ConstantOfShape", &["shape"], &["y"]),
    ];
    let file = file(graph(info("x", FLOAT, vec![size(6), size(5)]), nodes));
    let model = OnnxReader::new().resolve(&file).expect("bounded by the input");
    assert_eq!((sizes(&model, "places"), sizes(&model, "y")), (vec![2, 30], vec![30, 2]));
    let smaller = OnnxReader::new().bound("places", &[2, 9]).resolve(&file).expect("a smaller bound");
    assert_eq!(sizes(&smaller, "y"), [9, 2]);
    let unused = OnnxReader::new().bound("place", &[2, 9]).resolve(&file).expect("no such value");
    assert_eq!(unused.unused_bindings, ["place"]);
}

#[test]
fn elements_of_inputs_decide_sizes() {
    let graph = GraphProto {
        input: vec![info("x", FLOAT, vec![size(1), size(4)]), info("target", INT64, vec![size(2)])],
        ..graph(untyped("x"), vec![node("Expand", &["x", "target"], &["y"])])
    };
    let file = file(graph);
    let error = OnnxReader::new().resolve(&file).expect_err("any size");
    let unknown = UnknownSize {
        value: "y".to_owned(),
        node: "y".to_owned(),
        operator: "Expand".to_owned(),
        inputs: vec!["target".to_owned()],
    };
    assert_eq!(error, OnnxError::UnknownSizes { values: vec![unknown] });
    let model = OnnxReader::new().value("target", &[5.0, 4.0]).resolve(&file).expect("elements");
    assert_eq!(sizes(&model, "y"), [5, 4]);
}

/// A state that the file has is for one batch.
#[test]
fn an_initial_state_fits_its_layer() {
    let model = |batch: i64| {
        let inputs = ["x", "w", "r", "", "", "state"];
        let layer = with(node("GRU", &inputs, &["", "y"]), vec![int("hidden_size", 2)]);
        let mut graph = graph(info("x", FLOAT, vec![size(4), size(batch), size(3)]), vec![layer]);
        graph.initializer =
            vec![weight("w", &[1, 6, 3]), weight("r", &[1, 6, 2]), weight("state", &[1, 1, 2])];
        OnnxReader::new().resolve(&file(graph))
    };
    assert_eq!(sizes(&model(1).expect("one state"), "y"), [1, 1, 2]);
    let error = model(2).expect_err("two batches").to_string();
    assert!(error.contains("its initial state has other sizes"), "{error}");
}
