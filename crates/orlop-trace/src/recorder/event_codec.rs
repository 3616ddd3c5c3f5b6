//! Encoding observed events as records, and decoding records to events with their names.

use super::names::NameLookup;
use super::record::EventRecord;
use super::refusals::RecordedRefusal;
use super::regions::RegionRecord;
use super::thread::{self, RecordingGuard};
use super::{Backtraces, RecorderInner, backtraces, locked};
use crate::history::{EventAction, HistoryEvent, RefusalDetail, RefusalOutcome, SiteId};
use orlop_alloc::{
    Event, LookupResult, OutOfMemory, Refusal, RefusalCause, RegionAction, RegionEvent,
    engine_support::RawBlock,
};
use orlop_core::{Device, MemoryKind};
use std::sync::atomic::Ordering;

impl RecorderInner {
    #[inline]
    pub(super) fn block(&self, block: &RawBlock, action: EventAction) {
        let Some(thread) = thread::number() else { return self.count_own() };
        let ticks = self.clock.ticks();
        let mut site = 0;
        if matches!(action, EventAction::Allocate | EventAction::ExternalAdopted) {
            if self.backtraces != Backtraces::NONE {
                site = self.site(block.requested as u64);
            }
        } else if block.has_stream_uses() {
            self.uses(block, ticks, thread);
        }
        // No function gets a reference to the record: it stays in registers.
        self.rings.push(&EventRecord { site, ..EventRecord::of_block(block, ticks, thread, action) });
    }

    /// Records the streams that used a block, when it is freed.
    #[cold]
    fn uses(&self, block: &RawBlock, ticks: u64, thread: u32) {
        let record = EventRecord::of_block(block, ticks, thread, EventAction::Use);
        for stream in block.stream_uses() {
            self.rings.push(&EventRecord { stream: stream.raw(), ..record });
        }
    }

    /// Captures the call site of an allocation, if it is selected.
    #[cold]
    fn site(&self, bytes: u64) -> u32 {
        let Backtraces { every, min_bytes } = self.backtraces;
        let number = self.allocations.fetch_add(1, Ordering::Relaxed);
        if bytes < min_bytes && number.checked_rem(every).is_none_or(|rest| rest != 0) {
            return 0;
        }
        let _guard = RecordingGuard::begin();
        backtraces::walk(|addresses| locked(&self.names).stack(addresses))
    }

    /// A block that grew in place is recorded as a free of its former size and an allocation of the new one.
    #[cold]
    fn grown(&self, block: &RawBlock, requested: usize) {
        let Some(thread) = thread::number() else { return self.count_own() };
        let ticks = self.clock.ticks();
        let record = EventRecord::mark(ticks, EventAction::FreeRequested, block.device, thread);
        self.rings.push(&EventRecord {
            address: block.ptr.addr().get() as u64,
            bytes: requested as u64,
            stream: block.stream.raw(),
            text: block.tag.number(),
            kind: block.kind,
            ..record
        });
        self.block(block, EventAction::Allocate);
    }

    #[cold]
    pub(super) fn raw_freed(&self, address: usize, found: &LookupResult) {
        let Some(thread) = thread::number() else { return self.count_own() };
        // Raw addresses belong to the host.
        let record = EventRecord::mark(self.clock.ticks(), EventAction::FreeRequested, Device::CPU, thread);
        let (address, bytes) = (address as u64, found.requested as u64);
        self.rings.push(&EventRecord { address, bytes, kind: found.kind, ..record });
    }

    #[cold]
    pub(super) fn rare(&self, event: &Event<'_>) {
        match event {
            Event::OutOfMemory { report } => {
                let Some(thread) = thread::number() else { return self.count_lost() };
                let _guard = RecordingGuard::begin();
                self.refusals.log(report.number, self.refusal(report, thread));
            }
            Event::Settled { refusals, is_served, .. } => {
                let _guard = RecordingGuard::begin();
                self.refusals.settle(refusals, *is_served);
            }
            Event::Region { event, .. } => self.region(event),
            Event::Grown { block, requested, .. } => self.grown(block, *requested),
            Event::Reclaimed { step, kind, bytes } => {
                self.mark(&format!("reclaimed: {step}"), Device::CPU, *bytes, *kind);
            }
            Event::FreeRefused { error, .. } => {
                self.mark(&format!("free refused: {error}"), Device::CPU, 0, MemoryKind::Default);
            }
            _ => {}
        }
    }

    /// Returns a refusal as one that is final.
    fn refusal(&self, report: &OutOfMemory, thread: u32) -> RecordedRefusal {
        let (cause, outcome) = (report.refusal.cause(), RefusalOutcome::Failed);
        let mark = EventRecord::mark(self.clock.ticks(), outcome.action(cause), report.device, thread);
        let record = EventRecord {
            address: bytes_left(report),
            bytes: report.requested as u64,
            text: report.tag.number(),
            kind: report.kind,
            ..mark
        };
        let refuser = if cause == RefusalCause::Budget { report.kind.name() } else { &*report.allocator };
        RecordedRefusal { record, cause, refuser: refuser.into(), outcome }
    }

