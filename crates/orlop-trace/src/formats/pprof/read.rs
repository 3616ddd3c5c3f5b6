//! Reading profiles.

use super::PprofFault;
use super::wire::{FieldValue, Fields};
use crate::formats::event_collector::EventCollector;
use crate::formats::{AdmittedDevices, Format, device_number};
use crate::history::{BlockState, Frame, History, SegmentBlock, SiteId, Sites, TextId};
use crate::{Result, TraceError, input};
use orlop_core::Device;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

/// The maximum length of a profile.
const MAX_BYTES: u64 = 1 << 28;

/// The maximum number of entries of all [`TABLES`] together; of the bytes of a sample; and of blocks.
const MAX_ENTRIES: usize = 1 << 24;
const TABLES: &str = "strings, functions, locations and lines";

/// The blocks and the frames of call sites that a profile of any length may have. A longer one may have a
/// block for each [`BYTES_PER_BLOCK`] of its bytes and [`FRAMES_PER_BYTE`] frames for each byte, up to
/// [`MAX_ENTRIES`] blocks and [`MAX_FRAMES`] frames.
const MIN_LIMIT: u64 = 1 << 16;
const BYTES_PER_BLOCK: u64 = 64;
const FRAMES_PER_BYTE: u64 = 4;
const MAX_FRAMES: u64 = 1 << 26;

/// The maximum length of the text of a label that is used, and of the name of a function or a file.
const MAX_LABEL: usize = 256;
const MAX_NAME: usize = 1 << 16;

/// The maximum length of a value's description at the beginning of a file.
const MAX_VALUE_TYPE: usize = 32;

/// The alignment of blocks.
const ALIGNMENT: u64 = 512;

/// Returns `true` if a file that begins with these (uncompressed) bytes is a profile.
#[must_use]
pub fn sniff(head: &[u8]) -> bool {
    let [0x0a, length, rest @ ..] = head else { return false };
    let Some(value) = rest.get(..usize::from(*length)) else { return false };
    let is_index = |field| matches!(field, Ok((1 | 2, FieldValue::Number(_))));
    !value.is_empty() && value.len() <= MAX_VALUE_TYPE && Fields(value).all(is_index)
}

/// Reads a profile, plain or compressed.
///
/// # Errors
///
/// [`TraceError::Pprof`]; [`TraceError::ExcessiveSharing`]; [`TraceError::TooManyDevices`];
/// [`TraceError::Read`] and [`TraceError::Bomb`] for bytes that cannot be read.
pub fn read_pprof(reader: impl Read) -> Result<History> {
    let read = TraceError::read(Format::Pprof);
    let mut bytes = Vec::new();
    let input = input::open(reader).map_err(&read)?;
    input.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(PprofFault::TooLong.into());
    }
    let tables = Tables::of(&bytes)?;
    let columns = tables.columns()?;
    let bytes_read = bytes.len() as u64;
    let mut builder = ProfileBuilder { tables, columns, bytes: bytes_read, ..ProfileBuilder::default() };
    for field in Fields(&bytes) {
        if let (2, FieldValue::Bytes(sample)) = field? {
            builder.sample(sample)?;
        }
    }
    builder.finish()
}

/// What samples refer to.
#[derive(Default)]
struct Tables<'a> {
    strings: Vec<&'a [u8]>,
    /// The types and units of the values, as indices of strings.
    value_types: Vec<(u64, u64)>,
    /// Names and files by id.
    functions: HashMap<u64, (u64, u64)>,
    /// Functions and lines by id, innermost first.
    locations: HashMap<u64, Vec<(u64, u64)>>,
}

