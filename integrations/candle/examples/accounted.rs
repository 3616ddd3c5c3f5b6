//! Where the program's memory went: by kind and tag at any time, and as a recording for `orlop report`.
//!
//! ```text
//! cargo run --release -p orlop-candle --example accounted -- run.orlop
//! orlop report run.orlop -o report.html
//! ```

use orlop::memory::bare::GlobalAllocator;
use orlop::prelude::*;
use orlop::trace::recorder::Recorder;
use orlop::types::ByteSize;
use std::error::Error;

#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "run.orlop".to_owned());
    let recording = Recorder::to_file(&path)?;
    if !GlobalAllocator::observe(recording.observer()) {
        return Err("the process has another observer".into());
    }

    let mut decoder = orlop_candle::Decoder::new(6, 8192)?;
    recording.annotate("prompt");
    let prompt: Vec<u32> = (0..384).collect();
    let mut next = decoder.forward(&prompt)?;
    for step in 1..=16 {
        recording.annotate(&format!("token {step}"));
        next = decoder.forward(&[next])?;
    }

    let stats = GlobalAllocator::stats();
    println!("kind         live         peak");
    for kind in [MemoryKind::Persistent, MemoryKind::KvCache, MemoryKind::Workspace, MemoryKind::Default] {
        let account = stats.kind(kind);
        let (live, peak) = (ByteSize(account.live_bytes), ByteSize(account.peak_bytes));
        println!("{:<12} {:<12} {peak}", kind.to_string(), live.to_string());
    }
    println!("\ntag                live");
    let mut tags = GlobalAllocator::tag_uses();
    tags.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    for part in tags {
        println!("{:<18} {}", part.tag.to_string(), ByteSize(part.bytes));
    }
    let all = &stats.totals.all;
    println!(
        "\npeak of live bytes: {}; reserved: {}",
        ByteSize(all.peak_bytes),
        ByteSize(stats.usage.peak_reserved)
    );

    drop(decoder);
    let written = recording.finish()?;
    println!("{path}: {} events, {} lost", written.events, written.lost);
    Ok(())
}
