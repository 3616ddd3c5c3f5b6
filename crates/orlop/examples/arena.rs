//! An arena for the temporary tensors of a step: allocation moves a pointer, and one call takes everything
//! back.
//!
//! ```text
//! cargo run -p orlop --example arena
//! ```

use orlop::memory::backing::System;
use orlop::memory::engine::{Arena, Reset};
use orlop::prelude::*;
use orlop::tensor;
use orlop::types::ByteSize;
use std::error::Error;

/// The tokens, and the features of each.
const SIZES: [usize; 2] = [64, 256];

/// One step: its result outlives it, its temporary tensors do not.
fn step(number: i32, arena: &AllocatorRef) -> tensor::Result<Tensor> {
    // Options name the allocator; without one a tensor comes from the thread's current context.
    let temporary = TensorOptions::new().kind(MemoryKind::Workspace).allocator(arena);
    let hidden = Tensor::full(SIZES, number, temporary)?;
    let doubled = Tensor::empty(SIZES, temporary)?;
    doubled.copy_(&hidden)?;
    doubled.select(0, 0)?.fill_(2 * number)?;

    // The result is allocated elsewhere: a live tensor in the arena would prevent the reset.
    let result = Tensor::empty([SIZES[1]], DType::F32)?;
    result.copy_(&doubled.select(0, 0)?)?;
    Ok(result)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // The engine's own methods, such as `reset`, need the typed handle; requests go through the erased one.
    // Both are counted handles to the same arena.
    let arena = Arena::new(System::new(), 64 << 10).into_ref();
    let allocator = arena.clone().erase();

    for number in 1..=3 {
        let result = step(number, &allocator)?;
        let usage = allocator.stats().usage;
        println!(
            "step {number}: {} in temporary tensors, {} reserved (regions: {}); the result is {}",
            ByteSize(arena.used() as u64),
            ByteSize(usage.reserved),
            usage.regions,
            result.to_vec::<f32>()?[0],
        );
        // The first step outgrew the 64 KiB. A reset puts one larger region in place of several.
        arena.reset()?;
    }

    // A reset never takes the memory of a live tensor: it is refused.
    let kept = Tensor::ones([4], TensorOptions::new().allocator(&allocator))?;
    if let Err(error) = arena.reset() {
        println!("\nreset: {error}");
    }
    // `renew` leaves the old memory to the live tensors and continues with a new region.
    match arena.renew() {
        Reset::Rewound => println!("renew: all of it can be reused"),
        Reset::Renewed { live } => println!("renew: {live} block keeps its old memory until it is dropped"),
    }
    println!("the tensor that was kept: {:?}", kept.to_vec::<f32>()?);
    Ok(())
}
