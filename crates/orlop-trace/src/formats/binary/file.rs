//! Reading and writing of whole histories.

use super::super::{AdmittedDevices, FormatError};
use super::reader::BinaryReader;
use super::record::BinaryRecord;
use super::writer::{BinaryWriter, EventOrder};
use crate::Result;
use crate::formats::event_collector::EventCollector;
use crate::history::{History, Segment};
use std::io::{Read, Write};

/// Writes a history with all that it has: segments at the start and the end, settings, annotations,
/// warnings.
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
/// [`FormatError::Write`], [`FormatError::TextTooLong`]; [`FormatError::TooManyDevices`], before anything is
/// written.
pub fn write_binary(history: &History, writer: impl Write) -> Result<()> {
    AdmittedDevices::all(history.devices.iter().map(|device| device.device))?;
    let mut file = BinaryWriter::new(writer, EventOrder::Exact)?;
    if let Some(settings) = &history.settings {
        file.settings(settings)?;
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
        for event in &device.events {
            file.event(device.device, event, sites)?;
        }
        for detail in &device.details {
            file.detail(device.device, detail, sites)?;
        }
    }
    file.finish()?;
    Ok(())
}

/// Reads a history, plain or gzip. Of a file that is cut off or damaged it has all up to there, and
/// [`CutOff`](crate::history::HistoryWarning::CutOff) or [`Damaged`](crate::history::HistoryWarning::Damaged)
/// says where that is.
///
/// # Errors
///
/// [`FormatError`], if the file is of another format or version, or cannot be read.
pub fn read_binary(reader: impl Read) -> Result<History> {
    let mut reader = BinaryReader::new(reader)?;
    let mut history = History::default();
    let mut gather = EventCollector::default();
    let (mut number, mut at_end, mut events) = (0, false, 0_u64);
    while let Some(item) = reader.next_record(&mut history.warnings)? {
        match item {
            BinaryRecord::Event(event) => {
                events += 1;
                if events > u64::from(u32::MAX) {
                    return Err(FormatError::TooManyEvents { limit: u32::MAX.into() }.into());
                }
                gather.device(number).events.push(event);
            }
            BinaryRecord::Device(device) => {
                number = device;
                gather.device(number);
            }
            BinaryRecord::Settings(text) => history.settings = Some(reader.sites().name(text).to_owned()),
            BinaryRecord::Warning(warning) => warning.add_to(&mut history.warnings),
            BinaryRecord::Segment { at_end: end, segment } => {
                at_end = end;
                segments(&mut gather, number, at_end).push(segment);
            }
            BinaryRecord::Piece(block) => {
                // The reader takes no block before a segment; a device may have come between.
                if let Some(segment) = segments(&mut gather, number, at_end).last_mut() {
                    segment.blocks.push(block);
                }
            }
            BinaryRecord::Unplaced(block) => gather.device(number).unplaced.push(block),
            BinaryRecord::CountedReserved(bytes) => gather.device(number).counted_reserved = Some(bytes),
            BinaryRecord::Annotation(annotation) => history.annotations.push(annotation),
            BinaryRecord::Detail(detail) => gather.device(number).details.push(detail),
            BinaryRecord::Memory(bytes) => gather.device(number).memory = Some(bytes),
        }
    }
    let order = reader.order();
    history.sites = reader.into_sites();
    history.devices = gather.finish();
    if order == EventOrder::Nearly {
        for device in &mut history.devices {
            device.events.sort_by_key(|event| event.time);
        }
    }
    Ok(history)
}

fn segments(gather: &mut EventCollector, number: u32, at_end: bool) -> &mut Vec<Segment> {
    let device = gather.device(number);
    if at_end { &mut device.end } else { &mut device.start }
}
