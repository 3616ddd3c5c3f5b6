//! `orlop snapshot info`.

use crate::arguments::SnapshotInfoArguments;
use crate::output::Failures;
use crate::table::{self, bytes, count, counted, duration, percent, plain};
use crate::{categories, histories, output};
use orlop::lab::analyze::{
    BlockUsage, DeviceInfo, ForeignMemory, Fragmentation, InstantInfo, LiveMemory, OutOfMemoryReport,
    RefusalCount, ReleaseMethod, ReleaseOption, SegmentsInfo, SiteNaming, SnapshotInfo, UsageRanking,
};
use orlop::lab::verdict::{RunVerdict, most_urgent_first};
use orlop::trace::formats::DeviceLabel;
use orlop::trace::history::History;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

/// The maximum number of warnings that are printed; the JSON has all.
const MAX_WARNINGS: usize = 3;

#[derive(Serialize)]
struct SnapshotEntry {
    file: String,
    /// The verdicts on the devices, in their order.
    verdicts: Vec<RunVerdict>,
    #[serde(flatten)]
    info: SnapshotInfo,
}

impl SnapshotEntry {
    fn of(file: &Path, history: &History, naming: SiteNaming) -> Self {
        let file = file.display().to_string();
        let mut info = SnapshotInfo::of(history, naming);
        most_urgent_first(&mut info.devices);
        let verdict = |info: &DeviceInfo| RunVerdict::of_recorded(history, info, None, &file);
        Self { verdicts: info.devices.iter().map(verdict).collect(), file, info }
    }
}

