//! `orlop snapshot info`.

use crate::arguments::SnapshotInfoArguments;
use crate::table::{self, bytes, count, duration, percent, plain};
use crate::{histories, output};
use orlop::lab::analyze::{
    DeviceInfo, Fragmentation, BlockUsage, LiveMemory, InstantInfo, SiteNaming, OutOfMemoryReport, ReleaseOption, ReleaseMethod,
    SegmentsInfo, UsageRanking, SnapshotInfo,
};
use serde::Serialize;
use std::fmt::Write as _;

/// Warnings that are printed; the JSON has all.
const WARNINGS: usize = 3;

#[derive(Serialize)]
struct SnapshotEntry {
    file: String,
    #[serde(flatten)]
    info: SnapshotInfo,
}

pub(crate) fn run(arguments: &SnapshotInfoArguments) -> Result<(), Vec<String>> {
    let naming = SiteNaming::default()
        .depth(arguments.naming.depth.get())
        .top(arguments.naming.top.get())
        .full(arguments.full_frames);
    let mut entries = Vec::new();
    let mut failures = Vec::new();
    for file in &arguments.files {
        // One history is in memory at a time: they are large, and what is said of them is not.
        match histories::read_quietly(file) {
            Ok(history) => entries.push(SnapshotEntry {
                file: file.display().to_string(),
                info: SnapshotInfo::of(&history, naming),
            }),
            Err(failure) => failures.push(failure),
        }
    }
    if arguments.json {
        output::print_json(&entries)?;
    } else {
        let texts: Vec<String> = entries.iter().map(text).collect();
        output::print(&texts.join("\n"))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

// Writing to a String cannot fail: the results of `writeln!` below are ignored for that.

fn text(entry: &SnapshotEntry) -> String {
    let mut text = format!("{}\n", entry.file);
    let info = &entry.info;
    if let Some(settings) = info.settings.as_deref().filter(|settings| !settings.is_empty()) {
        let _ = writeln!(text, "  settings       {}", plain(settings));
    }
    for warning in info.warnings.iter().take(WARNINGS) {
        let _ = writeln!(text, "  warning        {}", plain(warning));
    }
    if let Some(more) = info.warning_count.checked_sub(WARNINGS as u64).filter(|&more| more > 0) {
        let _ = writeln!(text, "  warning        and {} more", count(more));
    }
    if info.devices.is_empty() {
        text.push_str("  no device was used\n");
    }
    for device in &info.devices {
        device_text(&mut text, device);
    }
    text
}

fn device_text(text: &mut String, device: &DeviceInfo) {
    let _ = writeln!(text, "\ndevice {}", table::device(device.device));
    let mut say = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:<14} {value}");
    };
    if let Some(memory) = device.memory {
        say("memory", bytes(memory));
    }
    let [events, allocations, frees] =
        [device.events, device.allocations, device.frees].map(|number| count(number as u64));
    let time = duration(device.duration_ns);
    say("recorded", format!("{events} events in {time}: {allocations} allocations, {frees} frees"));
    if !device.has_segments {
        say("segments", "the source tells of none".to_owned());
    }
    if device.strays > 0 {
        say("unplaced", format!("{} events that fit no segment", count(device.strays)));
    }
    let peak = &device.peak;
    let when = match peak.events {
        0 => "at the start".to_owned(),
        events => format!("after event {}, {}", count(events as u64), duration(peak.time_ns)),
    };
    say("peak live", format!("{} ({} B), {when}", bytes(peak.held.bytes), count(peak.held.bytes)));
    if let Some(reserved) = device.peak_reserved {
        let over = if peak.held.bytes == 0 { 0.0 } else { reserved as f64 / peak.held.bytes as f64 };
        let by = if device.has_segments { "" } else { ", as the source counted" };
        say(
            "peak reserved",
            format!("{} ({} B), {over:.3} times the peak{by}", bytes(reserved), count(reserved)),
        );
    }
    say("live at start", bytes(device.start_bytes));
    say("live at end", format!("{}, {} blocks", bytes(device.end.held.bytes), count(device.end.held.blocks)));
    for (what, moment) in [("at the peak", peak), ("at the end", &device.end)] {
        moment_text(text, what, moment);
    }
    for failed in &device.out_of_memory {
        failure_text(text, failed);
    }
    if device.more_out_of_memory > 0 {
        let _ = writeln!(text, "\nout of memory {} times more", count(device.more_out_of_memory as u64));
    }
}

fn moment_text(text: &mut String, what: &str, moment: &InstantInfo) {
    if let Some(segments) = &moment.segments {
        let _ = writeln!(text, "\n{what}: {}", segments_text(segments));
        text.push_str(&pools(segments));
    }
    holdings(text, what, &moment.held);
}

fn segments_text(segments: &SegmentsInfo) -> String {
    let reserved = bytes(segments.bytes.reserved);
    let mut text = format!(
        "{reserved} in {} segments; the largest free block has {}",
        count(segments.segments),
        bytes(segments.bytes.largest_free)
    );
    if let Some(largest) = segments.largest_request {
        let _ = write!(text, ", the largest request that fits {}", bytes(largest));
    }
    text
}

