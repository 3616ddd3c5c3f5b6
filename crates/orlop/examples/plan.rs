//! A static memory plan: temporary tensors whose lifetimes are known share one storage.
//!
//! ```text
//! cargo run -p orlop --example plan
//! ```
//!
//! The plan is made once, for the graph. A run then allocates nothing: each tensor is bound to its offset.

use orlop::plan::{Buffer, ProblemBuilder, Skyline, verify};
use orlop::prelude::*;
use orlop::tensor::Storage;
use orlop::types::ByteSize;
use std::error::Error;

/// The tensors of a small graph: name, steps during which each is live (the end excluded), sizes.
const TENSORS: [(&str, std::ops::Range<u64>, [usize; 2]); 4] = [
    ("input", 0..2, [64, 256]),
    ("hidden", 1..3, [64, 1024]),
    ("activated", 2..4, [64, 1024]),
    ("output", 3..5, [64, 256]),
];

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = ProblemBuilder::new();
    for (name, steps, [rows, columns]) in &TENSORS {
        let bytes = u64::try_from(rows * columns * DType::F32.size())?;
        builder.push_named(name, Buffer::new(steps.clone(), bytes))?;
    }
    let problem = builder.finish();
    let plan = Skyline::new().plan(&problem);
    verify(&problem, &plan)?;
    let sum: u64 = problem.buffers().iter().map(|buffer| buffer.size).sum();
    println!("{} instead of {}: {}", ByteSize(plan.height()), ByteSize(sum), plan.verdict());

    // One allocation for all runs. Offsets and heights are `u64`: a plan can be for another machine.
    let context = Context::new();
    let options = TensorOptions::new().context(&context).kind(MemoryKind::Workspace);
    let pool = Storage::new(usize::try_from(plan.height())?, &options)?;
    let mut tensors = Vec::new();
    for ((name, _, sizes), &offset) in TENSORS.iter().zip(plan.offsets()) {
        println!("  {name:<10} at {}", ByteSize(offset));
        tensors.push(Tensor::bind(&pool, usize::try_from(offset)?, sizes, DType::F32)?);
    }

    // A run writes a tensor only while it is live: `output` has the bytes that `hidden` had.
    let [input, hidden, activated, output] = &tensors[..] else { unreachable!("there are four") };
    input.fill_(1.0)?;
    hidden.copy_(&input.select(1, 0)?.unsqueeze(1)?)?;
    activated.copy_(hidden)?;
    output.copy_(&activated.narrow(1, 0, 256)?)?;
    let live = context.stats(Device::CPU).totals.all.live_blocks();
    println!("the result is {}, from {live} block", output.to_vec::<f32>()?[0]);
    Ok(())
}
