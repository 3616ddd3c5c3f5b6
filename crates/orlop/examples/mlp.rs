//! A network with residual blocks, planned and unplanned: the same results, a smaller peak, no allocation.
//!
//! ```text
//! cargo run --release --example mlp
//! ```
//!
//! The graph of the network gives the lifetimes of its tensors, and the outputs that may be written over an
//! input; the plan gives each a place; a run lends them step by step.

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

const BATCH: usize = 1024;
/// The columns of the network's values, and of those inside a block.
const WIDTH: usize = 16;
const HIDDEN: usize = 64;
const BLOCKS: usize = 4;
/// The nodes of a block: two linear ones, the activation between them, and the sum with the block's input.
const NODES: usize = 4;
const RUNS: u64 = if cfg!(debug_assertions) { 2 } else { 1000 };

/// `output = input × weights`; the weights are by output.
fn linear(input: &Tensor, weights: &Tensor, output: &Tensor) -> tensor::Result<()> {
    let columns = weights.sizes()[1];
    let (input, weights) = (input.as_slice::<f32>()?, weights.as_slice::<f32>()?);
    let mut output = output.as_mut_slice::<f32>()?;
    let rows = weights.len() / columns;
    for (row, output) in input.chunks(columns).zip(output.chunks_mut(rows)) {
        for (weights, output) in weights.chunks(columns).zip(output) {
            *output = row.iter().zip(weights).map(|(input, weight)| input * weight).sum();
        }
    }
    Ok(())
}

/// `output = max(input, 0)`.
fn relu(input: &Tensor, output: &Tensor) -> tensor::Result<()> {
    let (input, mut output) = (input.as_slice::<f32>()?, output.as_mut_slice::<f32>()?);
    output.iter_mut().zip(&*input).for_each(|(output, input)| *output = input.max(0.0));
    Ok(())
}

/// Writes over its input.
fn relu_(values: &Tensor) -> tensor::Result<()> {
    values.as_mut_slice::<f32>()?.iter_mut().for_each(|value| *value = value.max(0.0));
    Ok(())
}

/// `output = first + second`.
fn add(first: &Tensor, second: &Tensor, output: &Tensor) -> tensor::Result<()> {
    let (first, second) = (first.as_slice::<f32>()?, second.as_slice::<f32>()?);
    let mut output = output.as_mut_slice::<f32>()?;
    let inputs = first.iter().zip(&*second);
    output.iter_mut().zip(inputs).for_each(|(output, (first, second))| *output = first + second);
    Ok(())
}

/// Writes over its first input.
fn add_(sum: &Tensor, other: &Tensor) -> tensor::Result<()> {
    let (mut sum, other) = (sum.as_mut_slice::<f32>()?, other.as_slice::<f32>()?);
    sum.iter_mut().zip(&*other).for_each(|(sum, other)| *sum += other);
    Ok(())
}

