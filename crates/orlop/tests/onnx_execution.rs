//! From the file of a model to runs that allocate nothing, by the names of the file.
#![cfg(not(any(miri, loom)))]

use flate2::read::GzDecoder;
use orlop::exec::{ExecError, Execution, PlanBuilder};
use orlop::memory::bare::GlobalAllocator;
use orlop::onnx::OnnxReader;
use orlop::prelude::*;
use std::io::Read as _;

/// Counts what is allocated.
#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

const FILE: &[u8] = include_bytes!("../../../testdata/onnx/mobilenet_v3_large_b1.onnx.gz");

#[test]
fn a_model_runs_in_its_planned_memory() {
    let mut file = Vec::new();
    GzDecoder::new(FILE).read_to_end(&mut file).unwrap();
    let model = OnnxReader::new().read(&file).unwrap();
    let context = Context::new();
    let mut plan = PlanBuilder::new();
    let buffers = model.execution().declare(&mut plan).unwrap();
    let plan = plan.finish().unwrap();
    let mut execution = plan.prepare(&context).unwrap();
    // It would compare the whole arena in each step.
    execution.sanitize(false).unwrap();

    // An engine looks up names once: which of its values a step writes.
    let names =
        |node| model.graph.outputs(node).unwrap().iter().map(|&output| model.graph.value_name(output));
    let steps: Vec<Vec<&str>> =
        buffers.order().iter().map(|&node| names(node).map(Option::unwrap).collect()).collect();
    let result = steps.last().unwrap()[0];
    let last = steps.len() as u64;
    let run = |execution: &mut Execution, value: f64| {
        execution.begin()?;
        for (step, names) in (0..).zip(&steps) {
            let tensors = execution.step(step)?;
            for &name in names {
                // Views of what the caller has get no buffer.
                if let Some(buffer) = buffers.get(name) {
                    tensors.tensor(buffer)?.select(0, 0)?.fill_(value)?;
                }
            }
        }
        let result = buffers.get(result).map(|buffer| execution.step(last)?.tensor(buffer));
        let result: &Tensor = result.unwrap()?;
        assert_eq!(result.sizes(), [1, 1000]);
        Ok::<f32, ExecError>(result.as_slice::<f32>()?[999])
    };
    assert_eq!(run(&mut execution, 1.0).unwrap(), 1.0);
    let allocations = || GlobalAllocator::stats().totals.all.allocations;
    // The test harness allocates now and then, too: one of several runs without any is proof.
    let is_steady = (2..12).any(|value| {
        let before = allocations();
        assert_eq!(run(&mut execution, f64::from(value)).unwrap(), value as f32);
        allocations() == before
    });
    assert!(is_steady);
    let stats = context.stats(Device::CPU);
    assert_eq!(stats.totals.all.allocations, 1);
    assert_eq!(stats.kind(MemoryKind::Workspace).requested_bytes, plan.workspace_bytes() as u64);
}
