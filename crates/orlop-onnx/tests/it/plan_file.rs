//! Plans as files, checked against their models.

use super::testdata;
use orlop_onnx::{GraphPlan, ModelPlan, ModelPlanError, OnnxFile, OnnxReader};
use orlop_plan::{MinPeak, Planner};
use serde_json::Value;

const SILERO: &str = "onnx-wild/silero_vad__silero_vad_16k_op15.onnx";

fn silero() -> (OnnxFile, ModelPlan) {
    let file = OnnxFile::decode(testdata(SILERO)).unwrap();
    let reader = OnnxReader::new().bind("batch", 1).bind("sequence", 512).value("sr", &[16000.0]);
    let model = reader.resolve(&file).unwrap();
    let order = model.graph.given_order();
    let lifetimes = model.graph.lifetimes(&order).unwrap();
    let plan = Planner::new().plan(lifetimes.problem());
    (file, ModelPlan::new(&model, &order, &lifetimes, &plan))
}

#[test]
fn plans_of_all_models_are_right() {
    for name in
        ["onnx/bert_base_s128.onnx", "onnx/mobilenet_v3_large_b1.onnx", "onnx-wild/basic_pitch__nmp.onnx"]
    {
        let file = OnnxFile::decode(testdata(name)).unwrap();
        let model = OnnxReader::new().bind("unk__749", 1).resolve(&file).unwrap();
        for order in [model.graph.given_order(), MinPeak::new().order(&model.graph)] {
            let lifetimes = model.graph.lifetimes(&order).unwrap();
            let plan = Planner::new().plan(lifetimes.problem());
            let plan = ModelPlan::new(&model, &order, &lifetimes, &plan);
            let text = serde_json::to_string(&plan).unwrap();
            let read: ModelPlan = serde_json::from_str(&text).unwrap();
            assert_eq!(read, plan, "{name}");
            read.check(&file).unwrap();
        }
    }
}

#[test]
fn bodies_and_their_workspace_are_in_the_plan() {
    let (file, plan) = silero();
    plan.check(&file).unwrap();
    let branches: Vec<_> = plan.graph.nodes.iter().filter(|node| !node.bodies.is_empty()).collect();
    assert!(!branches.is_empty());
    for node in branches {
        let workspace = node.workspace.map_or(0, |workspace| workspace.bytes);
        assert!(node.bodies.iter().all(|body| body.graph.peak <= workspace), "{}", node.name);
        assert!(node.bodies.iter().any(|body| body.graph.peak == workspace), "{}", node.name);
    }
}

/// Returns the first tensor that a check holds for.
fn find(graph: &GraphPlan, check: impl Fn(&orlop_onnx::TensorPlan) -> bool) -> usize {
    graph.tensors.iter().position(check).unwrap()
}

/// Changes the first tensor that a node has in place as a part of another one, in the graph that a node
/// executes.
fn change_part(plan: &mut GraphPlan, change: impl Fn(&mut orlop_onnx::TensorPlan)) {
    let bodies = plan.nodes.iter_mut().flat_map(|node| &mut node.bodies);
    let mut tensors = bodies.flat_map(|body| &mut body.graph.tensors);
    change(tensors.find(|tensor| tensor.part_of.is_some()).unwrap());
}

#[test]
fn wrong_parts_are_found() {
    let (file, good) = silero();
    let wrong = |change: &dyn Fn(&mut orlop_onnx::TensorPlan)| {
        let mut plan = good.clone();
        change_part(&mut plan.graph, change);
        plan.check(&file).unwrap_err()
    };
    let clash = wrong(&|tensor| tensor.part_of = None);
    assert!(matches!(clash, ModelPlanError::Clash { .. } | ModelPlanError::Lost { .. }), "{clash}");
    let errors = [
        wrong(&|tensor| tensor.part_of = Some(tensor.name.clone())),
        wrong(&|tensor| tensor.part_of = Some("absent".to_owned())),
        wrong(&|tensor| tensor.offset = tensor.offset.map(|offset| offset + 256)),
    ];
    for error in errors {
        assert!(matches!(error, ModelPlanError::Place { .. }), "{error}");
    }
}

