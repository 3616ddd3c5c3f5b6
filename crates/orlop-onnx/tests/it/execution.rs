//! The models in `testdata/onnx` as execution plans.

use super::testdata;
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_exec::{Execution, PlanBuilder};
use orlop_onnx::{OnnxBuffers, OnnxModel, OnnxReader, ValueOrigin};
use orlop_plan::{MinPeak, Planner, SearchBudget, ValueId};
use orlop_tensor::Tensor;

/// The models, with the peak that `orlop plan` states.
const MODELS: [(&str, usize); 4] = [
    ("bert_base_s128", 2_424_832),
    ("mobilenet_v3_large_b1", 4_014_080),
    ("resnet50_b8", 57_802_752),
    ("vit_b16_b4", 17_134_336),
];

fn model(name: &str) -> OnnxModel {
    OnnxReader::new().read(&testdata(&format!("onnx/{name}.onnx"))).unwrap()
}

#[test]
fn the_stated_workspace_is_the_planned_peak() {
    for (name, peak) in MODELS {
        let model = model(name);
        for order in [model.graph.given_order(), MinPeak::new().order(&model.graph)] {
            let lifetimes = model.graph.lifetimes(&order).unwrap();
            let problem = lifetimes.problem();
            let planned = Planner::new().budget(SearchBudget::short(problem.len())).plan(problem);
            assert_eq!(planned.height(), peak as u64, "{name}");

            let mut plan = PlanBuilder::new();
            let buffers = model.execution().order(order).declare(&mut plan).unwrap();
            let plan = plan.finish().unwrap();
            assert_eq!((plan.workspace_bytes(), plan.arenas().len()), (peak, 1), "{name}");
            // The buffers are those of the problem, each for the same steps.
            assert_eq!(plan.arenas()[0].problem().buffers(), problem.buffers(), "{name}");
            for value in model.graph.values() {
                let has_memory = lifetimes.buffer(value).is_some();
                assert_eq!(buffers.value(value).is_some(), has_memory, "{name}: {value:?}");
            }

            let context = Context::new();
            let execution = plan.prepare(&context).unwrap();
            assert_eq!(execution.reserved_bytes(), peak, "{name}");
            let stats = context.stats(Device::CPU);
            assert_eq!(stats.kind(MemoryKind::Workspace).requested_bytes, peak as u64, "{name}");
            assert_eq!(stats.totals.all.requested_bytes, peak as u64, "{name}");
        }
    }
}

/// Makes the execution of a model without a search for stray writes, which copies the arena.
fn prepared(model: &OnnxModel) -> (Execution, OnnxBuffers) {
    let mut plan = PlanBuilder::new();
    let buffers = model.execution().declare(&mut plan).unwrap();
    let mut execution = plan.finish().unwrap().prepare(&Context::new()).unwrap();
    execution.sanitize(false).unwrap();
    (execution, buffers)
}

/// The mark of a node in its outputs.
fn mark(step: usize) -> u8 {
    u8::try_from(step % 100).unwrap() + 1
}

/// Returns the first and the last element.
fn ends(tensor: &Tensor) -> Vec<u8> {
    let row = tensor.view([-1]).unwrap();
    let end = |index| row.select(0, index).unwrap().to_dtype(DType::U8).unwrap().to_vec::<u8>().unwrap()[0];
    vec![end(0), end(-1)]
}

/// Each node finds in its inputs what their nodes wrote, and writes its outputs.
#[test]
fn nodes_read_what_others_wrote() {
    for (name, _) in &MODELS[..2] {
        let model = model(name);
        let graph = &model.graph;
        let (mut execution, buffers) = prepared(&model);
        let writer =
            |value: ValueId| graph.producer(graph.view_base(value).unwrap()).map(|node| node.index());
        let mut kept: Vec<ValueId> = Vec::new();
        for _run in 0..2 {
            execution.begin().unwrap();
            for (step, &node) in (0..).zip(buffers.order()) {
                let tensors = execution.step(step).unwrap();
                for &input in graph.inputs(node).unwrap() {
                    if let (Some(buffer), Some(writer)) = (buffers.value(input), writer(input)) {
                        let tensor = tensors.tensor(buffer).unwrap();
                        assert_eq!(ends(tensor), [mark(writer); 2], "{name}, step {step}, {input:?}");
                    }
                }
                for &output in graph.outputs(node).unwrap() {
                    let Some(buffer) = buffers.value(output) else { continue };
                    assert_eq!(buffers.get(graph.value_name(output).unwrap()), Some(buffer));
                    let tensor = tensors.tensor(buffer).unwrap();
                    let value = model.value(output).unwrap();
                    assert_eq!(value.origin(), ValueOrigin::Node);
                    assert_eq!(value.dtype(), Some(tensor.dtype()));
                    let sizes: Vec<u64> = tensor.sizes().iter().map(|&size| size as u64).collect();
                    assert_eq!(value.sizes(), Some(&sizes[..]));
                    if graph.view_base(output) == Some(output) {
                        tensor.fill_(f64::from(mark(node.index()))).unwrap();
                    }
                    kept.push(output);
                }
            }
            // Results are there after the last node.
            let last = execution.plan().steps() - 1;
            let tensors = execution.step(last).unwrap();
            kept.retain(|&value| buffers.value(value).is_some_and(|buffer| tensors.tensor(buffer).is_ok()));
            assert!(!kept.is_empty(), "{name}");
            for &value in &kept {
                let tensor = tensors.tensor(buffers.value(value).unwrap()).unwrap();
                assert_eq!(ends(tensor), [mark(writer(value).unwrap()); 2], "{name}: {value:?}");
            }
        }
    }
}

#[test]
fn weights_are_persistent_where_that_is_asked_for() {
    let (name, peak) = MODELS[1];
    let model = model(name);
    let context = Context::new();
    let mut plan = PlanBuilder::new();
    let buffers = model.execution().with_weights().declare(&mut plan).unwrap();
    let plan = plan.finish().unwrap();
    assert_eq!(plan.workspace_bytes(), peak);
    let mut execution = plan.prepare(&context).unwrap();
    execution.sanitize(false).unwrap();
    let stats = context.stats(Device::CPU);
    assert_eq!(stats.kind(MemoryKind::Workspace).requested_bytes, peak as u64);
    let persistent = stats.kind(MemoryKind::Persistent).requested_bytes;
    let weights: Vec<ValueId> = model
        .graph
        .values()
        .filter(|&value| model.value(value).unwrap().origin() == ValueOrigin::Weight)
        .collect();
    // Each begins at a multiple of 256 bytes.
    assert!(persistent >= model.weight_bytes);
    assert!(persistent < model.weight_bytes + 256 * weights.len() as u64);
    for (value, number) in weights.iter().zip(1..) {
        let tensor = execution.tensor(buffers.value(*value).unwrap()).unwrap();
        tensor.fill_(f64::from(number % 100)).unwrap();
    }
    for _run in 0..2 {
        execution.begin().unwrap();
        for (step, &node) in (0..).zip(buffers.order()) {
            let tensors = execution.step(step).unwrap();
            for buffer in
                model.graph.outputs(node).unwrap().iter().filter_map(|&output| buffers.value(output))
            {
                tensors.tensor(buffer).unwrap().fill_(101.0).unwrap();
            }
        }
    }
    for (value, number) in weights.iter().zip(1..) {
        let tensor = execution.tensor(buffers.value(*value).unwrap()).unwrap();
        assert_eq!(ends(tensor), [number % 100; 2]);
    }
}
