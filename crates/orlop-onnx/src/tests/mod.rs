//! Small models, made of messages.

mod cases;
mod control;
mod counters;
#[cfg(feature = "exec")]
mod execution;
mod hostile;
mod inference;
mod numbers;
mod operators;
mod ranges;
mod transformer;
mod windows;

use crate::proto::{
    AttributeProto, Dimension, DimensionSize, GraphProto, ModelProto, NodeProto, SparseTensorProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::{OnnxError, OnnxModel, OnnxReader, ValueOrigin};
use prost::Message;

const FLOAT: i32 = 1;

fn size(size: i64) -> Dimension {
    Dimension { size: Some(DimensionSize::Value(size)) }
}

fn symbol(name: &str) -> Dimension {
    Dimension { size: Some(DimensionSize::Symbol(name.to_owned())) }
}

fn info(name: &str, elem_type: i32, dim: Vec<Dimension>) -> ValueInfoProto {
    let tensor_type = Some(TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}

fn node(op_type: &str, input: &[&str], output: &[&str]) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    NodeProto {
        input: names(input),
        output: names(output),
        op_type: op_type.to_owned(),
        ..NodeProto::default()
    }
}

fn weight(name: &str, dims: &[i64]) -> TensorProto {
    TensorProto { dims: dims.to_vec(), data_type: FLOAT, name: name.to_owned(), ..TensorProto::default() }
}

/// Reads a graph whose values all have 512 bytes, and whose input is `x`.
fn read(node: Vec<NodeProto>, output: &str) -> Result<OnnxModel, OnnxError> {
    let names = node.iter().flat_map(|node| node.output.clone()).filter(|name| !name.is_empty());
    let value_info = names.map(|name| info(&name, FLOAT, vec![size(128)])).collect();
    let (input, output) =
        (vec![info("x", FLOAT, vec![size(128)])], vec![info(output, FLOAT, vec![size(128)])]);
    read_graph(GraphProto { node, input, output, value_info, ..GraphProto::default() })
}

fn read_graph(graph: GraphProto) -> Result<OnnxModel, OnnxError> {
    OnnxReader::new()
        .bind("batch", 8)
        .read(&ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec())
}

fn peak(model: &OnnxModel) -> u64 {
    let order = model.graph.given_order();
    model.graph.lifetimes(&order).expect("an order").problem().lower_bound()
}

#[test]
fn views_and_in_place_operators_need_no_memory() {
    let chain = |second: &str| {
        peak(&read(vec![node("Kernel", &["x"], &["a"]), node(second, &["a"], &["b"])], "b").expect(second))
    };
    assert_eq!(["Reshape", "Identity", "Relu", "Add"].map(chain), [512; 4]);
    assert_eq!(["MatMul", "Transpose", "Unknown"].map(chain), [1024; 3]);
    let mut custom = node("Relu", &["a"], &["b"]);
    custom.domain = "com.example".to_owned();
    let model = read(vec![node("Kernel", &["x"], &["a"]), custom], "b").expect("a custom operator");
    assert_eq!(peak(&model), 1024);
    // The input is the caller's: it is not overwritten.
    assert_eq!(peak(&read(vec![node("Relu", &["x"], &["a"])], "a").expect("one node")), 512);
    assert_eq!(peak(&read(vec![node("Reshape", &["x"], &["a"])], "a").expect("one node")), 0);
}

/// Packed elements of one operand may begin within the last byte of the operand before.
#[test]
fn packed_elements_are_in_place_from_byte_to_byte() {
    let parts = |data_type: i32, sizes: [i64; 2], operator: &str| {
        let whole = "whole";
        let halves = ["left", "right"];
        let nodes = match operator {
            "Concat" => [node("Kernel", &["x"], &halves), node("Concat", &halves, &[whole])],
            _ => [node("Kernel", &["x"], &[whole]), node("Split", &[whole], &halves)],
        };
        let [mut kernel, mut joint] = nodes;
        joint.attribute.push(AttributeProto { name: "axis".to_owned(), i: Some(0), ..Default::default() });
        if operator == "Split" {
            let split =
                AttributeProto { name: "split".to_owned(), ints: sizes.to_vec(), ..Default::default() };
            joint.attribute.push(split);
        }
        kernel.domain = "com.example".to_owned();
        let sizes = [("left", sizes[0]), ("right", sizes[1]), (whole, sizes[0] + sizes[1])];
        let model = read_graph(GraphProto {
            node: vec![kernel, joint, node("Kernel", &["left", "right", "whole"], &["y"])],
            input: vec![info("x", FLOAT, vec![size(1)])],
            output: vec![info("y", FLOAT, vec![size(1)])],
            value_info: sizes.map(|(name, of)| info(name, data_type, vec![size(of)])).to_vec(),
            ..GraphProto::default()
        });
        let graph = model.expect("a model").graph;
        let node = graph.given_order()[1];
        graph.parts(node).count()
    };
    for operator in ["Concat", "Split"] {
        for (data_type, odd, even) in [(22, 511, 512), (25, 509, 512), (27, 510, 512)] {
            assert_eq!(parts(data_type, [odd, even], operator), 0, "{operator} of {data_type}");
            assert_eq!(parts(data_type, [even, even], operator), 2, "{operator} of {data_type}");
            assert_eq!(parts(data_type, [even, odd], operator), 2, "{operator} of {data_type}");
        }
    }
}

#[test]
fn nodes_may_be_in_any_order() {
    let nodes =
        vec![node("Kernel", &["b"], &["c"]), node("Kernel", &["a"], &["b"]), node("Kernel", &["x"], &["a"])];
    let model = read(nodes, "c").expect("no circle");
    let names: Vec<_> =
        model.graph.given_order().into_iter().map(|node| model.graph.node_name(node)).collect();
    assert_eq!(names, [Some("a"), Some("b"), Some("c")]);
}

#[test]
fn constants_are_weights_and_optional_values_are_left_out() {
    let nodes = vec![
        node("Constant", &[], &["k"]),
        node("LayerNormalization", &["x", "", "k"], &["y", "", "unread"]),
    ];
    let model = read(nodes, "y").expect("a model");
    assert_eq!((model.weight_bytes, model.value_bytes, peak(&model)), (512, 516, 516));
    assert_eq!(model.unused_bindings, ["batch"]);
    // Another domain's operator may be anything.
    let mut custom = node("Constant", &[], &["k"]);
    custom.domain = "com.example".to_owned();
    let model = read(vec![custom, node("Kernel", &["x", "k"], &["y"])], "y").expect("a model");
    assert_eq!((model.weight_bytes, model.value_bytes, peak(&model)), (0, 1024, 1024));
}

#[test]
fn constants_have_the_size_of_their_contents() {
    let mut constant = node("Constant", &[], &["k"]);
    constant.attribute.push(AttributeProto {
        name: "value".to_owned(),
        t: Some(weight("", &[2, 3])),
        ..AttributeProto::default()
    });
    let model = read_graph(GraphProto {
        node: vec![constant, node("Reshape", &["k", "x"], &["view"]), node("Kernel", &["view"], &["y"])],
        input: vec![info("x", FLOAT, vec![size(1)])],
        output: vec![info("y", FLOAT, vec![size(1)])],
        value_info: vec![info("view", FLOAT, vec![size(6)])],
        ..GraphProto::default()
    })
    .expect("a model");
    let constant = model.value(model.find("k").expect("k")).expect("k");
    assert_eq!((constant.sizes(), model.weight_bytes, model.value_bytes), (Some(&[2, 3][..]), 24, 4));
}

#[test]
fn values_say_where_they_come_from() {
    let sparse = SparseTensorProto { values: Some(weight("s", &[2])), dims: vec![4] };
    let graph = GraphProto {
        node: vec![node("Constant", &[], &["k"]), node("Kernel", &["x", "w", "s", "k"], &["y"])],
        initializer: vec![weight("w", &[3, 5])],
        sparse_initializer: vec![sparse],
        input: vec![info("x", FLOAT, vec![symbol("batch")]), info("w", FLOAT, vec![])],
        output: vec![info("y", FLOAT, vec![size(1)])],
        ..GraphProto::default()
    };
    let model = read_graph(graph.clone()).expect("a model");
    let found = |name| model.value(model.find(name).expect(name)).expect(name);
    use ValueOrigin::{Input, Node, SparseWeight, Weight};
    assert_eq!(
        ["x", "w", "s", "k", "y"].map(|name| found(name).origin()),
        [Input, Weight, SparseWeight, Weight, Node]
    );
    assert_eq!(["x", "w"].map(|name| found(name).sizes()), [Some(&[8][..]), Some(&[3, 5])]);
    assert_eq!((found("k").sizes(), found("k").data_type(), model.find("z")), (None, None, None));
    let twice = GraphProto { initializer: vec![weight("s", &[1])], ..graph };
    assert_eq!(read_graph(twice).unwrap_err(), OnnxError::WrittenTwice { value: "s".to_owned() });
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let with = |change: &dyn Fn(&mut GraphProto)| {
        let mut graph = GraphProto {
            node: vec![node("Kernel", &["x"], &["y"])],
            input: vec![info("x", FLOAT, vec![size(1)])],
            output: vec![info("y", FLOAT, vec![size(1)])],
            ..GraphProto::default()
        };
        change(&mut graph);
        read_graph(graph).map(|model| model.value_bytes)
    };
    let y = || "y".to_owned();
    assert_eq!(with(&|_| {}), Ok(4));
    let refused = |change: &dyn Fn(&mut GraphProto)| with(change).unwrap_err();
    let shape = |dims: &[i64]| {
        let dims = dims.iter().map(|&dim| size(dim)).collect::<Vec<_>>();
        move |graph: &mut GraphProto| graph.output = vec![info("y", FLOAT, dims.clone())]
    };
    for open in [&[2, -1][..], &[i64::MAX, 3]] {
        let refused = refused(&shape(open));
        assert!(
            matches!(&refused, OnnxError::UnknownSizes { values } if values[0].value == "y"),
            "{refused}"
        );
    }
    assert_eq!(refused(&shape(&[1 << 62, 8])), OnnxError::InvalidSize { value: y() });
    assert_eq!(with(&shape(&[1 << 62, 0, 1 << 62])), Ok(0));
    assert_eq!(
        [22, 25].map(|packed| with(&|graph| graph.output = vec![info("y", packed, vec![size(5)])])),
        [Ok(3), Ok(2)],
        "elements of four and of two bits are packed"
    );
    assert_eq!(
        refused(&|graph| graph.node.push(node("Kernel", &["z"], &["w"]))),
        OnnxError::MissingValue { node: "w".to_owned(), value: "z".to_owned() }
    );
    assert_eq!(
        refused(&|graph| graph.node.push(node("Kernel", &["x"], &["y"]))),
        OnnxError::WrittenTwice { value: y() }
    );
    assert_eq!(refused(&|graph| graph.node[0].input.push("y".to_owned())), OnnxError::Circle { node: y() });
    // The node before the circle in the file only reads what is in it.
    let circle = refused(&|graph| {
        let nodes = [("b", "d"), ("b", "a"), ("a", "b")];
        graph.node.splice(..0, nodes.map(|(input, output)| node("Kernel", &[input], &[output])));
    });
    assert_eq!(circle, OnnxError::Circle { node: "b".to_owned() });
    assert!(matches!(
        refused(&|graph| graph.output.push(info("z", FLOAT, vec![]))),
        OnnxError::MissingOutput { value } if value == "z"
    ));
}

/// A model with a value `s` of another kind, and its node `y`.
fn with_value(s: ValueInfoProto, change: &dyn Fn(&mut GraphProto)) -> Result<OnnxModel, OnnxError> {
    let mut graph = GraphProto {
        node: vec![node("Kernel", &["x", "s"], &["y"])],
        input: vec![info("x", FLOAT, vec![size(1)])],
        output: vec![info("y", FLOAT, vec![size(1)])],
        value_info: vec![s],
        ..GraphProto::default()
    };
    change(&mut graph);
    read_graph(graph)
}

#[test]
fn values_that_are_in_no_plan_are_counted() {
    let sequence = || ValueInfoProto { name: "s".to_owned(), r#type: Some(TypeProto::default()) };
    let strings = || info("s", 8, vec![size(2)]);
    let found = |model: OnnxModel| {
        let value = model.value(model.find("s").expect("s")).expect("s").clone();
        (value.origin(), value.data_type(), value.sizes().map(<[u64]>::len), model.weight_bytes)
    };
    for (s, number, rank) in [(sequence(), None, None), (strings(), Some(8), Some(1))] {
        let model = with_value(s.clone(), &|graph| graph.input.push(s.clone())).expect("an input");
        assert_eq!(found(model), (ValueOrigin::Input, number, rank, 0));
        let model = with_value(s, &|graph| graph.node.push(node("Make", &["x"], &["s"]))).expect("apart");
        assert_eq!(found(model.clone()), (ValueOrigin::Node, number, rank, 0));
        assert_eq!((model.unplanned_values, model.value_bytes), (1, 4));
    }
    let weight = TensorProto { data_type: 8, ..weight("s", &[2]) };
    let model = with_value(strings(), &|graph| graph.initializer.push(weight.clone())).expect("a weight");
    assert_eq!(found(model), (ValueOrigin::Weight, Some(8), Some(1), 0));
    let constant = node("Constant", &[], &["s"]);
    let model = with_value(strings(), &|graph| graph.node.push(constant.clone())).expect("a constant");
    assert_eq!(found(model), (ValueOrigin::Weight, Some(8), Some(1), 0));
}

#[test]
fn the_most_exact_of_several_shapes_counts() {
    let untyped = |name: &str| ValueInfoProto { name: name.to_owned(), r#type: None };
    let exact = || info("y", FLOAT, vec![size(6)]);
    let inexact = [
        untyped("y"),
        info("y", 0, vec![size(6)]),
        info("y", FLOAT, vec![symbol("n")]),
        info("y", FLOAT, vec![Dimension { size: None }]),
    ];
    for other in inexact {
        for (value_info, output) in [(other.clone(), exact()), (exact(), other.clone())] {
            let model = read_graph(GraphProto {
                node: vec![node("Kernel", &["x"], &["y"])],
                input: vec![info("x", FLOAT, vec![size(1)])],
                output: vec![output],
                value_info: vec![value_info],
                ..GraphProto::default()
            });
            assert_eq!(model.map(|model| model.value_bytes), Ok(24), "{other:?}");
        }
    }
}

#[test]
fn elements_of_less_than_a_byte_are_packed() {
    let bytes = |elem_type: i32| {
        let y = || vec![info("y", elem_type, vec![size(5), size(3)])];
        with_value(info("s", FLOAT, vec![]), &|graph| {
            graph.input.push(info("s", FLOAT, vec![]));
            graph.output = y();
        })
        .map(|model| model.value_bytes)
    };
    // UINT2, INT4, FLOAT4E2M1, FLOAT6E2M3, FLOAT6E3M2, FLOAT8E8M0.
    assert_eq!([25, 22, 23, 27, 28, 24].map(bytes), [4, 8, 8, 12, 12, 15].map(Ok));
    assert!(matches!(bytes(0), Err(OnnxError::UnknownSizes { values }) if values[0].value == "y"));
    let unknown = bytes(99).unwrap_err();
    assert_eq!(unknown.to_string(), "the value \"y\" has elements of an unknown type (ONNX's number 99)");
}

#[test]
fn errors_name_values_that_are_too_large() {
    let large = |name| info(name, FLOAT, vec![size(1 << 61)]);
    let refused = read_graph(GraphProto {
        node: vec![node("Kernel", &["x"], &["a"]), node("Kernel", &["a"], &["b"])],
        input: vec![info("x", FLOAT, vec![size(1)])],
        output: vec![large("b")],
        value_info: vec![large("a")],
        ..GraphProto::default()
    });
    assert_eq!(refused.unwrap_err(), OnnxError::TotalOverflow { value: "b".to_owned() });
}
