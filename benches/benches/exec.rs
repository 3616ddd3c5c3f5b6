//! A run of an execution plan with 500 buffers, beside 500 tensors from the caching engine.
//!
//! Figures are per buffer. In `one each` every step uses a new buffer beside the one before; in `all at once`
//! one step uses all of them. The tensors of the peer are made and dropped in the same pattern.

use criterion::{Criterion, Throughput};
use orlop_context::Context;
use orlop_core::DType;
use orlop_exec::{BufferId, BufferSpec, ExecutionPlan, PlanBuilder};
use orlop_tensor::{Tensor, TensorOptions};
use std::hint::black_box;

const BUFFERS: u64 = 500;
const ELEMENTS: usize = 1024;

/// Each buffer is used from its step to the next.
fn one_each() -> (ExecutionPlan, Vec<BufferId>) {
    plan(|index| index..=index + 1)
}

fn all_at_once() -> (ExecutionPlan, Vec<BufferId>) {
    plan(|_| 0..=0)
}

fn plan(steps: impl Fn(u64) -> std::ops::RangeInclusive<u64>) -> (ExecutionPlan, Vec<BufferId>) {
    let mut plan = PlanBuilder::new();
    let buffers = (0..BUFFERS).map(|index| {
        let spec = BufferSpec::new("buffer", [ELEMENTS], DType::F32).expect("a valid shape");
        plan.buffer(spec, steps(index)).expect("valid steps")
    });
    let buffers = buffers.collect();
    (plan.finish().expect("a plan"), buffers)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("exec");
    group.throughput(Throughput::Elements(BUFFERS));
    let context = Context::new();

    let (plan, buffers) = one_each();
    let mut execution = plan.prepare(&context).expect("memory");
    group.bench_function("one each/planned", |bencher| {
        bencher.iter(|| {
            execution.begin().expect("nothing is in use");
            for (step, &buffer) in (0..).zip(&buffers) {
                let tensors = execution.step(step).expect("nothing is in use");
                black_box(tensors.tensor(buffer).expect("it is live"));
            }
        });
    });
    let options = TensorOptions::new().context(&context);
    group.bench_function("one each/caching engine", |bencher| {
        bencher.iter(|| {
            let mut before = None;
            for _ in 0..BUFFERS {
                let tensor = Tensor::empty([ELEMENTS], options).expect("memory");
                black_box(&tensor);
                drop(before.replace(tensor));
            }
        });
    });

    let (plan, buffers) = all_at_once();
    let mut execution = plan.prepare(&context).expect("memory");
    group.bench_function("all at once/planned", |bencher| {
        bencher.iter(|| {
            execution.begin().expect("nothing is in use");
            let tensors = execution.step(0).expect("nothing is in use");
            for &buffer in &buffers {
                black_box(tensors.tensor(buffer).expect("it is live"));
            }
        });
    });
    let mut tensors = Vec::with_capacity(buffers.len());
    group.bench_function("all at once/caching engine", |bencher| {
        bencher.iter(|| {
            for _ in 0..BUFFERS {
                tensors.push(black_box(Tensor::empty([ELEMENTS], options).expect("memory")));
            }
            tensors.clear();
        });
    });
    group.finish();
    criterion.final_summary();
}