impl<'a> Tables<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self> {
        let mut tables = Self::default();
        let mut entries = 0;
        for field in Fields(bytes) {
            let field = field?;
            entries += usize::from(matches!(field.0, 1 | 4..=6));
            require_at_most(MAX_ENTRIES, entries, TABLES)?;
            match field {
                (1, value) => tables.value_types.push(pair(value, 1, 2)?),
                (4, value) => {
                    let (mut id, mut lines) = (0, Vec::new());
                    for field in Fields(value.bytes()) {
                        match field? {
                            (1, value) => id = value.number(),
                            (4, line) => {
                                require_at_most(MAX_ENTRIES, entries + lines.len(), TABLES)?;
                                lines.push(pair(line, 1, 2)?);
                            }
                            _ => {}
                        }
                    }
                    entries += lines.len();
                    tables.locations.insert(id, lines);
                }
                (5, value) => {
                    tables.functions.insert(pair(value, 1, 1)?.0, pair(value, 2, 4)?);
                }
                (6, value) => tables.strings.push(value.bytes()),
                _ => {}
            }
        }
        Ok(tables)
    }

    fn string(&self, index: u64) -> &'a [u8] {
        usize::try_from(index).ok().and_then(|index| self.strings.get(index)).copied().unwrap_or_default()
    }

    /// Returns at most `max` bytes of a string, as text.
    fn text(&self, index: u64, max: usize) -> Cow<'a, str> {
        let text = self.string(index);
        String::from_utf8_lossy(text.get(..max).unwrap_or(text))
    }

    fn label(&self, index: u64) -> String {
        self.text(index, MAX_LABEL).into_owned()
    }

    /// Returns the places of the number of blocks, if it is known, and of their bytes among the values.
    fn columns(&self) -> Result<ValueColumns> {
        let has_unit = |at: &(u64, u64), unit: &str| self.string(at.1) == unit.as_bytes();
        let find = |unit: &str, names: [&str; 2]| {
            let named = |name: &str| {
                let is_named = |at: &(u64, u64)| self.string(at.0) == name.as_bytes() && has_unit(at, unit);
                self.value_types.iter().position(is_named)
            };
            let last = || self.value_types.iter().rposition(|at| has_unit(at, unit));
            names.into_iter().find_map(named).or_else(last)
        };
        let bytes = find("bytes", ["space", "inuse_space"]).ok_or(PprofFault::NoBytes)?;
        Ok(ValueColumns { bytes, count: find("count", ["allocations", "inuse_objects"]) })
    }
}

#[derive(Default)]
struct ValueColumns {
    bytes: usize,
    count: Option<usize>,
}

fn require_at_most(limit: usize, count: usize, entries: &'static str) -> Result<(), PprofFault> {
    if count > limit { Err(PprofFault::TooMany { entries, limit }) } else { Ok(()) }
}

/// Returns two numbers of a message.
fn pair(message: FieldValue<'_>, first: u64, second: u64) -> Result<(u64, u64), PprofFault> {
    let mut pair = (0, 0);
    for field in Fields(message.bytes()) {
        let (number, value) = field?;
        if number == first {
            pair.0 = value.number();
        }
        if number == second {
            pair.1 = value.number();
        }
    }
    Ok(pair)
}

#[derive(Default)]
struct ProfileBuilder<'a> {
    tables: Tables<'a>,
    columns: ValueColumns,
    sites: Sites,
    collector: EventCollector,
    admitted: AdmittedDevices,
    /// The ids of the frames that were read, by function and line.
    frames: HashMap<(u64, u64), u32>,
    /// The ids of the names that were read, by string: many functions can share a long one.
    names: HashMap<u64, TextId>,
    /// Blocks of samples without a device.
    elsewhere: Vec<SegmentBlock>,
    /// The length of the profile.
    bytes: u64,
    blocks: usize,
    /// The number of frames in all samples.
    depth: u64,
    next_address: u64,
}