/// Returns the two weights of a block.
fn weights() -> tensor::Result<[Tensor; 2]> {
    let options = TensorOptions::new().kind(MemoryKind::Persistent);
    let expand = Tensor::full([HIDDEN, WIDTH], 1.0 / 64.0, options)?;
    Ok([expand, Tensor::full([WIDTH, HIDDEN], 1.0 / 64.0, options)?])
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

/// Allocates each tensor when it is needed, and drops it after its last use. Each operation has a new output,
/// as it must where it does not know whether its input is used again.
fn unplanned([expand, project]: &[Tensor; 2]) -> Result<Costs, Box<dyn Error>> {
    let context = Context::new();
    let options = TensorOptions::new().context(&context).kind(MemoryKind::Workspace);
    let empty = |columns| Tensor::empty([BATCH, columns], options);
    measure(&context, |number| {
        let mut values = Tensor::full([BATCH, WIDTH], number as f64, options)?;
        for _ in 0..BLOCKS {
            let hidden = empty(HIDDEN)?;
            linear(&values, expand, &hidden)?;
            let active = empty(HIDDEN)?;
            relu(&hidden, &active)?;
            drop(hidden);
            let branch = empty(WIDTH)?;
            linear(&active, project, &branch)?;
            drop(active);
            let sum = empty(WIDTH)?;
            add(&values, &branch, &sum)?;
            values = sum;
        }
        Ok(values.to_vec()?)
    })
}

fn planned([expand, project]: &[Tensor; 2]) -> Result<Costs, Box<dyn Error>> {
    // The graph: the activation and the sum may be written over an input.
    let mut graph = GraphBuilder::new();
    let bytes = |columns: usize| u64::try_from(BATCH * columns * DType::F32.size());
    let mut values: Vec<ValueId> = vec![graph.planned_input("input", bytes(WIDTH)?)];
    for block in 0..BLOCKS {
        let input = values[block * NODES];
        let mut add = |name: &str, inputs: &[ValueId], columns| {
            let node = graph.node(name, inputs)?;
            Ok::<_, Box<dyn Error>>(graph.output(node, &format!("{name} {block}"), bytes(columns)?)?)
        };
        let hidden = add("expand", &[input], HIDDEN)?;
        let active = add("relu", &[hidden], HIDDEN)?;
        let branch = add("project", &[active], WIDTH)?;
        let sum = add("add", &[input, branch], WIDTH)?;
        graph.in_place(hidden, active)?;
        graph.in_place(input, sum)?;
        values.extend([hidden, active, branch, sum]);
    }
    graph.keep(values[BLOCKS * NODES])?;
    let graph = graph.finish();

    // The plan: a place for each tensor, in one arena.
    let mut builder = PlanBuilder::new();
    let buffers = builder.graph(&graph, &graph.given_order(), |value| {
        let bytes = graph.value_size(value).and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
        let columns = bytes / (BATCH * DType::F32.size());
        BufferSpec::new(graph.value_name(value).unwrap_or_default(), [BATCH, columns], DType::F32)
    })?;
    let plan = builder.finish()?;
    for arena in plan.arenas() {
        println!("planned: {} in one arena, {}", ByteSize(arena.bytes() as u64), arena.plan().verdict());
    }
    let known = |value: &ValueId| buffers.value(*value).ok_or("every value is planned");
    let buffers = values.iter().map(known).collect::<Result<Vec<BufferId>, _>>()?;

    // The runs: each step lends the tensors that are live in it.
    let context = Context::new();
    let mut execution = plan.prepare(&context)?;
    measure(&context, |number| {
        execution.begin()?;
        execution.step(0)?.tensor(buffers[0])?.fill_(number as f64)?;
        for (block, values) in buffers[1..].chunks(NODES).enumerate() {
            let (first, input) = (u64::try_from(block * NODES)?, buffers[block * NODES]);
            let tensors = execution.step(first)?;
            linear(tensors.tensor(input)?, expand, tensors.tensor(values[0])?)?;
            relu_(execution.step(first + 1)?.tensor(values[1])?)?;
            let tensors = execution.step(first + 2)?;
            linear(tensors.tensor(values[1])?, project, tensors.tensor(values[2])?)?;
            let tensors = execution.step(first + 3)?;
            add_(tensors.tensor(values[3])?, tensors.tensor(values[2])?)?;
        }
        let last = execution.step(plan.steps() - 1)?;
        Ok(last.tensor(buffers[BLOCKS * NODES])?.to_vec()?)
    })
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    if cfg!(debug_assertions) {
        println!("built without optimisation: the times say nothing; use `cargo run --release`\n");
    }
    let weights = weights()?;
    let (planned, unplanned) = (planned(&weights)?, unplanned(&weights)?);
    println!("\n{:<10} {:>12} {:>12} {:>14}", "", "peak", "median run", "allocations");
    for (name, costs) in [("planned", &planned), ("unplanned", &unplanned)] {
        let peak = ByteSize(costs.peak).to_string();
        println!("{name:<10} {peak:>12} {:>12} {:>14}", format!("{:.1?}", costs.time), costs.allocations);
    }
    let saved = 100.0 * (1.0 - planned.peak as f64 / unplanned.peak as f64);
    println!("\nplanned, the peak is {saved:.0} % smaller; {RUNS} runs each");
    println!("the results are identical: {}", planned.result == unplanned.result);
    Ok(())
}