pub(crate) fn run(arguments: &SnapshotInfoArguments) -> Result<(), Failures> {
    let naming = SiteNaming::default()
        .depth(arguments.naming.depth.get())
        .top(arguments.naming.top.get())
        .full(arguments.full_frames);
    let mut entries = Vec::new();
    let mut failures = Vec::new();
    for file in &arguments.files {
        let recordings = match histories::recordings(file) {
            Ok(recordings) => recordings,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        let _progress = histories::reading(file);
        // One history is in memory at a time.
        for recording in recordings {
            let path = recording.path.clone();
            match histories::used(recording) {
                Ok(history) => {
                    failures.extend(histories::require_memory(&path, &history).err());
                    entries.push(SnapshotEntry::of(&path, &history, naming));
                }
                Err(failure) => failures.push(failure),
            }
        }
    }
    if arguments.json {
        output::print_json(&entries)?;
    } else {
        let width = (!arguments.wide).then_some(table::WIDTH);
        let texts: Vec<String> = entries.iter().map(|entry| text(entry, width)).collect();
        output::print(&texts.join("\n"))?;
    }
    Failures::check(failures)
}

// Writing to a String cannot fail: the results of `writeln!` below are ignored.

fn text(entry: &SnapshotEntry, width: Option<u16>) -> String {
    let verdict = |verdict: &RunVerdict| table::wrapped(&verdict.to_string());
    let mut text = entry.verdicts.first().map_or_else(String::new, |first| verdict(first) + "\n");
    let wrap = |line: String| fitting(line, width);
    let _ = writeln!(text, "{}", entry.file);
    let info = &entry.info;
    if let Some(settings) = info.settings.as_deref().filter(|settings| !settings.is_empty()) {
        text += &wrap(format!("  settings       {}", plain(settings)));
    }
    for warning in info.warnings.iter().take(MAX_WARNINGS) {
        text += &wrap(format!("  warning        {}", plain(warning)));
    }
    if let Some(more) = info.warning_count.checked_sub(MAX_WARNINGS as u64).filter(|&more| more > 0) {
        let _ = writeln!(text, "  warning        and {} more", count(more));
    }
    for (index, (device, its_verdict)) in info.devices.iter().zip(&entry.verdicts).enumerate() {
        if index > 0 {
            let _ = write!(text, "\n{}", verdict(its_verdict));
        }
        device_text(&mut text, device, width);
    }
    text
}

fn device_text(text: &mut String, device: &DeviceInfo, width: Option<u16>) {
    let _ = writeln!(text, "\n{}", DeviceLabel(device.device));
    let mut say = |what: &str, value: String| {
        *text += &fitting(format!("  {what:<14} {value}"), width);
    };
    if let Some(memory) = device.memory {
        say("memory", bytes(memory));
    }
    let [events, allocations, frees] =
        [(device.events, "event"), (device.allocations, "allocation"), (device.frees, "free")]
            .map(|(number, thing)| counted(number as u64, thing));
    say("recorded", format!("{events} in {}: {allocations}, {frees}", duration(device.duration_ns)));
    if !device.has_segments {
        say("segments", "not recorded".to_owned());
    }
    if device.ignored_events > 0 {
        let verb = if device.ignored_events == 1 { "matches" } else { "match" };
        say("ignored", format!("{} that {verb} no segment", counted(device.ignored_events, "event")));
    }
    let peak = &device.peak;
    let when = match peak.events {
        0 => "at the start".to_owned(),
        events => format!("after event {}, {}", count(events as u64), duration(peak.time_ns)),
    };
    say("peak live", format!("{} ({} B), {when}", bytes(peak.live.bytes), count(peak.live.bytes)));
    if let Some(reserved) = device.peak_reserved {
        // Reserved bytes do not contain blocks outside of the segments.
        let inside = peak.live.bytes.saturating_sub(peak.outside);
        let over = if inside == 0 { 0.0 } else { reserved as f64 / inside as f64 };
        let by = if device.has_segments { "" } else { ", as counted by the source" };
        say(
            "peak reserved",
            format!("{} ({} B), {over:.3} times the live peak{by}", bytes(reserved), count(reserved)),
        );
    }
    if peak.outside > 0 {
        say("outside", format!("{} of the live peak, in no segment", bytes(peak.outside)));
    }
    if device.external.adopted > 0 {
        let external = &device.external;
        let end = format!("{} in {}", bytes(external.end_bytes), counted(external.end_blocks, "block"));
        let peak = bytes(external.peak_bytes);
        say("external", format!("{peak} at the peak, {end} at the end: mapped files, foreign memory"));
    }
    if let Some(foreign) = &device.foreign {
        say("not its own", foreign_text(foreign));
    }
    for refusals in &device.refusals {
        say("refused", refusal_text(refusals));
    }
    say("live at start", bytes(device.start_bytes));
    say(
        "live at end",
        format!("{}, {}", bytes(device.end.live.bytes), counted(device.end.live.blocks, "block")),
    );
    categories::text(text, &device.categories, table::inner(width));
    for (when, instant) in [("at the peak", peak), ("at the end", &device.end)] {
        instant_text(text, when, instant, width);
    }
    for failed in &device.out_of_memory {
        failure_text(text, failed, width);
    }
    if device.more_out_of_memory > 0 {
        let _ = writeln!(text, "\n{} failed", counted(device.more_out_of_memory as u64, "more request"));
    }
}

/// Ends a line, which is wrapped if it has to fit a width.
fn fitting(line: String, width: Option<u16>) -> String {
    if width.is_some() { table::wrapped(&line) } else { line + "\n" }
}

fn foreign_text(foreign: &ForeignMemory) -> String {
    let mut text = match (foreign.taken(), foreign.device) {
        (Some(taken), Some(device)) => format!("{} of {}", bytes(taken), bytes(device)),
        _ => format!("all but {} of the device", bytes(foreign.max_available)),
    };
    text += " when a request failed:\n                 context, libraries, other processes";
    let more = foreign.max_available.saturating_sub(foreign.min_available);
    if more > 0 {
        let _ = write!(text, "; at times {} more", bytes(more));
    }
    text
}

fn refusal_text(refusals: &RefusalCount) -> String {
    let refuser = match (refusals.cause, &*refusals.refuser) {
        ("budget", kind) => format!("the budget of {kind}"),
        ("limit", allocator) => format!("the limit of {allocator}"),
        (cause, allocator) => format!("the {cause}, by {allocator}"),
    };
    format!(
        "{} by {refuser}, up to {}: {} served, {} retried, {} failed",
        counted(refusals.total(), "time"),
        bytes(refusals.largest),
        count(refusals.served),
        count(refusals.retried),
        count(refusals.failed)
    )
}

fn instant_text(text: &mut String, when: &str, instant: &InstantInfo, width: Option<u16>) {
    if let Some(segments) = &instant.segments {
        let _ = writeln!(text, "\n{when}: {}", segments_text(segments));
        text.push_str(&pools(segments, width));
    }
    live_text(text, when, &instant.live, width);
}

fn segments_text(segments: &SegmentsInfo) -> String {
    let reserved = bytes(segments.bytes.reserved);
    let mut text = format!(
        "{reserved} in {}; the largest free chunk has {}",
        counted(segments.segments, "segment"),
        bytes(segments.bytes.largest_free)
    );
    if let Some(largest) = segments.largest_request {
        let _ = write!(text, ", and the largest request that fits is {}", bytes(largest));
    }
    text
}

/// Formats the bytes of segments by pool and stream.
fn pools(segments: &SegmentsInfo, width: Option<u16>) -> String {
    let titles = ["count", "reserved", "requested", "rounding", "pending", "split", "cached"];
    let has_streams = segments.pools.iter().any(|pool| pool.stream != 0);
    let mut table = table::new(["pool"], titles);
    table::fit(&mut table, 0, table::inner(width));
    let numbers = |count_of: u64, bytes_of: &Fragmentation| {
        let Fragmentation { reserved, requested, rounding, pending, split, cached, .. } = *bytes_of;
        let bytes = [reserved, requested, rounding, pending, split, cached].map(bytes);
        [count(count_of)].into_iter().chain(bytes).collect::<Vec<_>>()
    };
    for pool in &segments.pools {
        let name = pool.pool.name();
        let name = if has_streams { format!("{name}\n  {}", stream(pool.stream)) } else { name.to_owned() };
        table.add_row(table::row([&*name], numbers(pool.segments, &pool.bytes)));
    }
    if segments.pools.len() > 1 {
        table.add_row(table::row(["all"], numbers(segments.segments, &segments.bytes)));
    }
    table::indented(&table)
}

fn stream(stream: u64) -> String {
    orlop::types::StreamId::from_raw(stream).to_string()
}

fn live_text(text: &mut String, when: &str, live: &LiveMemory, width: Option<u16>) {
    let _ = writeln!(text, "\nlive {when}: {} in {}", bytes(live.bytes), counted(live.blocks, "block"));
    if live.blocks == 0 {
        return;
    }
    text.push_str(&ranking("call site", &live.by_site, width));
    for (title, parts) in [("kind", &live.by_kind), ("tag", &live.by_tag)] {
        if !parts.top.is_empty() {
            text.push_str(&ranking(title, parts, width));
        }
    }
    if live.by_stream.top.len() > 1 {
        text.push_str(&ranking("stream", &live.by_stream, width));
    }
    text.push_str(&largest(&live.largest, width));
}

fn ranking(title: &str, ranking: &UsageRanking, width: Option<u16>) -> String {
    let mut table = table::new_with_text(["bytes", "share", "blocks"], title, table::inner(width));
    for group in &ranking.top {
        let numbers = [bytes(group.bytes), percent(group.share), count(group.blocks)];
        table.add_row(table::row_with_text(numbers, &with_frames(&group.name, &group.frames)));
    }
    if ranking.others > 0 {
        let numbers = [bytes(ranking.other_bytes), String::new(), String::new()];
        table.add_row(table::row_with_text(numbers, &counted(ranking.others, "other")));
    }
    table::indented(&table)
}

fn largest(blocks: &[BlockUsage], width: Option<u16>) -> String {
    let mut table = table::new_with_text(["largest", "age", "address"], "call site", table::inner(width));
    for block in blocks {
        let age = block.age_ns.map_or_else(|| "older".to_owned(), duration);
        let numbers = [bytes(block.bytes), age, format!("{:#x}", block.address)];
        table.add_row(table::row_with_text(numbers, &with_frames(&block.site, &block.frames)));
    }
    table::indented(&table)
}

/// Formats a name, with all frames below it if requested.
fn with_frames(name: &str, frames: &[String]) -> String {
    let frames = frames.iter().map(|frame| format!("\n  {frame}"));
    [name.to_owned()].into_iter().chain(frames).collect()
}

/// Formats how many requests like this one failed; empty for one.
fn repeated(failed: &OutOfMemoryReport) -> String {
    if failed.times <= 1 {
        return String::new();
    }
    let last = count(failed.last_event as u64 + 1);
    format!(" {}, the last in event {last}", counted(failed.times, "time"))
}

pub(crate) fn failure_text(text: &mut String, failed: &OutOfMemoryReport, width: Option<u16>) {
    let left = match failed.device_free {
        0 if failed.segments.is_none() => String::new(),
        free if failed.cause == Some("limit") => format!("; the limit had {} left", bytes(free)),
        free => format!("; the device had {} left", bytes(free)),
    };
    let wrap = |line: String| fitting(line, width);
    text.push('\n');
    *text += &wrap(format!(
        "out of memory{}: {} requested by {} (event {}, {}){left}",
        repeated(failed),
        bytes(failed.requested),
        failed.site,
        // Events are numbered from 1.
        count(failed.event as u64 + 1),
        duration(failed.time_ns)
    ));
    if let Some(limit) = failed.limit.filter(|_| failed.cause.is_some()) {
        let refuser = failed.refuser.as_deref().unwrap_or_default();
        let _ = writeln!(text, "  the limit of {refuser} refused it: {}", bytes(limit.at_least));
    } else if let Some(limit) = failed.limit {
        let _ = writeln!(
            text,
            "  the device had enough memory: the process probably had a limit (PyTorch:\n  \
             per_process_memory_fraction) of at least {} and less than {}",
            bytes(limit.at_least),
            bytes(limit.below)
        );
    }
    if let Some(segments) = &failed.segments {
        *text += &wrap(format!("  {}", segments_text(segments)));
        text.push_str(&pools(segments, width));
    }
    if failed.fragmented {
        text.push_str("  the free memory would have been enough, but is not contiguous: expandable\n");
        text.push_str("  segments (PyTorch: expandable_segments:True) might have served the request\n");
    }
    for (index, release) in failed.releases.iter().enumerate() {
        let what = match index {
            0 if failed.releases.iter().all(|release| release.is_exact) => "the least memory to release",
            0 => "an estimate of the least memory to release",
            _ => "or",
        };
        *text += &wrap(format!("  {what}: {}", release_text(release)));
        text.push_str(&ranking("call site", &release.by_site, width));
    }
    if failed.segments.is_some() && failed.releases.is_empty() {
        text.push_str("  releasing all memory of the allocator would not have been enough\n");
    }
    live_text(text, "at that time", &failed.live, width);
}

fn release_text(release: &ReleaseOption) -> String {
    let what = format!("{} in {}", bytes(release.bytes), counted(release.blocks, "block"));
    let range = bytes(release.range);
    match release.method {
        ReleaseMethod::Neighbours => {
            format!("{what}, adjacent at {:#x}, which frees {range} contiguously", release.address)
        }
        ReleaseMethod::Segments if release.segments == 1 => {
            format!(
                "{what}, all of the segment at {:#x}, which releases {range} to the device",
                release.address
            )
        }
        _ => format!("{what}, all of {} segments, which releases {range} to the device", release.segments),
    }
}
