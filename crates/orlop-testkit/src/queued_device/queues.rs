//! What a queued device holds: streams with their work, and memory.

use super::DeviceCalls;
use orlop_alloc::{Error, Result};
use orlop_core::StreamId;
use std::collections::{HashMap, VecDeque};
use std::ptr::{self, NonNull};

#[derive(Default)]
pub(super) struct Queues {
    pub(super) streams: HashMap<StreamId, Queue>,
    pub(super) events: HashMap<u64, StreamPosition>,
    pub(super) recorded: u64,
    pub(super) regions: Vec<Region>,
    pub(super) memory: u64,
    pub(super) calls: DeviceCalls,
    pub(super) casts: bool,
    pub(super) fails_next: bool,
}

#[derive(Default)]
pub(super) struct Queue {
    /// The number of work items that have run.
    pub(super) done: u64,
    pub(super) work: VecDeque<Work>,
}

impl Queue {
    fn submitted(&self) -> u64 {
        self.done + self.work.len() as u64
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct StreamPosition {
    pub(super) stream: StreamId,
    pub(super) position: u64,
}

pub(super) enum Work {
    Run(Box<dyn FnOnce() + Send>),
    Wait(StreamPosition),
}

/// Memory of the device. A box would claim that nothing else points to it.
pub(super) struct Region(NonNull<[u64]>);

// SAFETY: the memory belongs to the region, wherever that is dropped.
unsafe impl Send for Region {}

impl Region {
    /// Regions begin at multiples of this many bytes.
    const ALIGN: usize = 512;

    pub(super) fn new(bytes: usize) -> Self {
        let words = vec![u64::from_ne_bytes([DIRTY; 8]); bytes.div_ceil(8) + Self::ALIGN / 8];
        Self(NonNull::from(Box::leak(words.into_boxed_slice())))
    }

    pub(super) fn address(&self) -> usize {
        self.0.as_ptr().cast::<u64>().expose_provenance().next_multiple_of(Self::ALIGN)
    }

    pub(super) fn size(&self) -> usize {
        self.0.len() * size_of::<u64>()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it came from a box in `new`, and nothing uses it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The value of bytes that nothing has written.
pub(super) const DIRTY: u8 = 0xc3;

/// An address that work takes along.
#[derive(Clone, Copy)]
pub(super) struct WorkAddress(pub(super) usize);

impl WorkAddress {
    pub(super) fn of(ptr: NonNull<u8>) -> Self {
        Self(ptr.as_ptr().expose_provenance())
    }

    pub(super) fn at(self, offset: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.0 + offset)
    }
}

impl Queues {
    pub(super) fn submit(&mut self, stream: StreamId, work: impl FnOnce() + Send + 'static) -> Result<()> {
        if std::mem::take(&mut self.fails_next) {
            return Err(Error::Backend("the queued device was told to fail".into()));
        }
        self.streams.entry(stream).or_default().work.push_back(Work::Run(Box::new(work)));
        Ok(())
    }

    pub(super) fn position(&mut self, stream: StreamId) -> StreamPosition {
        StreamPosition { stream, position: self.streams.entry(stream).or_default().submitted() }
    }

    pub(super) fn run_until(&mut self, StreamPosition { stream, position }: StreamPosition) {
        loop {
            let queue = self.streams.entry(stream).or_default();
            if queue.done >= position {
                return;
            }
            match queue.work.pop_front() {
                None => return,
                Some(Work::Run(work)) => work(),
                Some(Work::Wait(earlier)) => self.run_until(earlier),
            }
            self.streams.entry(stream).or_default().done += 1;
        }
    }
}
