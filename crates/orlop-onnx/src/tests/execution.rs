//! Small models as execution plans.

use super::*;
use crate::{OnnxBuffers, OnnxExecError};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_exec::{BufferId, ExecError, Execution, ExecutionPlan, PlanBuilder};

const INT64: i32 = 7;
const BOOL: i32 = 9;
const FLOAT8E4M3FNUZ: i32 = 18;
const INT4: i32 = 22;

/// Declares all values of a model, weights among them.
fn declare(model: &OnnxModel) -> Result<(ExecutionPlan, OnnxBuffers), OnnxExecError> {
    let mut plan = PlanBuilder::new();
    let buffers = model.execution().with_weights().declare(&mut plan)?;
    Ok((plan.finish()?, buffers))
}

fn prepared(model: &OnnxModel) -> (Execution, impl Fn(&str) -> BufferId) {
    let (plan, buffers) = declare(model).expect("a plan");
    let execution = plan.prepare(&Context::new()).expect("memory");
    (execution, move |name: &str| buffers.get(name).unwrap_or_else(|| panic!("no buffer of {name}")))
}

/// A chain of two nodes: `x` with the sizes of `y`, `a` of this type and these sizes, and `y`.
fn chain(second: &str, a: (i32, &[i64]), y: (i32, &[i64])) -> OnnxModel {
    let sizes = |sizes: &[i64]| sizes.iter().map(|&dim| size(dim)).collect::<Vec<_>>();
    read_graph(GraphProto {
        node: vec![node("Kernel", &["x"], &["a"]), node(second, &["a", "x"], &["y"])],
        input: vec![info("x", FLOAT, sizes(y.1))],
        output: vec![info("y", y.0, sizes(y.1))],
        value_info: vec![info("a", a.0, sizes(a.1))],
        ..GraphProto::default()
    })
    .expect("a model")
}

#[test]
fn elements_without_a_dtype_are_bytes() {
    let model = chain("Kernel", (INT4, &[5, 3]), (FLOAT8E4M3FNUZ, &[2, 3]));
    let value = |name| model.value(model.find(name).expect(name)).expect(name);
    assert_eq!(
        (value("a").sizes(), value("a").data_type(), value("a").dtype()),
        (Some(&[5, 3][..]), Some(INT4), None)
    );
    let (mut execution, id) = prepared(&model);
    let step = execution.step(0).expect("a step");
    let packed = step.tensor(id("a")).expect("live");
    assert_eq!((packed.sizes(), packed.dtype()), (&[8][..], DType::U8));
    let step = execution.step(1).expect("a step");
    let other = step.tensor(id("y")).expect("live");
    assert_eq!((other.sizes(), other.dtype()), (&[6][..], DType::U8));
}

#[test]
fn scalars_and_empty_values_have_buffers() {
    let model = chain("Kernel", (BOOL, &[]), (INT64, &[7, 0]));
    let (mut execution, id) = prepared(&model);
    let step = execution.step(1).expect("a step");
    let (scalar, empty) = (step.tensor(id("a")).expect("live"), step.tensor(id("y")).expect("live"));
    assert_eq!((scalar.numel(), scalar.dtype(), empty.sizes()), (1, DType::Bool, &[7, 0][..]));
}

/// `a` and `y` need 256 bytes each by their alignment: that alone makes neither a place for the other.
#[test]
fn only_inputs_with_the_same_elements_are_written_over() {
    let shares = |second: &str, a: (i32, &[i64]), y: (i32, &[i64])| {
        let model = chain(second, a, y);
        let (plan, buffers) = declare(&model).expect("a plan");
        let place = |name| plan.place(buffers.get(name).expect(name)).expect(name).1;
        place("a").start == place("y").start
    };
    assert!(shares("Add", (FLOAT, &[6]), (FLOAT, &[6])));
    assert!(shares("Cast", (FLOAT, &[6]), (6, &[6])), "ints are as large");
    assert!(shares("Reshape", (FLOAT, &[6]), (FLOAT, &[2, 3])));
    assert!(!shares("Add", (FLOAT, &[1]), (FLOAT, &[6])), "a scalar is read for each element");
    assert!(!shares("Where", (BOOL, &[6]), (FLOAT, &[6])));
    assert!(!shares("Cast", (FLOAT, &[6]), (INT64, &[6])));
    assert!(!shares("Cast", (INT64, &[6]), (FLOAT, &[12])), "as many bytes, for other elements");
    assert!(!shares("Reshape", (FLOAT, &[6]), (INT64, &[3])), "no view has another type");
}

#[test]
fn weights_have_buffers_and_their_views_are_in_them() {
    let nodes = vec![node("Reshape", &["w", "shape"], &["view"]), node("Kernel", &["x", "view"], &["y"])];
    let model = read_graph(GraphProto {
        node: nodes,
        initializer: vec![weight("w", &[4, 2]), TensorProto { data_type: INT64, ..weight("shape", &[1]) }],
        input: vec![info("x", FLOAT, vec![size(8)]), info("w", FLOAT, vec![size(8)])],
        output: vec![info("y", FLOAT, vec![symbol("batch")]), info("view", FLOAT, vec![size(8)])],
        ..GraphProto::default()
    })
    .expect("a model");
    let (mut execution, id) = prepared(&model);
    let kind = |name| execution.plan().place(id(name)).map(|(arena, _)| arena.memory_kind());
    assert_eq!(
        ["w", "shape", "view", "y"].map(kind),
        [MemoryKind::Persistent, MemoryKind::Persistent, MemoryKind::Persistent, MemoryKind::Workspace]
            .map(Some)
    );
    execution.tensor(id("w")).expect("persistent").fill_(3.0).expect("a float");
    let step = execution.step(1).expect("a step");
    assert_eq!(step.tensor(id("view")).expect("live").to_vec::<f32>().expect("floats"), [3.0; 8]);

    // Without them, values that only weights and inputs have bytes for have no buffer.
    let mut plan = PlanBuilder::new();
    let buffers = model.execution().declare(&mut plan).expect("buffers");
    assert_eq!(["x", "w", "shape", "view", "z"].map(|name| buffers.get(name)), [None; 5]);
    assert!(buffers.get("y").is_some());
    assert_eq!(plan.finish().expect("a plan").workspace_bytes(), 32);
}

