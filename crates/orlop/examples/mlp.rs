//! A small network, planned and unplanned: the same results; one has a fixed arena and allocates nothing.
//!
//! ```text
//! cargo run --release --example mlp
//! ```
//!
//! The graph of the network gives the lifetimes of its tensors; the plan gives each a place; a run lends them
//! step by step.

use orlop::exec::{BufferId, BufferSpec, PlanBuilder};
use orlop::memory::bare::GlobalAllocator;
use orlop::plan::{GraphBuilder, ValueId};
use orlop::prelude::*;
use orlop::tensor;
use orlop::types::ByteSize;
use std::error::Error;
use std::time::{Duration, Instant};

/// Counts what is allocated on the heap.
#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

const BATCH: usize = 4;
const SIZES: [usize; 5] = [32, 64, 64, 32, 10];
const RUNS: u64 = 1000;

/// `output = relu(input × weights)`; the weights are by output.
fn linear(input: &Tensor, weights: &Tensor, output: &Tensor) -> tensor::Result<()> {
    let columns = weights.sizes()[1];
    let (input, weights) = (input.as_slice::<f32>()?, weights.as_slice::<f32>()?);
    let mut output = output.as_mut_slice::<f32>()?;
    let rows = weights.len() / columns;
    for (row, output) in input.chunks(columns).zip(output.chunks_mut(rows)) {
        for (weights, output) in weights.chunks(columns).zip(output) {
            let sum: f32 = row.iter().zip(weights).map(|(input, weight)| input * weight).sum();
            *output = sum.max(0.0);
        }
    }
    Ok(())
}

/// Writes over its input.
fn normalize(values: &Tensor) -> tensor::Result<()> {
    for row in values.as_mut_slice::<f32>()?.chunks_mut(SIZES[4]) {
        let sum: f32 = row.iter().sum::<f32>() + 1e-6;
        row.iter_mut().for_each(|value| *value /= sum);
    }
    Ok(())
}

fn weights() -> tensor::Result<Vec<Tensor>> {
    let options = TensorOptions::new().kind(MemoryKind::Persistent);
    SIZES.windows(2).map(|sizes| Tensor::full([sizes[1], sizes[0]], 1.0 / 32.0, options)).collect()
}

/// The costs of the runs (of time, the median), and the result of the last.
struct Costs {
    peak: u64,
    time: Duration,
    allocations: u64,
    result: Vec<f32>,
}

/// Runs the network once to warm up, and then [`RUNS`] times.
fn measure(
    context: &Context,
    mut run: impl FnMut(u64) -> Result<Vec<f32>, Box<dyn Error>>,
) -> Result<Costs, Box<dyn Error>> {
    run(0)?;
    let blocks = || context.stats(Device::CPU).totals.all.allocations;
    // Blocks of the context, and what else is allocated on the heap. (Reading either allocates, too: so the
    // heap's counts are read last and first.)
    let blocks_before = blocks();
    let mut times = Vec::with_capacity(usize::try_from(RUNS)?);
    let heap_before = GlobalAllocator::stats().totals.all.allocations;
    let mut result = Vec::new();
    for number in 1..=RUNS {
        let start = Instant::now();
        result = run(number)?;
        times.push(start.elapsed());
    }
    let heap = GlobalAllocator::stats().totals.all.allocations;
    times.sort_unstable();
    // Each run returns its result in a vector.
    let allocations = blocks() - blocks_before + (heap - heap_before).saturating_sub(RUNS);
    let peak = context.stats(Device::CPU).kind(MemoryKind::Workspace).peak_bytes;
    Ok(Costs { peak, time: times[times.len() / 2], allocations, result })
}

/// Allocates each tensor when it is needed, and drops it after its last use.
fn unplanned(weights: &[Tensor]) -> Result<Costs, Box<dyn Error>> {
    let context = Context::new();
    let options = TensorOptions::new().context(&context).kind(MemoryKind::Workspace);
    measure(&context, |number| {
        let mut values = Tensor::full([BATCH, SIZES[0]], number as f64, options)?;
        for weights in weights {
            let output = Tensor::empty([BATCH, weights.sizes()[0]], options)?;
            linear(&values, weights, &output)?;
            values = output;
        }
        normalize(&values)?;
        Ok(values.to_vec()?)
    })
}

fn planned(weights: &[Tensor]) -> Result<Costs, Box<dyn Error>> {
    // The graph: the layers, and a last node that writes over its input.
    let mut graph = GraphBuilder::new();
    let bytes = |size: usize| u64::try_from(BATCH * size * DType::F32.size());
    let input = graph.planned_input("input", bytes(SIZES[0])?);
    let mut values: Vec<ValueId> = vec![input];
    for (layer, &size) in SIZES[1..].iter().enumerate() {
        let node = graph.node("linear", &[values[layer]])?;
        values.push(graph.output(node, &format!("layer {layer}"), bytes(size)?)?);
    }
    let node = graph.node("normalize", &values[SIZES.len() - 1..])?;
    let result = graph.output(node, "result", bytes(SIZES[4])?)?;
    graph.in_place(values[SIZES.len() - 1], result)?;
    graph.keep(result)?;
    let graph = graph.finish();

    // The plan: a place for each tensor, in one arena.
    let mut builder = PlanBuilder::new();
    let buffers = builder.graph(&graph, &graph.given_order(), |value| {
        let size = values.iter().position(|&known| known == value).map_or(SIZES[4], |layer| SIZES[layer]);
        BufferSpec::new(graph.value_name(value).unwrap_or_default(), [BATCH, size], DType::F32)
    })?;
    let plan = builder.finish()?;
    for arena in plan.arenas() {
        println!("planned: {} in one arena, {}", ByteSize(arena.bytes() as u64), arena.plan().verdict());
    }
    let known = |value| buffers.value(value).ok_or("every value is planned");
    let layers = values.iter().map(|&value| known(value)).collect::<Result<Vec<BufferId>, _>>()?;
    let result = known(result)?;

    // The runs: each step lends the tensors that are live in it.
    let context = Context::new();
    let mut execution = plan.prepare(&context)?;
    measure(&context, |number| {
        execution.begin()?;
        execution.step(0)?.tensor(layers[0])?.fill_(number as f64)?;
        for (step, (buffers, weights)) in (0..).zip(layers.windows(2).zip(weights)) {
            let tensors = execution.step(step)?;
            linear(tensors.tensor(buffers[0])?, weights, tensors.tensor(buffers[1])?)?;
        }
        normalize(execution.step(plan.steps() - 2)?.tensor(result)?)?;
        Ok(execution.step(plan.steps() - 1)?.tensor(result)?.to_vec()?)
    })
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let weights = weights()?;
    let (planned, unplanned) = (planned(&weights)?, unplanned(&weights)?);
    println!("\n{:<10} {:>12} {:>12} {:>14}", "", "peak", "median run", "allocations");
    for (name, costs) in [("planned", &planned), ("unplanned", &unplanned)] {
        let peak = ByteSize(costs.peak).to_string();
        println!("{name:<10} {peak:>12} {:>12} {:>14}", format!("{:.1?}", costs.time), costs.allocations);
    }
    println!("\n{RUNS} runs; the results are identical: {}", planned.result == unplanned.result);
    Ok(())
}
