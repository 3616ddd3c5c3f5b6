//! Reading a file block by block.

use super::super::{AdmittedDevices, BlockFault, Format};
use super::payload::{PayloadCursor, PayloadResult};
use super::record::BinaryRecord;
use super::side_records::warning;
use super::start_records::StartOrder;
use super::{
    ANNOTATION, AT_END, BLOCK_HEAD, CHUNK, COUNTED_RESERVED, DETAIL, DEVICE, EXPANDABLE, EventOrder, FRAME,
    HEADER, MAGIC, MAX_BLOCK, MEMORY, NEARLY, OTHER, PreviousEvent, SAME_BLOCK, SEGMENT, SETTINGS, SITE,
    SMALL, TEXT, UNPLACED, VERSION, WARNING, WITH_SITE, WITH_STREAM, WITH_THREAD,
};
use crate::history::{
    BlockState, EventAction, HistoryEvent, HistoryWarning, Segment, SegmentBlock, SiteId, Sites, TextId,
};
use crate::input;
use crate::{Result, TraceError};
use orlop_core::{MemoryKind, StreamId};
use std::fmt;
use std::io::{self, BufRead, Read as _};

/// An iterator over the events of a file. In memory it has one block, and what the events refer to:
/// [`BinaryReader::sites`].
///
/// It ends after the first error; the events before it are valid. [`TraceError::CutOff`] and
/// [`TraceError::Damaged`] have the position.
pub struct BinaryReader<'a> {
    input: Box<dyn BufRead + 'a>,
    order: EventOrder,
    payload: Vec<u8>,
    /// The bytes of the payload that were read.
    used: usize,
    /// The positions of this block and the next one.
    at: u64,
    next_at: u64,
    events: u64,
    ended: bool,
    devices: AdmittedDevices,
    start_order: StartOrder,
    tables: RecordTables,
}

/// What records refer to, and the values they are relative to.
#[derive(Debug, Default)]
pub(super) struct RecordTables {
    sites: Sites,
    /// Indexed by their numbers in the file.
    texts: Vec<TextId>,
    frames: Vec<u32>,
    stacks: Vec<SiteId>,
    device: Option<u32>,
    before: PreviousEvent,
    /// The address of the last segment.
    segment: Option<u64>,
}

impl<'a> BinaryReader<'a> {
    /// Opens a file, plain or gzip.
    ///
    /// # Errors
    ///
    /// [`TraceError::WrongFormat`], [`TraceError::Version`], [`TraceError::Read`].
    pub fn new(reader: impl io::Read + 'a) -> Result<Self> {
        let failed = TraceError::read(Format::Binary);
        let mut input = input::open(reader).map_err(&failed)?;
        let mut header = Vec::with_capacity(HEADER);
        input.by_ref().take(HEADER as u64).read_to_end(&mut header).map_err(failed)?;
        let known = header.strip_prefix(&MAGIC).and_then(|rest| rest.first_chunk::<4>());
        let Some(&[version_low, version_high, flags_low, flags_high]) = known else {
            return Err(TraceError::WrongFormat { format: Format::Binary });
        };
        let found = u16::from_le_bytes([version_low, version_high]);
        if found != VERSION {
            return Err(TraceError::Version { found, known: VERSION });
        }
        let nearly = u16::from_le_bytes([flags_low, flags_high]) & NEARLY != 0;
        Ok(Self {
            input,
            order: if nearly { EventOrder::Nearly } else { EventOrder::Exact },
            payload: Vec::new(),
            used: 0,
            at: HEADER as u64,
            next_at: HEADER as u64,
            events: 0,
            ended: false,
            devices: AdmittedDevices::default(),
            start_order: StartOrder::default(),
            tables: RecordTables::default(),
        })
    }

    /// Returns the order of the events.
    #[must_use]
    pub fn order(&self) -> EventOrder {
        self.order
    }

    /// Returns the device of the last event; 0 before the first.
    #[must_use]
    pub fn device(&self) -> u32 {
        self.tables.device.unwrap_or(0)
    }

    /// Returns the call sites and texts of the events so far.
    #[must_use]
    pub fn sites(&self) -> &Sites {
        &self.tables.sites
    }

    pub(super) fn into_sites(self) -> Sites {
        self.tables.sites
    }

    /// Reads the next record of any kind.
    fn read_record(&mut self) -> Result<Option<BinaryRecord>> {
        if self.ended {
            return Ok(None);
        }
        let item = self.advance();
        self.ended = !matches!(item, Ok(Some(_)));
        item
    }