/// Where the bytes of segments are, by pool and stream.
fn pools(segments: &SegmentsInfo) -> String {
    let titles = ["segments", "reserved", "asked for", "rounding", "pending", "split", "cached"];
    let mut table = table::new(["pool", "stream"], titles);
    let numbers = |count_of: u64, bytes_of: &Fragmentation| {
        let Fragmentation { reserved, requested, rounding, pending, split, cached, .. } = *bytes_of;
        let bytes = [reserved, requested, rounding, pending, split, cached].map(bytes);
        [count(count_of)].into_iter().chain(bytes).collect::<Vec<_>>()
    };
    for pool in &segments.pools {
        table.add_row(table::row(
            [pool.pool.name(), &stream(pool.stream)],
            numbers(pool.segments, &pool.bytes),
        ));
    }
    if segments.pools.len() > 1 {
        table.add_row(table::row(["all", ""], numbers(segments.segments, &segments.bytes)));
    }
    table::indented(&table)
}

fn stream(stream: u64) -> String {
    orlop::types::StreamId::new(stream).to_string()
}

fn holdings(text: &mut String, what: &str, held: &LiveMemory) {
    let _ = writeln!(text, "\nheld {what}: {} in {} blocks", bytes(held.bytes), count(held.blocks));
    if held.blocks == 0 {
        return;
    }
    text.push_str(&shares("call site", &held.by_site));
    for (title, parts) in [("kind", &held.by_kind), ("tag", &held.by_tag)] {
        if !parts.top.is_empty() {
            text.push_str(&shares(title, parts));
        }
    }
    if held.by_stream.top.len() > 1 {
        text.push_str(&shares("stream", &held.by_stream));
    }
    text.push_str(&largest(&held.largest));
}

fn shares(title: &str, shares: &UsageRanking) -> String {
    let mut table = table::new_with_text(["bytes", "share", "blocks"], title);
    for share in &shares.top {
        let numbers = [bytes(share.bytes), percent(share.share), count(share.blocks)];
        table.add_row(table::row_with_text(numbers, &with_frames(&share.name, &share.frames)));
    }
    if shares.others > 0 {
        let numbers = [bytes(shares.other_bytes), String::new(), String::new()];
        table.add_row(table::row_with_text(numbers, &format!("{} others", count(shares.others))));
    }
    table::indented(&table)
}

fn largest(blocks: &[BlockUsage]) -> String {
    let mut table = table::new_with_text(["largest", "age", "address"], "call site");
    for block in blocks {
        let age = block.age_ns.map_or_else(|| "older".to_owned(), duration);
        let numbers = [bytes(block.bytes), age, format!("{:#x}", block.address)];
        table.add_row(table::row_with_text(numbers, &with_frames(&block.site, &block.frames)));
    }
    table::indented(&table)
}

/// A name, and below it all frames, if they are asked for.
fn with_frames(name: &str, frames: &[String]) -> String {
    let frames = frames.iter().map(|frame| format!("\n  {frame}"));
    [name.to_owned()].into_iter().chain(frames).collect()
}

pub(crate) fn failure_text(text: &mut String, failed: &OutOfMemoryReport) {
    let left = match failed.device_free {
        0 if failed.segments.is_none() => String::new(),
        free => format!("; the device had {} left", bytes(free)),
    };
    let _ = writeln!(
        text,
        "\nout of memory: {} asked for by {} (event {}, {}){left}",
        bytes(failed.requested),
        failed.site,
        // Events count from 1 for people.
        count(failed.event as u64 + 1),
        duration(failed.time_ns)
    );
    if let Some(limit) = failed.limit {
        let _ = writeln!(
            text,
            "  that would have been enough: it seems that the program may hold only so much (PyTorch:\n  \
             per_process_memory_fraction), at least {}, as it did before, and less than {}",
            bytes(limit.at_least),
            bytes(limit.below)
        );
    }
    if let Some(segments) = &failed.segments {
        let _ = writeln!(text, "  {}", segments_text(segments));
        text.push_str(&pools(segments));
    }
    if failed.fragmented {
        text.push_str("  what is free would have been enough, but not in one piece: segments that grow in place (PyTorch:\n");
        text.push_str("  expandable_segments:True) might have held it\n");
    }
    for (place, release) in failed.releases.iter().enumerate() {
        let what = if place == 0 { "the least that would have had to go" } else { "or" };
        let _ = writeln!(text, "  {what}: {}", release_text(release));
        text.push_str(&shares("call site", &release.by_site));
    }
    if failed.segments.is_some() && failed.releases.is_empty() {
        text.push_str("  nothing that the allocator held would have been enough\n");
    }
    holdings(text, "then", &failed.held);
}

fn release_text(release: &ReleaseOption) -> String {
    let what = format!("{} in {} blocks", bytes(release.bytes), count(release.blocks));
    let range = bytes(release.range);
    match release.way {
        ReleaseMethod::Neighbours => {
            format!("{what}, neighbours at {:#x}, which leaves {range} in one piece", release.address)
        }
        ReleaseMethod::Segments if release.segments == 1 => {
            format!(
                "{what}, all of the segment at {:#x}, which gives {range} back to the device",
                release.address
            )
        }
        _ => format!("{what}, all of {} segments, which gives {range} back to the device", release.segments),
    }
}