#[test]
fn sparse_weights_stay_with_the_caller() {
    let model = read_graph(GraphProto {
        node: vec![node("Kernel", &["x", "w"], &["y"])],
        sparse_initializer: vec![SparseTensorProto { values: Some(weight("w", &[3])), dims: vec![4] }],
        input: vec![info("x", FLOAT, vec![size(8)])],
        output: vec![info("y", FLOAT, vec![size(8)])],
        ..GraphProto::default()
    })
    .expect("a model");
    let weight = model.find("w").expect("a weight");
    assert_eq!(model.value(weight).expect("a weight").origin(), ValueOrigin::SparseWeight);
    assert_eq!(declare(&model).expect("a plan").1.value(weight), None);
}

#[test]
fn strings_stay_with_the_caller() {
    let model = read_graph(GraphProto {
        node: vec![node("Kernel", &["x", "w"], &["y"])],
        initializer: vec![TensorProto { data_type: 8, ..weight("w", &[3]) }],
        input: vec![info("x", FLOAT, vec![size(8)])],
        output: vec![info("y", FLOAT, vec![size(8)])],
        ..GraphProto::default()
    })
    .expect("a model");
    assert_eq!(declare(&model).expect("a plan").1.get("w"), None);
}

#[test]
fn buffers_are_on_the_device_that_is_given() {
    let model = chain("Kernel", (FLOAT, &[4]), (FLOAT, &[4]));
    let mut plan = PlanBuilder::new();
    model.execution().device(Device::cuda(1)).with_weights().declare(&mut plan).expect("buffers");
    let plan = plan.finish().expect("a plan");
    assert!(plan.arenas().iter().all(|arena| arena.device() == Device::cuda(1)));
}

#[test]
fn nodes_with_bodies_have_a_workspace() {
    let body = GraphProto {
        node: vec![node("Exp", &["x"], &["result"])],
        output: vec![ValueInfoProto { name: "result".to_owned(), r#type: None }],
        ..GraphProto::default()
    };
    let branch = |name: &str| AttributeProto {
        name: name.to_owned(),
        g: Some(body.clone()),
        ..AttributeProto::default()
    };
    let mut choice = node("If", &["c"], &["y"]);
    choice.attribute = vec![branch("then_branch"), branch("else_branch")];
    let model = read_graph(GraphProto {
        node: vec![choice],
        input: vec![info("x", FLOAT, vec![size(100)]), info("c", BOOL, vec![])],
        output: vec![info("y", FLOAT, vec![size(100)])],
        ..GraphProto::default()
    })
    .expect("a model");
    let (plan, buffers) = declare(&model).expect("a plan");
    let node = buffers.order()[0];
    let workspace = buffers.workspace(node).expect("for the branches");
    let (arena, _) = plan.place(workspace).expect("planned");
    assert_eq!(arena.memory_kind(), MemoryKind::Workspace);
    assert_eq!(plan.workspace_bytes(), 512 + 400);
}

#[test]
fn what_has_no_place_is_named() {
    // A constant without a shape: nothing but a buffer needs it.
    let constant = read_graph(GraphProto {
        node: vec![node("Constant", &[], &["k"]), node("Kernel", &["x", "k"], &["y"])],
        input: vec![info("x", FLOAT, vec![size(1)])],
        output: vec![info("y", FLOAT, vec![size(1)])],
        ..GraphProto::default()
    })
    .expect("a model");
    assert_eq!(constant.value(constant.find("k").expect("a constant")).expect("a constant").sizes(), None);
    let error = declare(&constant).expect_err("no shape");
    assert_eq!(error.to_string(), "the file does not say which shape these have: \"k\"");
    constant.execution().declare(&mut PlanBuilder::new()).expect("the constant is the caller's");

    let large = chain("Kernel", (FLOAT, &[1 << 61]), (FLOAT, &[1]));
    let error = declare(&large).expect_err("2^63 bytes");
    assert!(matches!(&error, OnnxExecError::Size { value, .. } if value == "a"), "{error}");

    let foreign = chain("Kernel", (FLOAT, &[1]), (FLOAT, &[1])).graph.given_order();
    let error = constant.execution().order(foreign).declare(&mut PlanBuilder::new()).expect_err("two nodes");
    assert!(matches!(error, OnnxExecError::Exec(ExecError::Graph(_))), "{error}");

    // Nothing has this much memory: the plan exists, and its memory does not.
    let (plan, _) = declare(&chain("Kernel", (FLOAT, &[1 << 50]), (FLOAT, &[1]))).expect("a plan");
    assert!(matches!(plan.prepare(&Context::new()), Err(ExecError::Alloc(_))));
}
