//! What an out-of-memory error reports: the live memory, the steps that were tried, and what would have
//! fitted.
//!
//! ```text
//! cargo run -p orlop --example out_of_memory
//! ```
//!
//! `{e}` is one line for a log; `{e:#}` is the whole report. Its figures are fields too, for programs.

use orlop::memory::AllocatorConfig;
use orlop::memory::{Error, Tag};
use orlop::prelude::*;

const MIB: usize = 1 << 20;

pub(crate) fn main() -> Result<(), Error> {
    // The CPU's allocator may reserve 64 MiB. The environment variable `ORLOP_CPU_LIMIT` does the same.
    let context = Context::with(Device::CPU, AllocatorConfig::new().limit(64 * MIB));

    // Tags name what a block is for. Kinds are few and fixed; tags are the program's own.
    let request = |mib: usize, kind, tag: &str| Request::new(mib * MIB).kind(kind).tag(Tag::new(tag));
    let _weights = context.allocate(Device::CPU, &request(24, MemoryKind::Persistent, "decoder weights"))?;
    let mut layers = Vec::new();
    for layer in 0..6 {
        let tag = format!("kv layer {layer}");
        layers.push(context.allocate(Device::CPU, &request(4, MemoryKind::KvCache, &tag))?);
    }
    // Two layers that are not adjacent are freed: their memory becomes two free chunks.
    drop(layers.remove(3));
    drop(layers.remove(1));

    let logits = request(32, MemoryKind::Workspace, "logits");
    let error = match context.allocate(Device::CPU, &logits) {
        Ok(_) => unreachable!("40 of 64 MiB are in live blocks"),
        Err(error) => error,
    };
    println!("one line:\n{error}\n\nthe report:\n{error:#}");

    // The figures are fields, too.
    if let Error::OutOfMemory(report) = &error {
        let (kind, bytes) = report.by_kind[0];
        println!("\n{kind} has the most: {bytes} of {} live bytes", report.live);
    }
    Ok(())
}
