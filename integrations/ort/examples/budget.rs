//! Two sessions of one model in one arena with a budget.
//!
//! ```text
//! ORT_DYLIB_PATH=…/libonnxruntime.so cargo run --example budget -- MODEL.onnx [INPUT=SIZE,SIZE…]
//! ```
//!
//! `cargo xtask integrations ort` installs ONNX Runtime and runs this with a model of the repository. Sizes
//! that the model leaves open are 1, unless an argument gives the sizes of the input.

use orlop::memory::Budget;
use orlop::prelude::*;
use orlop::types::ByteSize;
use orlop_ort::OrtMemory;
use ort::session::Session;
use std::error::Error;

#[path = "common/inputs.rs"]
mod inputs;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = inputs::read_model(&arguments.next().ok_or("usage: budget MODEL.onnx [INPUT=SIZES]")?)?;
    let sizes: Vec<String> = arguments.collect();

    let environment = ort::init().build()?;
    let context = Context::new();
    let memory = OrtMemory::register(&environment, context.clone())?;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let builder = Session::builder(&environment)?.with_intra_threads(1)?;
        sessions.push(builder.with_env_allocators()?.commit_from_memory(&model)?);
    }

    let inputs = inputs::of_session(&sessions[0], &sizes)?;
    let inputs: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (&**name, tensor)).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        let outputs = memory.run(session, &inputs)?;
        for (name, output) in &outputs {
            println!("session {number}: {name} {:?}", output.sizes());
        }
    }
    println!("\n{}\n", context.memory_map());
    let workspace = *context.stats(Device::CPU).kind(MemoryKind::Workspace);
    println!("peak of a run's memory: {}, of both sessions in turn", ByteSize(workspace.peak_bytes));

    // Half of what a run needs: the call fails, with a report, and the session works when there is room
    // again.
    let limit = workspace.live_bytes + workspace.peak_bytes / 2;
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(limit).strict())?;
    match memory.run(&mut sessions[0], &inputs) {
        Ok(_) => println!("with a budget of {}: it fits", ByteSize(limit)),
        Err(error) => println!("with a budget of {}:\n  {error}", ByteSize(limit)),
    }
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(workspace.peak_bytes * 2))?;
    memory.run(&mut sessions[0], &inputs)?;
    println!("with a budget of {}: it fits", ByteSize(workspace.peak_bytes * 2));

    drop((inputs, sessions));
    println!("\n{:?}", memory.counts());
    Ok(())
}
