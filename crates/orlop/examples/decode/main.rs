//! A decoder that uses all of orlop: mapped weights, activations in a planned arena, paged KV memory with
//! prefix reuse, forks, drafts and preemption within a budget, and no allocation in a step.
//!
//! ```text
//! cargo run --release -p orlop --example decode [-- --report FILE.html]
//! cargo run --release -p orlop --example decode --features cuda
//! ```
//!
//! The scores of every token are compared, bit for bit, with those of the same model without any of it
//! (`unplanned.rs`); without optimisation, those of every 16th. With the feature `cuda` the KV memory is on a
//! CUDA device, with a tier of pinned host memory behind it: the simulated device if there is no driver,
//! whose check for races must find none. The page `docs/engine.md` goes through this program part by part.

mod activations;
mod decoder;
mod math;
mod model;
mod pages;
mod place;
mod requests;
mod summary;
mod unplanned;

use self::decoder::{Decoder, Text};
use self::model::{BLOCK_TOKENS, Model, VOCABULARY};
use self::place::Place;
use self::summary::Summary;
use orlop::kv::{CheckpointPolicy, KvPool};
use orlop::lab::report::ReportData;
use orlop::memory::Budget;
use orlop::memory::bare::GlobalAllocator;
use orlop::prelude::*;
use orlop::trace::recorder::Recorder;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Counts what is allocated on the heap.
#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

/// Of the tokens of a text, the last and every one of this number before are checked.
const CHECKED: usize = if cfg!(debug_assertions) { 16 } else { 1 };

/// The budget of the KV memory: less than the texts need together.
const KV_BUDGET: u64 = 288 << 10;

/// The budget of the host tier.
const TIER_BUDGET: u64 = 256 << 10;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Generates all texts, checks them against the model without plan and cache, and writes the report.
pub(crate) fn run(report: Option<&Path>) -> Result<Summary> {
    let folder = tempfile::tempdir()?;
    let weights = folder.path().join("model.safetensors");
    Model::write(&weights)?;

    // Budgets and observers come before the first allocation.
    let context = Context::new();
    let place = Place::new(&context)?;
    let device = place.device();
    context.set_budget(device, MemoryKind::KvCache, Budget::hard(KV_BUDGET).strict())?;
    let recorder = Recorder::new();
    if report.is_some() {
        context.add_observer(recorder.observer());
    }
    let model = Model::map(&context, &weights)?;
    let builder = KvPool::builder(Model::geometry()?).bytes(KV_BUDGET).match_unit(BLOCK_TOKENS);
    let builder = builder.steps_in_flight(0).checkpoints(CheckpointPolicy::default());
    let mut pool = builder.build(&context, device)?;
    let tiers = place.tiers(&context, TIER_BUDGET)?;
    let tier_bytes = if tiers.is_some() { TIER_BUDGET } else { 0 };
    if let Some(tiers) = tiers {
        pool.attach_tiers(tiers);
    }
    let requests = requests::requests();
    let mut decoder = Decoder::new(&context, &model, pool, &requests)?;

    let mut summary = Summary::new(device, &decoder, std::fs::metadata(&weights)?.len(), tier_bytes);
    // All requests several times: tables and lists get their sizes before the last round.
    for is_warm in [false, false, false, true] {
        decoder.begin_round();
        while decoder.is_busy() {
            let (before, start) = (allocations(), Instant::now());
            let step = decoder.step()?;
            let (time, allocated) = (start.elapsed(), allocations() - before);
            summary.add(step, time, is_warm.then_some(allocated));
            if report.is_some() {
                recorder.annotate(&format!("step {}: {} tokens", decoder.steps, step.sampled));
            }
        }
    }
    summary.end(&context, &mut decoder);
    if let Some(path) = report {
        context.remove_observer(&recorder.observer());
        let history = recorder.history();
        let page = ReportData::new(&history).title("orlop: decode").source("examples/decode");
        page.write(BufWriter::new(File::create(path)?))?;
    }
    summary.time_unplanned = check(&model, &decoder.texts)?;
    place.check()?;
    Ok(summary)
}

fn allocations() -> u64 {
    GlobalAllocator::stats().totals.all.allocations
}

/// Computes the scores of the tokens again, each with its whole prefix, and compares them. Returns the time
/// of a token.
fn check(model: &Model, texts: &[Text]) -> Result<Duration> {
    let context = Context::new();
    let (start, mut count) = (Instant::now(), 0);
    for (number, text) in texts.iter().enumerate() {
        let scores = (text.prompt..text.tokens.len()).zip(text.logits.chunks(VOCABULARY));
        for (end, scores) in scores.rev().step_by(CHECKED) {
            let expected = unplanned::logits(&context, model, &text.tokens[..end])?;
            let is_equal = scores.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            let rank = if end == text.prompt { text.first_rank } else { 0 };
            if !is_equal || text.tokens[end] != math::ranked(&expected, rank) {
                return Err(format!("text {number} differs at token {end}").into());
            }
            count += 1;
        }
    }
    Ok(start.elapsed() / count)
}

/// Returns the file of the argument `--report`.
fn report_file() -> Result<Option<PathBuf>> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (None, ..) => Ok(None),
        (Some(flag), Some(file), None) if flag == "--report" => Ok(Some(file.into())),
        _ => Err("usage: decode [--report FILE.html]".into()),
    }
}

fn main() -> Result<()> {
    let report = report_file()?;
    let summary = run(report.as_deref())?;
    print!("{summary}");
    if let Some(path) = report {
        println!("the memory over time: {}", path.display());
    }
    summary.verify()
}
