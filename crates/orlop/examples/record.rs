//! Records what the allocators do during a few steps, and writes it as one HTML page.
//!
//! ```text
//! cargo run -p orlop --example record
//! ```
//!
//! The page is self-contained. It shows every block over time, live memory by tag at any instant, and the
//! free memory between blocks. To record into a file see `orlop::trace::recorder`; `orlop report FILE`
//! creates the same page from the file.

use orlop::lab::report::ReportData;
use orlop::memory::Tag;
use orlop::prelude::*;
use orlop::trace::recorder::Recorder;
use orlop::types::ByteSize;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

const LAYERS: usize = 4;
const TOKENS: usize = 128;
const WIDTH: usize = 256;

/// Imitates a training step: each layer keeps an activation, which the backward pass frees.
fn step(context: &Context) -> orlop::tensor::Result<()> {
    let options = TensorOptions::new().context(context);
    let activation = options.tag(Tag::new("activations"));
    let scratch = options.kind(MemoryKind::Workspace).tag(Tag::new("attention scratch"));
    let gradient = options.tag(Tag::new("gradients"));
    let mut kept = Vec::new();
    for _ in 0..LAYERS {
        let _scores = Tensor::empty([TOKENS, 4 * TOKENS], scratch)?;
        kept.push(Tensor::zeros([TOKENS, WIDTH], activation)?);
    }
    while let Some(_activation) = kept.pop() {
        let _gradient = Tensor::empty([TOKENS, WIDTH], gradient)?;
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let context = Context::new();
    // A recorder is an observer: an allocator without one keeps its fast path.
    let recorder = Recorder::new();
    context.add_observer(recorder.observer());

    let persistent = TensorOptions::new().context(&context).kind(MemoryKind::Persistent);
    let _weights = Tensor::ones([LAYERS * WIDTH, WIDTH], persistent.tag(Tag::new("weights")))?;
    for number in 1..=3 {
        recorder.annotate(&format!("step {number}"));
        step(&context)?;
    }
    context.remove_observer(&recorder.observer());

    // The history is an ordinary value: it can be saved, replayed with other allocators, or shown as a page.
    let history = recorder.history();
    let events: usize = history.devices.iter().map(|device| device.events.len()).sum();
    let page = std::env::temp_dir().join("orlop-record.html");
    let report = ReportData::new(&history).title("Three steps").source("examples/record.rs");
    report.write(BufWriter::new(File::create(&page)?))?;

    let peak = context.stats(Device::CPU).totals.all.peak_bytes;
    println!("{events} events recorded, {} lost; at most {} were live", recorder.lost(), ByteSize(peak));
    println!("open {}", page.display());
    Ok(())
}
