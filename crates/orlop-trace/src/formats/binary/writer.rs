//! Writing a file block by block.

use super::super::{AdmittedDevices, Format};
use super::payload::{ShortRecord, put};
use super::{
    AT_END, BLOCK, CHUNK, DEVICE, EXPANDABLE, FRAME, MAGIC, MAX_BLOCK, MEMORY, NEARLY, PreviousEvent,
    SAME_BLOCK, SEGMENT, SETTINGS, SITE, SMALL, TEXT, VERSION, WITH_SITE, WITH_STREAM, WITH_THREAD,
};
use crate::history::{BlockState, Frame, HistoryEvent, Segment, SegmentBlock, SiteId, Sites, TextId};
use crate::{Result, TraceError};
use std::collections::HashMap;
use std::fmt;
use std::io::Write;

/// The order of the events of a device in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventOrder {
    /// In order of time.
    #[default]
    Exact,
    /// Nearly in order of time: the threads' events were written in batches. Readers of whole files sort
    /// them.
    Nearly,
}

/// Writes a file event by event. In memory it has one block, and what the events refer to.
///
/// ```
/// use orlop_trace::formats::binary::{BinaryReader, BinaryWriter, EventOrder};
/// use orlop_trace::formats::rmm;
///
/// let history = rmm::read_rmm("1,0:0:1:0,allocate,0x10,256,0\n".as_bytes())?;
/// let mut writer = BinaryWriter::new(Vec::new(), EventOrder::Exact)?;
/// for event in &history.devices[0].events {
///     writer.event(0, event, &history.sites)?;
/// }
/// let bytes = writer.finish()?;
///
/// let mut reader = BinaryReader::new(&bytes[..])?;
/// let event = reader.next().expect("one was written")?;
/// assert_eq!((reader.device(), event.bytes), (0, 256));
/// assert!(reader.next().is_none());
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
pub struct BinaryWriter<W: Write> {
    writer: W,
    payload: Vec<u8>,
    before: PreviousEvent,
    /// The device of the records so far in this block.
    device: Option<u32>,
    devices: AdmittedDevices,
    /// Numbers in the file, by index in the table of sites; 0 if not written yet.
    texts: Vec<u32>,
    text_count: u32,
    sites: Vec<u32>,
    site_count: u32,
    frames: HashMap<Frame, u32>,
    events: u64,
    written: u64,
}

impl<W: Write> BinaryWriter<W> {
    /// Creates a file. The writer is called with whole blocks, so it needs no buffer.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`].
    pub fn new(writer: W, order: EventOrder) -> Result<Self> {
        let mut this = Self {
            writer,
            payload: Vec::with_capacity(BLOCK + 256),
            before: PreviousEvent::default(),
            device: None,
            devices: AdmittedDevices::default(),
            texts: Vec::new(),
            text_count: 0,
            sites: Vec::new(),
            site_count: 0,
            frames: HashMap::new(),
            events: 0,
            written: 0,
        };
        let flags = match order {
            EventOrder::Exact => 0,
            EventOrder::Nearly => NEARLY,
        };
        this.put_bytes(&MAGIC)?;
        this.put_bytes(&VERSION.to_le_bytes())?;
        this.put_bytes(&flags.to_le_bytes())?;
        Ok(this)
    }

