//! The decoding of records from the payload of a block.

use super::super::BlockFault;
use super::payload::{PayloadCursor, PayloadResult};
use super::record::BinaryRecord;
use super::side_records::warning;
use super::tables::RecordTables;
use super::{
    ANNOTATION, AT_END, CHUNK, COUNTED_RESERVED, DETAIL, DEVICE, EXPANDABLE, FRAME, MEMORY, OTHER, REFUSAL,
    RELEASES, SAME_BLOCK, SEGMENT, SETTINGS, SITE, SMALL, TEXT, UNPLACED, WARNING, WITH_SITE, WITH_STREAM,
    WITH_THREAD,
};
use crate::history::{BlockState, EventAction, Frame, HistoryEvent, Segment, SegmentBlock};
use orlop_core::{MemoryKind, StreamId};

impl RecordTables {
    /// Decodes a record; returns `None` if it only defines what others refer to.
    pub(super) fn record(&mut self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<Option<BinaryRecord>> {
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
                let id = self.sites.frame_of(Frame { function, file, line });
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
            RELEASES => self.releases(cursor).map(Some),
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
            REFUSAL => self.refusal(cursor).map(Some),
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
}
