//! Sleep: the pool gives its memory back for a while, and keeps what it knows or forgets it.

use super::KvPool;
use crate::tier::{read_pages, write_pages};
use crate::{KvError, PageTransfer, Result};
use orlop_alloc::{Block, Request, Tag};
use orlop_context::Context;
use orlop_core::{Device, MemoryKind};
use std::ops::Range;

/// What a sleeping pool keeps.
#[derive(Debug)]
pub(super) struct SleepRecord {
    /// The content of each kept run of large pages, and its bytes in the pool.
    kept: Vec<(Range<u64>, Block)>,
}

impl KvPool {
    /// Returns `true` between [`sleep_keep`](Self::sleep_keep) or [`sleep_discard`](Self::sleep_discard) and
    /// [`wake`](Self::wake).
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.sleep.is_some()
    }

    /// Copies the pages that are not empty to pinned host memory of `context`, and returns the pool's memory.
    /// Sequences and the cache stay as they are. Returns the bytes kept.
    ///
    /// # Errors
    /// If a step or a ticket is in flight, the pool sleeps already, or host memory or a copy fails. The pool
    /// is then unchanged.
    pub fn sleep_keep(&mut self, context: &Context, transfer: &mut dyn PageTransfer) -> Result<u64> {
        self.check_quiet()?;
        let (mut kept, mut bytes) = (Vec::new(), 0);
        let large = self.geometry.large_page_bytes();
        for pages in self.runs_in_use() {
            let range = u64::from(pages.start) * large..u64::from(pages.end) * large;
            let out_of_range = |_| KvError::OutOfRange { what: "the bytes that are kept" };
            let size = usize::try_from(range.end - range.start).map_err(out_of_range)?;
            let request = Request::new(size).kind(MemoryKind::HostPinned).tag(Tag::new("kv pool asleep"));
            let mut host = context.allocate(Device::CPU, &request)?;
            read_pages(transfer, &self.memory, std::slice::from_ref(&range), &mut host)?;
            bytes += range.end - range.start;
            kept.push((range, host));
        }
        self.fall_asleep(kept);
        Ok(bytes)
    }

    /// Forgets the cache, and returns the pool's memory.
    ///
    /// # Errors
    /// If there are sequences, or a step or a ticket is in flight, or the pool sleeps already. The pool is
    /// then unchanged.
    pub fn sleep_discard(&mut self) -> Result<()> {
        self.check_quiet()?;
        if self.sequences.iter().any(|state| state.is_alive) {
            return Err(KvError::NotQuiet { what: "sequences" });
        }
        self.index.clear(&mut self.blocks);
        self.fall_asleep(Vec::new());
        Ok(())
    }

    /// Allocates the pool's memory again, at other addresses, and copies what was kept back.
    ///
    /// # Errors
    /// If the pool does not sleep, or an allocation or a copy fails. The pool then sleeps on, with what it
    /// keeps.
    pub fn wake(&mut self, transfer: &mut dyn PageTransfer) -> Result<()> {
        let Some(record) = self.sleep.take() else {
            return Err(KvError::NotQuiet { what: "a pool that is awake" });
        };
        let woken = self.restore_memory(&record, transfer);
        if woken.is_err() {
            (0..self.memory.segments()).for_each(|segment| self.memory.release(segment));
            self.sleep = Some(record);
        }
        woken
    }

    fn restore_memory(&mut self, record: &SleepRecord, transfer: &mut dyn PageTransfer) -> Result<()> {
        for segment in 0..self.memory.segments() {
            let index = u32::try_from(segment).unwrap_or(u32::MAX);
            if !self.blocks.pages.is_absent(self.pages_of_segment(index).start) {
                self.memory.acquire(segment)?;
            }
        }
        for (range, host) in &record.kept {
            write_pages(transfer, &mut self.memory, std::slice::from_ref(range), host)?;
        }
        Ok(())
    }

    fn fall_asleep(&mut self, kept: Vec<(Range<u64>, Block)>) {
        // Every append has to look.
        self.sequences.iter_mut().for_each(|state| state.room = state.room.min(state.len));
        (0..self.memory.segments()).for_each(|segment| self.memory.release(segment));
        self.sleep = Some(SleepRecord { kept });
    }

    /// Lists the runs of large pages that are not empty, none of them in two segments.
    fn runs_in_use(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        let per_segment = self.pages_of_segment(0).end;
        for large in 0..self.blocks.pages.count() {
            if !self.blocks.pages.is_divided(large) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == large && !large.is_multiple_of(per_segment) => run.end += 1,
                _ => runs.push(large..large + 1),
            }
        }
        runs
    }

    /// Refuses while the pool sleeps.
    pub(super) fn check_awake(&self) -> Result<()> {
        if self.sleep.is_some() { Err(KvError::Asleep) } else { Ok(()) }
    }

    fn check_quiet(&mut self) -> Result<()> {
        self.collect_drops();
        self.check_awake()?;
        let is_open =
            !(self.open.entries.is_empty() && self.open.copies.is_empty() && self.open.releases.is_empty());
        if is_open || !self.in_flight.is_empty() {
            return Err(KvError::NotQuiet { what: "steps in flight" });
        }
        if self.tickets.is_any_open() { Err(KvError::NotQuiet { what: "open tickets" }) } else { Ok(()) }
    }
}
