//! Peak and time of the program, whichever allocator is the global one.

use crate::Decoder;
use std::error::Error;

/// How often a decoder is created, reads a prompt and generates tokens.
const SEQUENCES: usize = 3;
const LAYERS: usize = 6;
const VOCABULARY: usize = 8192;
const PROMPT: u32 = 384;
const GENERATED: usize = 48;

/// Runs the program, and prints a row of the table: the resident peak, what is resident at the end, and the
/// CPU time of all threads.
///
/// # Errors
///
/// Those of candle; a file of `/proc` that cannot be read.
pub fn measure(allocator: &str) -> Result<(), Box<dyn Error>> {
    for _ in 0..SEQUENCES {
        generate()?;
    }
    let mebibytes = |bytes: u64| bytes >> 20;
    println!(
        "| {allocator} | {} MiB | {} MiB | {:.2} s |",
        mebibytes(resident("VmHWM:")?),
        mebibytes(resident("VmRSS:")?),
        cpu_seconds()?
    );
    Ok(())
}

/// Reads a prompt and generates tokens. The decoder is dropped.
fn generate() -> candle_core::Result<u32> {
    let mut decoder = Decoder::new(LAYERS, VOCABULARY)?;
    let prompt: Vec<u32> = (0..PROMPT).collect();
    let mut next = decoder.forward(&prompt)?;
    for _ in 0..GENERATED {
        next = decoder.forward(&[next])?;
    }
    Ok(next)
}

fn resident(field: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Returns the time on the CPU of all threads, from the clock's ticks of 10 ms.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |at: usize| fields.get(at).ok_or("no such field")?.parse::<u32>().map_err(Box::<dyn Error>::from);
    Ok(f64::from(ticks(11)? + ticks(12)?) / 100.0)
}