    /// Reads the next record of any kind. A file that is cut off or damaged ends there, with a warning.
    ///
    /// # Errors
    ///
    /// [`TraceError::Read`], [`TraceError::TooManyDevices`].
    pub fn next_record(&mut self, warnings: &mut Vec<HistoryWarning>) -> Result<Option<BinaryRecord>> {
        let end = match self.read_record() {
            Err(TraceError::CutOff { at }) => HistoryWarning::CutOff { at },
            Err(TraceError::Damaged { at, .. }) => HistoryWarning::Damaged { at },
            item => return item,
        };
        warnings.push(end);
        Ok(None)
    }

    fn advance(&mut self) -> Result<Option<BinaryRecord>> {
        loop {
            let mut cursor = PayloadCursor(self.payload.get(self.used..).unwrap_or_default());
            if cursor.0.is_empty() {
                if !self.block()? {
                    return Ok(None);
                }
                continue;
            }
            let item = self.tables.record(&mut cursor);
            let item = item.map_err(|fault| TraceError::Damaged { at: self.at, fault })?;
            self.used = self.payload.len() - cursor.0.len();
            if let Some(item) = item {
                let in_order = self.start_order.check(&item);
                in_order.map_err(|fault| TraceError::Damaged { at: self.at, fault })?;
                match item {
                    BinaryRecord::Event(_) => self.events += 1,
                    BinaryRecord::Device(device) => self.devices.admit(device)?,
                    // These belong to device 0 if the file has not named a device before.
                    BinaryRecord::Memory(_)
                    | BinaryRecord::Detail(_)
                    | BinaryRecord::Unplaced(_)
                    | BinaryRecord::CountedReserved(_)
                        if self.devices.is_empty() =>
                    {
                        self.devices.admit(0)?;
                    }
                    _ => {}
                }
                return Ok(Some(item));
            }
        }
    }

    /// Reads the next block; returns `false` at the end.
    fn block(&mut self) -> Result<bool> {
        self.at = self.next_at;
        let mut head = [0; BLOCK_HEAD];
        self.fill(&mut head)?;
        let [a, b, c, d, e, f, g, h] = head;
        let (length, checksum) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let at = self.at;
        if length == 0 {
            let mut count = [0; 8];
            self.fill(&mut count)?;
            if crc32fast::hash(&count) != checksum {
                return Err(TraceError::Damaged { at, fault: BlockFault::Checksum });
            }
            if u64::from_le_bytes(count) != self.events {
                return Err(TraceError::Damaged { at, fault: BlockFault::Count });
            }
            return Ok(false);
        }
        if length as usize > MAX_BLOCK {
            return Err(TraceError::Damaged { at, fault: BlockFault::Length });
        }
        self.payload.clear();
        self.used = 0;
        // Grows as bytes arrive: a length field alone allocates nothing.
        let read = self.input.by_ref().take(length.into()).read_to_end(&mut self.payload);
        self.input_error(read.map(|_| ()))?;
        if self.payload.len() < length as usize {
            return Err(TraceError::CutOff { at });
        }
        if crc32fast::hash(&self.payload) != checksum {
            return Err(TraceError::Damaged { at, fault: BlockFault::Checksum });
        }
        self.next_at = at + BLOCK_HEAD as u64 + u64::from(length);
        self.tables.before = PreviousEvent::default();
        self.tables.device = None;
        Ok(true)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let read = self.input.read_exact(bytes);
        self.input_error(read)
    }

    /// A compressed file that is cut off ends with an unexpected end of file, too.
    fn input_error(&self, read: io::Result<()>) -> Result<()> {
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => TraceError::CutOff { at: self.at },
            _ => TraceError::read(Format::Binary)(error),
        })
    }
}

