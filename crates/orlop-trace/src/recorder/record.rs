//! An event in six words.

use crate::formats::device_number;
use crate::history::{EventAction, HistoryEvent, SiteId, TextId};
use orlop_alloc::engine_support::RawBlock;
use orlop_core::{Device, MemoryKind, StreamId};

/// The number of words in a record.
pub(super) const WORDS: usize = 6;

/// Bits of the last word.
const ACTION_BITS: u32 = 4;
const KIND_BITS: u32 = 8;
const DEVICE_BITS: u32 = 25;

/// A recorded event. Names are numbers of tables that are looked up later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventRecord {
    /// The clock's ticks.
    pub(super) ticks: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
    /// The number of a tag or of an annotation.
    pub(super) text: u32,
    pub(super) site: u32,
    /// 24 bits.
    pub(super) thread: u32,
    pub(super) device: u32,
    pub(super) action: EventAction,
    pub(super) kind: MemoryKind,
}

impl EventRecord {
    /// Creates a record that refers to no block.
    pub(super) fn mark(ticks: u64, action: EventAction, device: Device, thread: u32) -> Self {
        Self {
            ticks,
            address: 0,
            bytes: 0,
            stream: 0,
            text: 0,
            site: 0,
            thread,
            device: device_number(device),
            action,
            kind: MemoryKind::Default,
        }
    }

    /// Creates a record of a block, without a call site.
    #[inline(always)]
    pub(super) fn of_block(block: &RawBlock, ticks: u64, thread: u32, action: EventAction) -> Self {
        Self {
            ticks,
            address: block.ptr.addr().get() as u64,
            bytes: block.requested as u64,
            stream: block.stream.raw(),
            text: block.tag.number(),
            site: 0,
            thread,
            device: device_number(block.device),
            action,
            kind: block.kind,
        }
    }

    #[inline]
    pub(super) fn words(&self) -> [u64; WORDS] {
        let what = u64::from(self.action.code());
        let kind = (self.kind.index() as u64) << ACTION_BITS;
        let device = u64::from(self.device) << (ACTION_BITS + KIND_BITS);
        let thread = u64::from(self.thread) << (ACTION_BITS + KIND_BITS + DEVICE_BITS);
        let names = u64::from(self.text) | u64::from(self.site) << 32;
        [self.ticks, self.address, self.bytes, self.stream, names, what | kind | device | thread]
    }

    /// Decodes the words of [`EventRecord::words`]; `None` if they are invalid.
    pub(super) fn of_words([ticks, address, bytes, stream, names, rest]: [u64; WORDS]) -> Option<Self> {
        let bits = |word: u64, from: u32, count: u32| u32::try_from(word >> from & ((1 << count) - 1)).ok();
        let action = u8::try_from(bits(rest, 0, ACTION_BITS)?).ok()?;
        let kind = usize::try_from(bits(rest, ACTION_BITS, KIND_BITS)?).ok()?;
        Some(Self {
            ticks,
            address,
            bytes,
            stream,
            text: bits(names, 0, 32)?,
            site: bits(names, 32, 32)?,
            thread: bits(rest, ACTION_BITS + KIND_BITS + DEVICE_BITS, 24)?,
            device: bits(rest, ACTION_BITS + KIND_BITS, DEVICE_BITS)?,
            action: EventAction::from_code(action)?,
            kind: *MemoryKind::ALL.get(kind)?,
        })
    }

    /// Returns the stream as histories name it: 0 is the default stream of the event's device.
    pub(super) fn stream(&self) -> StreamId {
        let stream = StreamId::from_raw(self.stream);
        let is_own = stream.default_device().is_some_and(|device| device_number(device) == self.device);
        if is_own { StreamId::from_raw(0) } else { stream }
    }

    /// Converts to an event of a history, with the time and the names.
    pub(super) fn event(&self, time: u64, text: TextId, site: SiteId) -> HistoryEvent {
        HistoryEvent {
            time,
            address: self.address,
            bytes: self.bytes,
            stream: self.stream(),
            site,
            text,
            thread: self.thread,
            action: self.action,
            kind: self.kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let record = EventRecord {
            ticks: u64::MAX,
            address: u64::MAX - 1,
            bytes: 3,
            stream: 1 << 63,
            text: u32::MAX,
            site: u32::MAX - 1,
            thread: (1 << 24) - 1,
            device: device_number(Device::custom(255, u16::MAX)),
            action: EventAction::Annotation,
            kind: MemoryKind::HostPageable,
        };
        assert_eq!(EventRecord::of_words(record.words()), Some(record));
        let mark = EventRecord::mark(7, EventAction::OutOfMemory, Device::CPU, 1);
        assert_eq!(EventRecord::of_words(mark.words()), Some(mark));
        assert_eq!(EventRecord::of_words([u64::MAX; WORDS]), None);
    }
}