#[test]
fn what_is_wrong_is_found() {
    let (file, good) = silero();
    let wrong = |change: &dyn Fn(&mut GraphPlan)| {
        let mut plan = good.clone();
        change(&mut plan.graph);
        plan.check(&file).unwrap_err()
    };
    let placed =
        find(&good.graph, |tensor| tensor.offset == Some(0) && tensor.view_of.is_none() && tensor.bytes > 0);
    let in_place = find(&good.graph, |tensor| tensor.in_place_of.is_some());
    let view = find(&good.graph, |tensor| tensor.view_of.is_some() && tensor.offset.is_some());
    assert!(matches!(wrong(&|graph| graph.tensors[placed].bytes += 1), ModelPlanError::Differs { .. }));
    assert!(matches!(wrong(&|graph| graph.tensors[placed].end += 1), ModelPlanError::Place { .. }));
    assert!(matches!(wrong(&|graph| graph.tensors[placed].offset = Some(1)), ModelPlanError::Place { .. }));
    assert!(matches!(wrong(&|graph| graph.tensors[placed].offset = None), ModelPlanError::Place { .. }));
    assert!(matches!(
        wrong(&|graph| graph.tensors[placed].offset = Some(1 << 40)),
        ModelPlanError::Place { .. }
    ));
    assert!(matches!(
        wrong(&|graph| graph.tensors[view].offset = Some(1 << 20)),
        ModelPlanError::Place { .. }
    ));
    assert!(matches!(wrong(&|graph| graph.tensors[view].view_of = None), ModelPlanError::Differs { .. }));
    assert!(matches!(
        wrong(&|graph| graph.tensors[in_place].in_place_of = None),
        ModelPlanError::Clash { .. }
    ));
    assert!(matches!(
        wrong(&|graph| graph.nodes.swap(0, 1)),
        ModelPlanError::Place { .. } | ModelPlanError::Lost { .. }
    ));
    assert!(matches!(
        wrong(&|graph| graph.nodes[1] = graph.nodes[0].clone()),
        ModelPlanError::Differs { .. }
    ));
    assert!(matches!(wrong(&|graph| graph.outputs.clear()), ModelPlanError::Differs { .. }));
    assert!(matches!(wrong(&|graph| graph.peak -= 1), ModelPlanError::Place { .. }));
    let body = |graph: &mut GraphPlan| {
        let bodies = graph.nodes.iter_mut().flat_map(|node| &mut node.bodies);
        let largest = bodies.max_by_key(|body| body.graph.peak).unwrap();
        for tensor in &mut largest.graph.tensors {
            // All of the body's values at its start.
            tensor.offset = tensor.offset.map(|_| 0);
            tensor.part_of = None;
        }
    };
    let clash = wrong(&body);
    assert!(matches!(clash, ModelPlanError::Clash { .. } | ModelPlanError::Lost { .. }), "{clash}");

    let workspace = good.graph.nodes.iter().position(|node| node.workspace.is_some()).unwrap();
    let other = good.graph.tensors[placed].buffer;
    let unshared = find(&good.graph, |tensor| {
        tensor.buffer.is_some() && tensor.buffer != other && tensor.view_of.is_none()
    });
    for alignment in [0, 1, 2, 192] {
        let error = wrong(&|graph| graph.alignment = alignment);
        assert!(matches!(error, ModelPlanError::Differs { .. } | ModelPlanError::Place { .. }), "{error}");
    }
    assert!(matches!(
        wrong(&|graph| graph.nodes[workspace].bodies[0].graph.alignment *= 2),
        ModelPlanError::Differs { .. }
    ));
    for buffer in [None, Some(usize::MAX), other] {
        let changed = [in_place, view, unshared];
        for tensor in changed.into_iter().filter(|&tensor| good.graph.tensors[tensor].buffer != buffer) {
            let error = wrong(&|graph| graph.tensors[tensor].buffer = buffer);
            assert!(
                matches!(error, ModelPlanError::Differs { .. } | ModelPlanError::Place { .. }),
                "{error}"
            );
        }
    }
    assert!(matches!(
        wrong(&|graph| graph.nodes[workspace].workspace.as_mut().unwrap().buffer = other.unwrap()),
        ModelPlanError::Place { .. }
    ));

    // A plan for other sizes is none of this file's plans with these.
    let mut other = good.clone();
    other.given.symbols.insert("sequence".to_owned(), [1024, 1024]);
    assert!(other.check(&file).is_err());
}

/// Every two tensors that share bytes while both are needed are found, wherever one is moved.
#[test]
fn a_moved_tensor_is_always_found() {
    let (file, good) = silero();
    let text = serde_json::to_value(&good).unwrap();
    let bases = |tensor: &Value| {
        tensor["offset"].is_u64() && tensor.get("view_of").is_none() && tensor["bytes"].as_u64() > Some(0)
    };
    let tensors = text["tensors"].as_array().unwrap();
    let movable: Vec<usize> = (0..tensors.len()).filter(|&index| bases(&tensors[index])).collect();
    for &index in movable.iter().step_by(3) {
        for &onto in movable.iter().step_by(5) {
            let (one, other) = (&good.graph.tensors[index], &good.graph.tensors[onto]);
            let overlap = one.start.max(other.start) < one.end.min(other.end);
            if index == onto || !overlap || one.offset == other.offset || one.bytes.min(other.bytes) == 0 {
                continue;
            }
            let mut plan = good.clone();
            let target = plan.graph.tensors[onto].offset;
            plan.graph.tensors[index].offset = target;
            // Its views move with it.
            let name = plan.graph.tensors[index].name.clone();
            for tensor in &mut plan.graph.tensors {
                if tensor.view_of.as_deref() == Some(&name) {
                    tensor.offset = target;
                }
            }
            assert!(plan.check(&file).is_err(), "{name} onto {}", good.graph.tensors[onto].name);
        }
    }
}
