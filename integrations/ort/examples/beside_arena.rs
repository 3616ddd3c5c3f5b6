//! Sessions of several models that run in turns: peak and time with the arenas of ONNX Runtime, with its
//! allocator without an arena, and with one shared allocator of orlop. Each is a process of its own.
//!
//! ```text
//! ORT_DYLIB_PATH=…/libonnxruntime.so cargo run --release --example beside_arena -- \
//!     MODEL.onnx[@INPUT=SIZE,SIZE…] …
//! ```

use orlop::prelude::*;
use orlop::types::ByteSize;
use orlop_ort::OrtMemory;
use ort::environment::Environment;
use ort::ep;
use ort::session::Session;
use std::error::Error;
use std::process::Command;
use std::time::Duration;

#[path = "common/inputs.rs"]
mod inputs;

/// How often all sessions run, once each.
const ROUNDS: usize = 20;

const ALLOCATORS: [&str; 3] = ["arena", "no-arena", "orlop"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, models)) if ALLOCATORS.contains(&&**first) => measure(first, models),
        Some(_) => {
            println!("| allocator | after loading | peak | at the end | median of a round, on the CPU |");
            println!("|---|---|---|---|---|");
            for allocator in ALLOCATORS {
                let mut child = Command::new(std::env::current_exe()?);
                let status = child.arg(allocator).args(&arguments).status()?;
                if !status.success() {
                    return Err(format!("{allocator}: {status}").into());
                }
            }
            Ok(())
        }
        None => Err("usage: beside_arena MODEL.onnx[@INPUT=SIZES] …".into()),
    }
}

/// Prints a row of the table: resident memory, less what the process had before the first session.
fn measure(allocator: &str, models: &[String]) -> Result<(), Box<dyn Error>> {
    let environment = ort::init().build()?;
    let context = Context::new();
    let memory = match allocator {
        "orlop" => Some(OrtMemory::register(&environment, context.clone())?),
        _ => None,
    };
    let models = models
        .iter()
        .map(|model| {
            let mut parts = model.split('@').map(str::to_owned);
            let path = parts.next().unwrap_or_default();
            Ok((path, parts.collect::<Vec<String>>()))
        })
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;

    let before = resident("VmRSS:")?;
    let mut sessions = Vec::new();
    for (path, sizes) in &models {
        let session = session(&environment, allocator, path)?;
        let inputs = inputs::of_session(&session, sizes)?;
        let values = inputs.iter().map(inputs::value).collect::<Result<Vec<_>, _>>()?;
        sessions.push((session, inputs, values));
    }
    let loaded = resident("VmRSS:")?;

    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let start = time_on_cpu()?;
        for (session, inputs, values) in &mut sessions {
            if let Some(memory) = &memory {
                let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (&**name, tensor)).collect();
                memory.run(session, &inputs)?;
            } else {
                let values: Vec<_> = values.iter().map(|(name, value)| (&**name, value)).collect();
                session.run(values)?;
            }
        }
        rounds.push(time_on_cpu()? - start);
    }
    rounds.sort();
    let median = rounds[ROUNDS / 2];
    let growth = |bytes: u64| ByteSize(bytes.saturating_sub(before));
    println!(
        "| {allocator} | {} | {} | {} | {:.1} ms |",
        growth(loaded),
        growth(resident("VmHWM:")?),
        growth(resident("VmRSS:")?),
        median.as_secs_f64() * 1e3,
    );
    if let Some(memory) = memory {
        let stats = context.stats(Device::CPU);
        let peak = |kind| ByteSize(stats.kind(kind).peak_bytes);
        println!(
            "\norlop counted a peak of {} for runs and {} for sessions, {} reserved; {:?}",
            peak(MemoryKind::Workspace),
            peak(MemoryKind::Persistent),
            ByteSize(stats.usage.peak_reserved),
            memory.counts(),
        );
    }
    Ok(())
}

fn session(environment: &Environment, allocator: &str, path: &str) -> Result<Session, Box<dyn Error>> {
    let builder = Session::builder(environment)?.with_intra_threads(1)?;
    let mut builder = match allocator {
        "no-arena" => {
            builder.with_execution_providers([ep::CPU::default().with_arena_allocator(false).build()])?
        }
        "orlop" => builder.with_env_allocators()?,
        _ => builder,
    };
    Ok(if path.ends_with(".gz") {
        builder.commit_from_memory(&inputs::read_model(path)?)?
    } else {
        builder.commit_from_file(path)?
    })
}

/// Returns a figure of `/proc/self/status`, in bytes.
fn resident(field: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Returns the time that this thread has spent on a CPU: other programs do not change it much.
fn time_on_cpu() -> Result<Duration, Box<dyn Error>> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = times.split(' ').next().ok_or("no such field")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}