    fn region(&self, event: &RegionEvent) {
        let action = match event.action {
            RegionAction::Reserved => EventAction::RegionReserved,
            RegionAction::Released => EventAction::RegionReleased,
            RegionAction::Mapped => EventAction::Mapped,
            RegionAction::Unmapped => EventAction::Unmapped,
            _ => return,
        };
        let ticks = event.at.unwrap_or_else(|| self.clock.ticks());
        let (address, bytes, stream) = (event.address as u64, event.bytes as u64, event.stream.raw());
        let thread = thread::number();
        let record = EventRecord::mark(ticks, action, event.device, thread.unwrap_or(0));
        let record =
            RegionRecord { record: EventRecord { address, bytes, stream, ..record }, already: event.already };
        if thread.is_some() {
            let _guard = RecordingGuard::begin();
            self.regions.log(record);
        } else if !self.regions.defer(record) {
            self.count_lost();
        }
    }

    #[cold]
    pub(super) fn mark(&self, text: &str, device: Device, bytes: u64, kind: MemoryKind) {
        let Some(thread) = thread::number() else { return self.count_lost() };
        let _guard = RecordingGuard::begin();
        let record = EventRecord::mark(self.clock.ticks(), EventAction::Annotation, device, thread);
        let text = locked(&self.names).text(text);
        self.rings.push(&EventRecord { text, bytes, kind, ..record });
    }

    /// Counts an event of a block that the recorder itself allocates or frees.
    #[cold]
    fn count_own(&self) {
        self.own.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts another event that cannot be recorded, because its thread is recording.
    #[cold]
    fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Converts records of blocks, of regions and of refusals to events with their devices, in order of time.
    pub(super) fn decode(
        &self,
        mut blocks: Vec<EventRecord>,
        regions: Vec<EventRecord>,
        refusals: &[RecordedRefusal],
        lookup: &mut NameLookup,
    ) -> Vec<DecodedEvent> {
        // Refusals have no call site: their records have the number of the refusal instead.
        blocks.extend((1..).zip(refusals).map(|(site, refusal)| EventRecord { site, ..refusal.record }));
        let records = in_order(blocks, regions);
        let names = locked(&self.names);
        let event = |record: &EventRecord| {
            let time = self.clock.nanoseconds(self.zero, record.ticks.max(self.zero));
            let text = match record.action {
                EventAction::Annotation => lookup.text(record.text, &names),
                _ => lookup.tag(record.text),
            };
            if !matches!(record.action, EventAction::OutOfMemory | EventAction::Refused) {
                let event = record.event(time, text, lookup.site(record.site, &names));
                return DecodedEvent { device: record.device, event, refusal: None };
            }
            let refusal = (record.site as usize).checked_sub(1).and_then(|index| refusals.get(index));
            let refusal = refusal.map(|refusal| RefusalDetail {
                event: 0,
                cause: refusal.cause,
                refuser: lookup.sites.text(&refusal.refuser),
                outcome: refusal.outcome,
            });
            let event = record.event(time, text, SiteId::UNKNOWN);
            DecodedEvent { device: record.device, event, refusal }
        };
        records.iter().map(event).collect()
    }
}

/// An event with its device's number and, of a refusal, what is known about it.
#[derive(Debug)]
pub(super) struct DecodedEvent {
    pub(super) device: u32,
    pub(super) event: HistoryEvent,
    pub(super) refusal: Option<RefusalDetail>,
}

/// Merges records in order of time. At equal times a region is reserved before its blocks are allocated and
/// released after they are freed, because the clock may be coarse. The order of regions is preserved, and so
/// is that of blocks.
fn in_order(mut blocks: Vec<EventRecord>, mut regions: Vec<EventRecord>) -> Vec<EventRecord> {
    blocks.sort_by_key(|record| record.ticks);
    regions.sort_by_key(|record| record.ticks);
    let mut records = Vec::with_capacity(blocks.len() + regions.len());
    let (mut blocks, mut regions) = (blocks.into_iter().peekable(), regions.into_iter().peekable());
    while let Some(region) = regions.next() {
        let reserves_next =
            regions.peek().is_some_and(|next| next.ticks == region.ticks && next.action.adds_region());
        let first = reserves_next || region.action.adds_region();
        let is_before =
            |block: &EventRecord| block.ticks < region.ticks || block.ticks == region.ticks && !first;
        while let Some(block) = blocks.next_if(is_before) {
            records.push(block);
        }
        records.push(region);
    }
    records.extend(blocks);
    records
}

/// Returns the bytes that were left within the limit when a request failed; 0 without a limit.
fn bytes_left(report: &OutOfMemory) -> u64 {
    let used = if report.refusal == Refusal::Budget { report.live } else { report.reserved };
    report.limit.map_or(0, |limit| limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_reserved_before_blocks_of_the_same_time_and_released_after_them() {
        use EventAction::{Allocate, FreeRequested, Mapped, RegionReleased, RegionReserved, Unmapped};
        let records = |actions: &[(u64, EventAction)]| -> Vec<EventRecord> {
            let record = |&(ticks, action)| EventRecord::mark(ticks, action, Device::CPU, 1);
            actions.iter().map(record).collect()
        };
        let blocks =
            [(5, FreeRequested), (3, Allocate), (3, FreeRequested), (5, Allocate), (8, FreeRequested)];
        let regions =
            [(3, RegionReserved), (5, RegionReleased), (5, Mapped), (8, Unmapped), (9, RegionReserved)];
        let expected = [
            (3, RegionReserved),
            (3, Allocate),
            (3, FreeRequested),
            // The reservation may reuse the released addresses.
            (5, RegionReleased),
            (5, Mapped),
            (5, FreeRequested),
            (5, Allocate),
            (8, FreeRequested),
            (8, Unmapped),
            (9, RegionReserved),
        ];
        assert_eq!(in_order(records(&blocks), records(&regions)), records(&expected));
    }
}