impl Iterator for BinaryReader<'_> {
    type Item = Result<HistoryEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read_record() {
                Ok(Some(BinaryRecord::Event(event))) => return Some(Ok(event)),
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl fmt::Debug for BinaryReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinaryReader")
            .field("at", &self.at)
            .field("events", &self.events)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl RecordTables {
    /// Decodes a record; returns `None` if it only defines what others refer to.
    fn record(&mut self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<Option<BinaryRecord>> {
        let tag = cursor.byte()?;
        if tag & OTHER != OTHER {
            return self.event(tag, cursor).map(BinaryRecord::Event).map(Some);
        }
        match tag {
            TEXT => {
                let length = cursor.varint()?;
                let text = std::str::from_utf8(cursor.bytes(length)?).map_err(|_| BlockFault::Text)?;
                let id = self.sites.text(text);
                self.texts.push(id);
                Ok(None)
            }
            FRAME => {
                let (function, file) = (self.text(cursor)?, self.text(cursor)?);
                let line = cursor.short()?;
                let id = self.sites.frame_of(crate::history::Frame { function, file, line });
                self.frames.push(id);
                Ok(None)
            }
            SITE => {
                let count = cursor.varint()?;
                // A frame takes at least one byte.
                let count = usize::try_from(count).ok().filter(|&count| count <= cursor.0.len());
                let count = count.ok_or(BlockFault::Record)?;
                let mut frames = Vec::with_capacity(count);
                for _ in 0..count {
                    frames.push(*self.frames.get(cursor.short()? as usize).ok_or(BlockFault::Reference)?);
                }
                let id = self.sites.stack(&frames);
                self.stacks.push(id);
                Ok(None)
            }
            DEVICE => {
                let device = cursor.short()?;
                self.device = Some(device);
                Ok(Some(BinaryRecord::Device(device)))
            }
            SETTINGS => Ok(Some(BinaryRecord::Settings(self.text(cursor)?))),
            WARNING => {
                let code = cursor.byte()?;
                let numbers = [cursor.varint()?, cursor.varint()?, cursor.varint()?];
                Ok(Some(BinaryRecord::Warning(warning(code, numbers)?)))
            }
            SEGMENT => self.segment(cursor).map(Some),
            CHUNK => self.chunk(cursor).map(Some),
            MEMORY => Ok(Some(BinaryRecord::Memory(cursor.varint()?))),
            ANNOTATION => self.annotation(cursor).map(Some),
            DETAIL => self.detail(cursor).map(Some),
            UNPLACED => self.unplaced(cursor).map(Some),
            COUNTED_RESERVED => Ok(Some(BinaryRecord::CountedReserved(cursor.varint()?))),
            _ => Err(BlockFault::Tag),
        }
    }

    fn event(&mut self, tag: u8, cursor: &mut PayloadCursor<'_>) -> PayloadResult<HistoryEvent> {
        self.device.ok_or(BlockFault::Order)?;
        let action = EventAction::from_code(tag & OTHER).ok_or(BlockFault::Tag)?;
        let mut now = self.before;
        now.time = cursor.since(now.time)?;
        if tag & SAME_BLOCK == 0 {
            now.address = cursor.since(now.address)?;
            now.bytes = cursor.varint()?;
        }
        if tag & WITH_STREAM != 0 {
            now.stream = cursor.varint()?;
        }
        if tag & WITH_SITE != 0 {
            (now.site, now.text) = (cursor.short()?, cursor.short()?);
        }
        if tag & WITH_THREAD != 0 {
            (now.thread, now.kind) = (cursor.short()?, cursor.byte()?);
        }
        self.before = now;
        Ok(HistoryEvent {
            time: now.time,
            address: now.address,
            bytes: now.bytes,
            stream: StreamId::from_raw(now.stream),
            site: self.stack_of(now.site)?,
            text: self.text_of(now.text)?,
            thread: now.thread,
            action,
            kind: MemoryKind::ALL.get(usize::from(now.kind)).copied().ok_or(BlockFault::Reference)?,
        })
    }

    fn segment(&mut self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<BinaryRecord> {
        self.device.ok_or(BlockFault::Order)?;
        let flags = cursor.byte()?;
        let segment = Segment {
            address: cursor.varint()?,
            bytes: cursor.varint()?,
            stream: StreamId::from_raw(cursor.varint()?),
            pool: (cursor.varint()?, cursor.varint()?),
            site: self.site(cursor)?,
            small: flags & SMALL != 0,
            expandable: flags & EXPANDABLE != 0,
            blocks: Vec::new(),
        };
        self.segment = Some(segment.address);
        Ok(BinaryRecord::Segment { at_end: flags & AT_END != 0, segment })
    }

    fn chunk(&mut self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<BinaryRecord> {
        let base = self.segment.ok_or(BlockFault::Order)?;
        let address = base.wrapping_add(cursor.varint()?);
        let (bytes, requested) = (cursor.varint()?, cursor.varint()?);
        let state = match cursor.byte()? {
            0 => BlockState::Live,
            1 => BlockState::Pending,
            2 => BlockState::Free,
            _ => return Err(BlockFault::Reference),
        };
        let site = self.site(cursor)?;
        Ok(BinaryRecord::Chunk(SegmentBlock { address, bytes, requested, state, site }))
    }

    pub(super) fn text(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<TextId> {
        self.text_of(cursor.short()?)
    }

    pub(super) fn site(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<SiteId> {
        self.stack_of(cursor.short()?)
    }

    fn text_of(&self, number: u32) -> PayloadResult<TextId> {
        let Some(place) = number.checked_sub(1) else { return Ok(TextId::NONE) };
        self.texts.get(place as usize).copied().ok_or(BlockFault::Reference)
    }

    fn stack_of(&self, number: u32) -> PayloadResult<SiteId> {
        let Some(place) = number.checked_sub(1) else { return Ok(SiteId::UNKNOWN) };
        self.stacks.get(place as usize).copied().ok_or(BlockFault::Reference)
    }
}
