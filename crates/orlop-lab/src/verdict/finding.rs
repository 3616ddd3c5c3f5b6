//! What happened: a failed request, or the memory that is reserved without need.

use super::{bytes_too_many, failure};
use crate::analyze::{DeviceInfo, Fragmentation, OutOfMemoryReport, SegmentPool, SegmentsInfo};
use crate::what_if::WhatIfReport;
use orlop_core::ByteSize;
use orlop_trace::formats::DeviceLabel;

/// A loss of less than one percent is no finding: replays are not more accurate.
const SIGNIFICANT: u64 = 100;

pub(super) fn of(info: &DeviceInfo, sweep: Option<&WhatIfReport>) -> String {
    let device = DeviceLabel(info.device);
    if let Some(failed) = failure(info) {
        return format!("{device} ran out of memory: {}.", request(info, failed));
    }
    let replay = sweep.and_then(|sweep| sweep.rows.iter().find(|row| row.is_baseline));
    if let Some((failed, memory)) = replay.and_then(|row| row.outcome.out_of_memory.zip(row.outcome.memory)) {
        return format!(
            "{device} would run out of memory in {}: {} requested, {} live.",
            ByteSize(memory),
            ByteSize(failed.bytes),
            ByteSize(failed.live)
        );
    }
    let live = info.peak.live.bytes;
    let Some(reserved) = info.peak_reserved else {
        return format!("{device} holds {} at its peak; reserved bytes are not recorded.", ByteSize(live));
    };
    // Reserved bytes do not contain blocks outside of the segments.
    let inside = live.saturating_sub(info.peak.outside);
    let lost = reserved.saturating_sub(inside);
    if lost == 0 || lost < reserved / SIGNIFICANT {
        let [reserved, inside] = [reserved, inside].map(ByteSize);
        return format!("{device} reserves {reserved} for {inside} of live memory: almost nothing is lost.");
    }
    let percent = u128::from(lost) * 100 / u128::from(reserved);
    // What is reserved at its peak is often live no more; the end shows what is left of it.
    let instants = [&info.peak, &info.end].map(|instant| instant.segments.as_ref());
    let fullest = instants.into_iter().flatten().max_by_key(|segments| segments.bytes.reserved);
    let cause = fullest.and_then(cause).map_or_else(String::new, |cause| format!(", mostly {cause}"));
    format!("{device} loses {} ({percent} %) of {} reserved{cause}.", ByteSize(lost), ByteSize(reserved))
}

/// Describes a failed request and the memory that was free.
fn request(info: &DeviceInfo, failed: &OutOfMemoryReport) -> String {
    let times = if failed.times > 1 { format!(" {} times", failed.times) } else { String::new() };
    let mut text = format!("{} requested{times}", ByteSize(failed.requested));
    let Some(segments) = &failed.segments else { return text };
    let memory = failed.memory().or(info.memory);
    let usable = ByteSize(failed.usable);
    if failed.fragmented && bytes_too_many(failed, memory).is_none() {
        text += &format!(", {usable} free in smaller pieces");
    } else {
        let of = memory.map_or_else(String::new, |memory| format!(" of {}", ByteSize(memory)));
        text += &format!(", {usable}{of} free");
    }
    text += &private_text(segments);
    text
}

/// Says how the largest part of the reserved bytes that are not live is lost.
fn cause(segments: &SegmentsInfo) -> Option<&'static str> {
    let all = &segments.bytes;
    let mut private = Fragmentation::default();
    for pool in segments.pools.iter().filter(|pool| pool.pool == SegmentPool::Private) {
        private.split = private.split.saturating_add(pool.bytes.split);
        private.cached = private.cached.saturating_add(pool.bytes.cached);
    }
    let parts = [
        (all.split.saturating_sub(private.split), "as free pieces"),
        (all.cached.saturating_sub(private.cached), "as free segments"),
        (private.split.saturating_add(private.cached), "in private pools"),
        (all.pending, "as pending frees"),
        (all.rounding, "by rounding"),
    ];
    parts.into_iter().max_by_key(|part| part.0).filter(|part| part.0 > 0).map(|part| part.1)
}

/// Formats the bytes that private pools keep from the request.
fn private_text(segments: &SegmentsInfo) -> String {
    let private = segments.pools.iter().filter(|pool| pool.pool == SegmentPool::Private);
    match private.fold(0, |sum: u64, pool| sum.saturating_add(pool.bytes.reserved)) {
        0 => String::new(),
        bytes => format!("; {} in private pools (CUDA graphs)", ByteSize(bytes)),
    }
}
