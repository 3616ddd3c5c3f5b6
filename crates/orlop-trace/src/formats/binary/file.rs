//! Reading and writing whole histories.

use super::super::AdmittedDevices;
use super::reader::BinaryReader;
use super::record::BinaryRecord;
use super::writer::{BinaryWriter, EventOrder};
use crate::Result;
use crate::formats::event_collector::EventCollector;
use crate::history::{DeviceHistory, History, Segment};
use orlop_core::torch::TorchReleases;
use std::io::{Read, Write};

/// Writes a complete history: segments at the start and the end, settings, annotations, warnings.
///
/// ```
/// use orlop_trace::formats::{binary, rmm};
///
/// let history = rmm::read_rmm("1,0:0:1:0,allocate,0x10,256,0\n".as_bytes())?;
/// let mut bytes = Vec::new();
/// binary::write_binary(&history, &mut bytes)?;
/// assert_eq!(binary::read_binary(&bytes[..])?.devices[0].events, history.devices[0].events);
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Write`](crate::TraceError::Write), [`TextTooLong`](crate::TraceError::TextTooLong);
/// [`TooManyDevices`](crate::TraceError::TooManyDevices), before anything is written.
pub fn write_binary(history: &History, writer: impl Write) -> Result<()> {
    AdmittedDevices::all(history.devices.iter().map(|device| device.device))?;
    let mut file = BinaryWriter::new(writer, EventOrder::Exact)?;
    if let Some(settings) = &history.settings {
        file.settings(settings)?;
    }
    if history.releases != TorchReleases::ALL {
        file.releases(history.releases)?;
    }
    for &warning in &history.warnings {
        file.warning(warning)?;
    }
    let sites = &history.sites;
    for annotation in &history.annotations {
        file.annotation(annotation, sites)?;
    }
    for device in &history.devices {
        file.device(device.device, device.memory)?;
        file.counted_reserved(device)?;
        for (at_end, segments) in [(false, &device.start), (true, &device.end)] {
            for segment in segments {
                file.segment(device.device, at_end, segment, sites)?;
            }
        }
        for block in &device.unplaced {
            file.unplaced(device.device, block, sites)?;
        }
        // Before the events: a replay of the file needs the pool of an event with it.
        for detail in &device.details {
            file.detail(device.device, detail, sites)?;
        }
        for (index, event) in device.events.iter().enumerate() {
            file.event(device.device, event, sites)?;
            if let Some(refusal) = device.refusal(index) {
                file.refusal(device.device, refusal, sites)?;
            }
        }
    }
    file.finish()?;
    Ok(())
}

/// Reads a history, plain or gzip. If the file is cut off or damaged, the history has everything before that,
/// and [`CutOff`](crate::history::HistoryWarning::CutOff) or
/// [`Damaged`](crate::history::HistoryWarning::Damaged) reports the position.
///
/// # Errors
///
/// [`TraceError`](crate::TraceError), if the file is of another format or version, or cannot be read.
pub fn read_binary(reader: impl Read) -> Result<History> {
    let mut reader = BinaryReader::new(reader)?;
    let mut history = History::default();
    let mut collector = EventCollector::default();
    let (mut number, mut at_end) = (0, false);
    while let Some(item) = reader.next_record(&mut history.warnings)? {
        match item {
            BinaryRecord::Event(event) => collector.push(number, event)?,
            BinaryRecord::Device(device) => {
                number = device;
                collector.device(number);
            }
            BinaryRecord::Settings(text) => history.settings = Some(reader.sites().name(text).to_owned()),
            BinaryRecord::Releases(releases) => history.releases = releases,
            BinaryRecord::Warning(warning) => warning.add_to(&mut history.warnings),
            BinaryRecord::Segment { at_end: end, segment } => {
                at_end = end;
                segments(&mut collector, number, at_end).push(segment);
            }
            BinaryRecord::Chunk(block) => {
                // The reader accepts no chunk before a segment, but the device may have changed between them.
                if let Some(segment) = segments(&mut collector, number, at_end).last_mut() {
                    segment.blocks.push(block);
                }
            }
            BinaryRecord::Unplaced(block) => collector.device(number).unplaced.push(block),
            BinaryRecord::CountedReserved(bytes) => collector.device(number).counted_reserved = Some(bytes),
            BinaryRecord::Annotation(annotation) => history.annotations.push(annotation),
            BinaryRecord::Detail(detail) => collector.device(number).details.push(detail),
            BinaryRecord::Refusal(refusal) => collector.refusal(number, refusal),
            BinaryRecord::Memory(bytes) => collector.device(number).memory = Some(bytes),
        }
    }
    let order = reader.order();
    history.sites = reader.into_sites();
    history.devices = collector.finish();
    if order == EventOrder::Nearly {
        for device in &mut history.devices {
            sort(device);
        }
    }
    Ok(history)
}

/// Sorts the events of a device by time, with the facts that refer to them.
fn sort(device: &mut DeviceHistory) {
    // Readers refuse histories of 2^32 events.
    let mut order: Vec<u32> = (0..).take(device.events.len()).collect();
    let time = |event: u32| device.events.get(event as usize).map(|event| event.time);
    order.sort_by_key(|&event| time(event));
    let mut places = vec![0; order.len()];
    for (place, &event) in (0_u32..).zip(&order) {
        places[event as usize] = place;
    }
    device.events = order.iter().filter_map(|&event| device.events.get(event as usize).copied()).collect();
    let place = |event: u32| places.get(event as usize).copied().unwrap_or(event);
    device.details.iter_mut().for_each(|detail| detail.event = place(detail.event));
    device.details.sort_by_key(|detail| detail.event);
    device.refusals.iter_mut().for_each(|refusal| refusal.event = place(refusal.event));
    device.refusals.sort_by_key(|refusal| refusal.event);
}

fn segments(collector: &mut EventCollector, number: u32, at_end: bool) -> &mut Vec<Segment> {
    let device = collector.device(number);
    if at_end { &mut device.end } else { &mut device.start }
}