    /// Returns the number of events written.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of bytes passed to the writer.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written
    }

    /// Writes an event of a device. `sites` must be the same table in each call; it may have grown.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`], [`TraceError::TextTooLong`]; [`TraceError::TooManyDevices`] if the event's
    /// device exceeds the limit; nothing of it is written then.
    pub fn event(&mut self, device: u32, event: &HistoryEvent, sites: &Sites) -> Result<()> {
        self.admit(device)?;
        let (site, text) = (self.site(event.site, sites)?, self.text(event.text, sites)?);
        self.begin_device(device);
        let now = PreviousEvent {
            time: event.time,
            address: event.address,
            bytes: event.bytes,
            stream: event.stream.raw(),
            site,
            text,
            thread: event.thread,
            kind: kind_code(event.kind),
        };
        let before = std::mem::replace(&mut self.before, now);
        let same_block = (now.address, now.bytes) == (before.address, before.bytes);
        let same_stream = now.stream == before.stream;
        let same_site = (now.site, now.text) == (before.site, before.text);
        let same_thread = (now.thread, now.kind) == (before.thread, before.kind);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        // Flags and kind, and the numbers: time, address, bytes, stream, site, text, thread.
        let mut record = ShortRecord::new::<{ 2 + 4 * ShortRecord::NUMBER + 3 * 5 }>();
        record.push(
            event.action.code()
                | flag(same_block, SAME_BLOCK)
                | flag(!same_stream, WITH_STREAM)
                | flag(!same_site, WITH_SITE)
                | flag(!same_thread, WITH_THREAD),
        );
        record.put_since(now.time, before.time);
        if !same_block {
            record.put_since(now.address, before.address);
            record.put(now.bytes);
        }
        if !same_stream {
            record.put(now.stream);
        }
        if !same_site {
            record.put(site.into());
            record.put(text.into());
        }
        if !same_thread {
            record.put(now.thread.into());
            record.push(now.kind);
        }
        record.append_to(&mut self.payload);
        self.events += 1;
        self.end_of_record()
    }

    /// Writes a device, even if it has no events, and the size of its memory.
    pub(super) fn device(&mut self, device: u32, memory: Option<u64>) -> Result<()> {
        self.admit(device)?;
        self.begin_device(device);
        if let Some(bytes) = memory {
            self.payload.push(MEMORY);
            put(&mut self.payload, bytes);
        }
        self.end_of_record()
    }

    pub(super) fn settings(&mut self, settings: &str) -> Result<()> {
        let text = self.new_text(settings)?;
        self.payload.push(SETTINGS);
        put(&mut self.payload, text.into());
        self.end_of_record()
    }

    /// Returns the payload to which the next record is appended.
    pub(super) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.payload
    }

    /// Writes a segment of the start or of the end, with its chunks.
    pub(super) fn segment(
        &mut self,
        device: u32,
        at_end: bool,
        segment: &Segment,
        sites: &Sites,
    ) -> Result<()> {
        let site = self.site(segment.site, sites)?;
        self.begin_device(device);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(at_end, AT_END) | flag(segment.small, SMALL) | flag(segment.expandable, EXPANDABLE);
        self.payload.extend([SEGMENT, flags]);
        let Segment { address, bytes, stream, pool, .. } = *segment;
        for number in [address, bytes, stream.raw(), pool.0, pool.1, site.into()] {
            put(&mut self.payload, number);
        }
        self.end_of_record()?;
        for block in &segment.blocks {
            self.chunk(device, segment.address, block, sites)?;
        }
        Ok(())
    }

    fn chunk(&mut self, device: u32, base: u64, block: &SegmentBlock, sites: &Sites) -> Result<()> {
        let site = self.site(block.site, sites)?;
        self.begin_device(device);
        self.payload.push(CHUNK);
        for number in [block.address.wrapping_sub(base), block.bytes, block.requested] {
            put(&mut self.payload, number);
        }
        self.payload.push(match block.state {
            BlockState::Live => 0,
            BlockState::Pending => 1,
            BlockState::Free => 2,
        });
        put(&mut self.payload, site.into());
        self.end_of_record()
    }

    /// Checks, before the first record of a device, that the number of devices stays within the limit of
    /// readers.
    fn admit(&mut self, device: u32) -> Result<()> {
        if self.device == Some(device) { Ok(()) } else { self.devices.admit(device) }
    }

    /// Begins the records of a device.
    pub(super) fn begin_device(&mut self, device: u32) {
        if self.device != Some(device) {
            self.device = Some(device);
            self.payload.push(DEVICE);
            put(&mut self.payload, device.into());
        }
    }

    /// Returns the number of a text in the file and writes it if it is new.
    pub(super) fn text(&mut self, text: TextId, sites: &Sites) -> Result<u32> {
        let index = text.index();
        if let Some(&known) = self.texts.get(index).filter(|&&known| known > 0) {
            return Ok(known);
        }
        let name = sites.name(text);
        if name.is_empty() {
            return Ok(0);
        }
        let number = self.new_text(name)?;
        store(&mut self.texts, index, number);
        Ok(number)
    }

    fn new_text(&mut self, text: &str) -> Result<u32> {
        const LIMIT: usize = MAX_BLOCK / 2;
        if text.is_empty() {
            return Ok(0);
        }
        if text.len() > LIMIT {
            return Err(TraceError::TextTooLong { bytes: text.len(), limit: LIMIT });
        }
        if self.payload.len() + text.len() > LIMIT {
            self.end_block()?;
        }
        self.payload.push(TEXT);
        put(&mut self.payload, text.len() as u64);
        self.payload.extend_from_slice(text.as_bytes());
        self.text_count += 1;
        Ok(self.text_count)
    }

    pub(super) fn site(&mut self, site: SiteId, sites: &Sites) -> Result<u32> {
        let index = site.index();
        if let Some(&known) = self.sites.get(index).filter(|&&known| known > 0) {
            return Ok(known);
        }
        if index == 0 || sites.frames(site).len() == 0 {
            return Ok(0);
        }
        let mut numbers = Vec::new();
        for frame in sites.frames(site) {
            numbers.push(self.frame(frame, sites)?);
        }
        self.payload.push(SITE);
        put(&mut self.payload, numbers.len() as u64);
        for number in numbers {
            put(&mut self.payload, number.into());
        }
        self.site_count += 1;
        store(&mut self.sites, index, self.site_count);
        Ok(self.site_count)
    }

    fn frame(&mut self, frame: Frame, sites: &Sites) -> Result<u32> {
        if let Some(&known) = self.frames.get(&frame) {
            return Ok(known);
        }
        let (function, file) = (self.text(frame.function, sites)?, self.text(frame.file, sites)?);
        let number = u32::try_from(self.frames.len()).unwrap_or(0);
        self.payload.push(FRAME);
        for field in [function, file, frame.line] {
            put(&mut self.payload, field.into());
        }
        self.frames.insert(frame, number);
        Ok(number)
    }

    pub(super) fn end_of_record(&mut self) -> Result<()> {
        if self.payload.len() >= BLOCK { self.end_block() } else { Ok(()) }
    }

    /// Writes the current block and flushes the writer.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`].
    pub fn flush(&mut self) -> Result<()> {
        self.end_block()?;
        self.writer.flush().map_err(TraceError::write(Format::Binary))
    }

    fn end_block(&mut self) -> Result<()> {
        if self.payload.is_empty() {
            return Ok(());
        }
        let mut payload = std::mem::take(&mut self.payload);
        let limit = MAX_BLOCK;
        let length = u32::try_from(payload.len()).ok().filter(|&length| length as usize <= limit);
        let length = length.ok_or(TraceError::TextTooLong { bytes: payload.len(), limit })?;
        self.put_bytes(&length.to_le_bytes())?;
        self.put_bytes(&crc32fast::hash(&payload).to_le_bytes())?;
        self.put_bytes(&payload)?;
        payload.clear();
        payload.shrink_to(2 * BLOCK);
        self.payload = payload;
        self.before = PreviousEvent::default();
        self.device = None;
        Ok(())
    }

    /// Writes the last block and the end. Returns the writer.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`].
    pub fn finish(mut self) -> Result<W> {
        self.end_block()?;
        let count = self.events.to_le_bytes();
        self.put_bytes(&0_u32.to_le_bytes())?;
        self.put_bytes(&crc32fast::hash(&count).to_le_bytes())?;
        self.put_bytes(&count)?;
        self.writer.flush().map_err(TraceError::write(Format::Binary))?;
        Ok(self.writer)
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).map_err(TraceError::write(Format::Binary))?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

impl<W: Write> fmt::Debug for BinaryWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinaryWriter")
            .field("events", &self.events)
            .field("bytes", &self.written)
            .finish_non_exhaustive()
    }
}

fn store(numbers: &mut Vec<u32>, index: usize, number: u32) {
    if numbers.len() <= index {
        numbers.resize(index + 1, 0);
    }
    numbers[index] = number;
}

fn kind_code(kind: orlop_core::MemoryKind) -> u8 {
    u8::try_from(kind.index()).unwrap_or(0)
}
