//! Statistics as JSON, with the keys of PyTorch's `memory_stats`, and as text.

use crate::heap::DeviceHeap;
use orlop_alloc::Allocator as _;
use orlop_device::{DeviceStats, Stat};
use std::fmt::Write as _;

/// Returns the statistics of a device as one JSON object with a number for each key.
pub(crate) fn stats_as_json(stats: &DeviceStats) -> String {
    let mut keys = Vec::new();
    for (name, pools) in stats.by_pool() {
        for (pool, stat) in [("all", pools.all), ("small_pool", pools.small), ("large_pool", pools.large)] {
            push_stat(&mut keys, &format!("{name}.{pool}"), stat);
        }
    }
    push_stat(&mut keys, "oversize_allocations", stats.oversize_allocations);
    push_stat(&mut keys, "oversize_segments", stats.oversize_segments);
    let counts = [
        ("num_alloc_retries", stats.num_alloc_retries),
        ("num_ooms", stats.num_ooms),
        ("num_sync_all_streams", stats.num_sync_all_streams),
        ("num_device_alloc", stats.num_device_alloc),
        ("num_device_free", stats.num_device_free),
        ("orlop.num_stream_steals", stats.num_stream_steals),
        ("orlop.num_stream_waits", stats.num_stream_waits),
        ("orlop.remapped_bytes", stats.remapped_bytes),
        ("orlop.leaked_bytes", stats.leaked_bytes),
        ("orlop.num_failed_calls", stats.num_failed_calls),
    ];
    keys.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    let mut json = String::from("{");
    for (place, (name, value)) in keys.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(json, "{comma}\"{name}\":{value}");
    }
    json.push('}');
    json
}

fn push_stat(keys: &mut Vec<(String, u64)>, name: &str, stat: Stat) {
    let values = [
        ("current", stat.current),
        ("peak", stat.peak),
        ("allocated", stat.allocated),
        ("freed", stat.freed),
    ];
    keys.extend(values.map(|(what, value)| (format!("{name}.{what}"), value)));
}

/// Returns a text about the memory of a device: one line of all of it, and a table of the allocator's.
pub(crate) fn text(heap: &DeviceHeap) -> String {
    let line = heap.device.memory_use().map_or_else(|error| error.to_string(), |memory| memory.to_string());
    format!("{line}\npolicy {}\n{}", heap.allocator.name(), heap.allocator.device_stats().summary())
}