impl ProfileBuilder<'_> {
    fn sample(&mut self, sample: &[u8]) -> Result<()> {
        require_at_most(MAX_ENTRIES, sample.len(), "bytes in a sample")?;
        let (mut frames, mut values) = (Vec::new(), Vec::new());
        let (mut device, mut kind) = (None, None);
        for field in Fields(sample) {
            match field? {
                (1, value) => value.add_to(&mut frames)?,
                (2, value) => value.add_to(&mut values)?,
                (3, label) => {
                    let (key, text) = pair(label, 1, 2)?;
                    match self.tables.string(key) {
                        b"device" => device = Some(parse_device(&self.tables.label(text))),
                        b"kind" => kind = Some(self.tables.label(text)),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        let value = |column: usize| {
            let value = values.get(column).copied().unwrap_or(0);
            if i64::try_from(value).is_ok() { Ok(value) } else { Err(PprofFault::Negative) }
        };
        let bytes = value(self.columns.bytes)?;
        let count = self.columns.count.map_or(Ok(1), value)?.clamp(1, bytes.max(1));
        if bytes == 0 {
            return Ok(());
        }
        // A few bytes can claim any number of blocks: what exceeds the limit is one block.
        let limit = (self.bytes / BYTES_PER_BLOCK).max(MIN_LIMIT);
        let is_within = (self.blocks as u64).saturating_add(count) <= limit;
        let count = if is_within { count } else { 1 };
        self.blocks = usize::try_from(count).map_or(usize::MAX, |count| self.blocks.saturating_add(count));
        require_at_most(MAX_ENTRIES, self.blocks, "blocks")?;
        let site = self.site(&frames, kind)?;
        let blocks = match device {
            Some(number) => {
                self.admitted.admit(number)?;
                &mut self.collector.device(number).unplaced
            }
            None => &mut self.elsewhere,
        };
        for block in 0..count {
            let bytes = bytes / count + u64::from(block < bytes % count);
            let address = self.next_address;
            let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
            self.next_address = end.ok_or(PprofFault::Overflow)?;
            blocks.push(SegmentBlock { address, bytes, requested: bytes, state: BlockState::Live, site });
        }
        Ok(())
    }

    fn site(&mut self, locations: &[u64], kind: Option<String>) -> Result<SiteId> {
        let Self { tables, sites, frames, names, depth, bytes, .. } = self;
        let mut stack = Vec::new();
        for location in locations {
            for &(function, line) in tables.locations.get(location).map_or(&[][..], |lines| lines) {
                *depth += 1;
                if *depth > bytes.saturating_mul(FRAMES_PER_BYTE).clamp(MIN_LIMIT, MAX_FRAMES) {
                    return Err(TraceError::ExcessiveSharing { records: *depth, bytes: *bytes });
                }
                let frame = frames.entry((function, line)).or_insert_with(|| {
                    let (name, file) = tables.functions.get(&function).copied().unwrap_or_default();
                    let [function, file] = [name, file].map(|string| {
                        *names.entry(string).or_insert_with(|| sites.text(&tables.text(string, MAX_NAME)))
                    });
                    sites.frame_of(Frame { function, file, line: u32::try_from(line).unwrap_or(0) })
                });
                stack.push(*frame);
            }
        }
        if let Some(kind) = kind.filter(|_| stack.is_empty()) {
            stack.push(sites.frame(&kind, "", 0));
        }
        Ok(sites.stack(&stack))
    }

    fn finish(mut self) -> Result<History> {
        if !self.elsewhere.is_empty() {
            let first = self.collector.numbers().next().unwrap_or(0);
            self.collector.device(first).unplaced.append(&mut self.elsewhere);
        }
        Ok(History { devices: self.collector.finish(), sites: self.sites, ..History::default() })
    }
}

/// Returns the number of a device by its name: `cuda:1`, `TFRT_CPU_0`, `TPU_3(process=0,(1,1,0,0))`.
fn parse_device(name: &str) -> u32 {
    if let Ok(device) = name.parse::<Device>() {
        return device_number(device);
    }
    let digits = name.split(|character: char| !character.is_ascii_digit()).find(|part| !part.is_empty());
    let index = digits.and_then(|digits| digits.parse::<u16>().ok()).unwrap_or(0);
    match name.to_ascii_lowercase().contains("cpu") {
        true => Device::new(orlop_core::DeviceType::Cpu, index).map_or(0, device_number),
        false => u32::from(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_their_names() {
        let host = device_number(Device::CPU);
        for (name, number) in [
            ("cuda:1", 1),
            ("TFRT_CPU_0", host),
            ("cpu", host),
            ("TPU_3(process=0,(1,1,0,0))", 3),
            ("GPU", 0),
            ("99999", 0),
        ] {
            assert_eq!(parse_device(name), number, "{name}");
        }
    }
}
