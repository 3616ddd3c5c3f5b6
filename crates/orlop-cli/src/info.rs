//! `orlop trace info`.

use crate::inputs::{self, NamedTrace};
use crate::output::{self, Failures};
use crate::table::{self, bytes, count, counted};
use clap::Args;
use comfy_table::Table;
use orlop::lab::analyze::{Lifetimes, SizeBucket, TraceInfo};
use orlop::lab::verdict::RunVerdict;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct InfoArguments {
    /// Files of lines `a,<id>,<bytes>[,<stream>]` (allocate) and `f,<id>` (free), plain or compressed (gzip,
    /// zstd, xz); - for the standard input; or directories, for all *.csv in them
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Prints JSON, an array of objects, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The maximum length of a bar of the histogram, in characters.
const MAX_BAR: usize = 32;

#[derive(Serialize)]
struct InfoEntry<'a> {
    trace: &'a str,
    verdict: RunVerdict,
    #[serde(flatten)]
    info: TraceInfo,
}

impl<'a> InfoEntry<'a> {
    fn of(named: &'a NamedTrace) -> Self {
        let info = TraceInfo::of(&named.trace);
        Self { trace: &named.name, verdict: info.verdict(&named.file.display().to_string()), info }
    }
}

pub(crate) fn run(arguments: &InfoArguments) -> Result<(), Failures> {
    let traces = inputs::read(&arguments.traces)?;
    let entries: Vec<InfoEntry<'_>> = traces.iter().map(InfoEntry::of).collect();
    if arguments.json {
        return output::print_json(&entries);
    }
    let texts: Vec<String> = entries.iter().map(text).collect();
    output::print(&table::wrapped(&texts.join("\n")))
}

fn text(entry: &InfoEntry<'_>) -> String {
    let info = &entry.info;
    let mut text = format!("{}\n{}\n", entry.verdict, entry.trace);
    let mut say = |what: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {what:<12} {value}");
    };
    let allocations = counted(info.allocations as u64, "allocation");
    let frees = counted(info.frees as u64, "free");
    say("operations", format!("{}: {allocations}, {frees}", count(info.operations as u64)));
    if info.streams > 1 {
        say("streams", count(info.streams as u64));
    }
    let peak_blocks = counted(info.peak_live_blocks as u64, "block");
    say(
        "peak live",
        format!("{} ({} B), {peak_blocks}", bytes(info.peak_live_bytes), count(info.peak_live_bytes)),
    );
    let end_blocks = counted(info.end_live_blocks as u64, "block");
    say("live at end", format!("{}, {end_blocks}", bytes(info.end_live_bytes)));
    say("allocated", format!("{} in total", bytes(info.allocated_bytes)));
    let distinct = count(info.distinct_sizes as u64);
    say(
        "sizes",
        format!(
            "median {}, largest {}, {distinct} distinct",
            bytes(info.median_bytes),
            bytes(info.largest_bytes)
        ),
    );
    if let Some(lifetimes) = &info.lifetimes {
        say("lifetimes", lifetime_text(lifetimes));
    }
    if !info.sizes.is_empty() {
        text.push_str(&table::indented(&histogram(&info.sizes)));
    }
    text
}

fn lifetime_text(lifetimes: &Lifetimes) -> String {
    let Lifetimes { min, p25, p50, p75, p90, p99, max } = *lifetimes;
    let max = counted(max as u64, "operation");
    let [min, p25, p50, p75, p90, p99] = [min, p25, p50, p75, p90, p99].map(|number| count(number as u64));
    format!("{min} to {max}; median {p50}, percentiles: 25th {p25}, 75th {p75}, 90th {p90}, 99th {p99}")
}

fn histogram(sizes: &[SizeBucket]) -> Table {
    let max = sizes.iter().map(|bucket| bucket.allocations).max().unwrap_or(0);
    let mut table = table::new([], ["from", "allocations", "bytes", ""]);
    for bucket in sizes {
        let mut row =
            table::row([], [bytes(bucket.from_bytes), count(bucket.allocations as u64), bytes(bucket.bytes)]);
        // Rounded up: a listed bucket is not empty.
        let marks = (bucket.allocations * MAX_BAR).div_ceil(max.max(1));
        row.push("▇".repeat(marks).into());
        table.add_row(row);
    }
    table
}
