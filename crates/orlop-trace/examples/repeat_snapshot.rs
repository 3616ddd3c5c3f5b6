//! Makes a long snapshot from a short one: its run is repeated, each time at other addresses.
//!
//! `cargo run --release -p orlop-trace --example repeat_snapshot -- IN OUT.pickle TIMES`

use orlop_trace::formats::snapshot::write_pickle;
use orlop_trace::history::{DeviceHistory, EventAction, EventDetail, History, Segment};
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

/// What separates the addresses of two repetitions: the alignment of PyTorch's segments.
const ALIGNMENT: u64 = 2 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, times] = &arguments[..] else {
        return Err("usage: repeat_snapshot IN OUT.pickle TIMES".into());
    };
    let mut history = History::read(input)?;
    let times: u64 = times.parse()?;
    for device in &mut history.devices {
        repeat(device, times);
    }
    Ok(write_pickle(&history, &mut BufWriter::new(File::create(output)?))?)
}

/// Appends `times - 1` repetitions of the events and of the segments at the end.
fn repeat(device: &mut DeviceHistory, times: u64) {
    let events = std::mem::take(&mut device.events);
    let details = std::mem::take(&mut device.details);
    let end = std::mem::take(&mut device.end);
    let has_address = |action| !matches!(action, EventAction::OutOfMemory | EventAction::Snapshot);
    let placed = events.iter().filter(|event| has_address(event.action));
    let lowest = placed.clone().map(|event| event.address).chain(end.iter().map(|one| one.address)).min();
    let highest = placed.map(|event| event.address.saturating_add(event.bytes)).max();
    let highest = highest.max(end.last().map(|last| last.address + last.bytes));
    let span = highest.unwrap_or(0).saturating_sub(lowest.unwrap_or(0)).next_multiple_of(ALIGNMENT);
    let duration = events.last().map_or(0, |last| last.time.saturating_sub(events[0].time)) + 1000;
    for time in 0..times {
        let offset = span * time;
        let first = u32::try_from(device.events.len()).unwrap_or(u32::MAX);
        device.details.extend(
            details.iter().map(|detail| EventDetail { event: detail.event.saturating_add(first), ..*detail }),
        );
        device.events.extend(events.iter().map(|event| {
            let mut event = *event;
            event.time += duration * time;
            if has_address(event.action) {
                event.address += offset;
            }
            event
        }));
        device.end.extend(end.iter().map(|segment| shifted(segment, offset)));
    }
}

fn shifted(segment: &Segment, offset: u64) -> Segment {
    let mut segment = segment.clone();
    segment.address += offset;
    for block in &mut segment.blocks {
        block.address += offset;
    }
    segment
}
