//! The region events of a recorder, and the regions that are reserved.
//!
//! A program reserves most of its regions early, and a ring overwrites old events: blocks would remain
//! without a region. So region events, which are rare, are kept here behind a lock and not in the rings. When
//! the log is full, the oldest event is evicted, and its effect is kept: a history begins with the regions
//! that were reserved before the first remaining event, and a file gets them as events.
//!
//! # Redundant events
//!
//! An observer that watches one allocator in two ways receives each region event twice. An event that changes
//! nothing is redundant and is not returned to readers. But events of two allocators arrive in any order: one
//! may reserve addresses that another released, and its event may arrive first. So events are kept in order
//! of their stamps, redundant or not, and redundancy is determined in that order.
//!
//! An observer that is set again receives all existing regions again. These events are only logged if they
//! are not redundant when they arrive; otherwise they would fill the log.
//!
//! # Events during recording
//!
//! A recorder allocates memory, also with the lock of this module held, and possibly from an observed
//! allocator. Region events that are delivered at that time are deferred: they are stored in a buffer that
//! was allocated in advance, and logged at the next opportunity.

use super::locked;
use super::record::EventRecord;
use super::region_table::RegionTable;
use crate::history::{Segment, SizeRules};
use std::collections::VecDeque;
use std::sync::Mutex;

/// The maximum number of deferred events. An allocator delivers a few region events at a time.
const MAX_DEFERRED: usize = 256;

/// Records region events and the set of reserved regions.
#[derive(Debug)]
pub(super) struct RegionRecorder {
    log: Mutex<RegionLog>,
    /// Never exceeds its initial capacity, so that nothing is allocated under its lock. Locked last.
    deferred: Mutex<VecDeque<RegionRecord>>,
}

/// A region event before it is logged.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionRecord {
    pub(super) record: EventRecord,
    /// Whether the region existed before the observer was set.
    pub(super) already: bool,
}

#[derive(Debug)]
struct RegionLog {
    capacity: usize,
    rules: SizeRules,
    /// The regions before the first of the events.
    before: RegionTable,
    /// In order of their stamps.
    events: VecDeque<LoggedRecord>,
    /// The regions after the last event, if the `redundant` flags of all events are up to date.
    current: Option<RegionTable>,
    file: DrainedRegions,
}

#[derive(Debug, Clone, Copy)]
struct LoggedRecord {
    record: EventRecord,
    /// Whether it changes nothing.
    redundant: bool,
    /// Whether it was drained.
    written: bool,
}

/// The regions as the drained file has them.
#[derive(Debug, Default)]
struct DrainedRegions {
    /// The regions that the file has before the first of the events.
    regions: RegionTable,
    /// The number of events since the last drain that were evicted, and the stamps of the first and the last
    /// of them.
    evicted: u64,
    gap: Option<(u64, u64)>,
}

impl RegionRecorder {
    pub(super) fn new(capacity: usize) -> Self {
        let log = RegionLog {
            capacity: capacity.max(1),
            rules: SizeRules::parse(""),
            before: RegionTable::default(),
            events: VecDeque::new(),
            current: Some(RegionTable::default()),
            file: DrainedRegions::default(),
        };
        Self { log: Mutex::new(log), deferred: Mutex::new(VecDeque::with_capacity(MAX_DEFERRED)) }
    }

    /// Logs an event. The current thread is marked as recording, as in all other methods.
    pub(super) fn log(&self, record: RegionRecord) {
        let log = &mut *locked(&self.log);
        self.log_deferred(log);
        log.push(record);
    }

    /// Defers an event that is delivered while the current thread is recording. Returns `false` if the buffer
    /// is full.
    pub(super) fn defer(&self, record: RegionRecord) -> bool {
        let mut deferred = locked(&self.deferred);
        let room = deferred.len() < MAX_DEFERRED;
        if room {
            deferred.push_back(record);
        }
        room
    }

    /// Logs the deferred events, one at a time: logging one may allocate memory and defer another.
    fn log_deferred(&self, log: &mut RegionLog) {
        let next = || locked(&self.deferred).pop_front();
        while let Some(record) = next() {
            log.push(record);
        }
    }

    /// Returns the regions before the first event, each with its device's number, and the events.
    pub(super) fn read(&self) -> (Vec<(u32, Segment)>, Vec<EventRecord>) {
        let log = &mut *locked(&self.log);
        self.log_deferred(log);
        log.current();
        let effective = log.events.iter().filter(|logged| !logged.redundant);
        (log.before.segments(), effective.map(|logged| logged.record).collect())
    }

    /// Returns the events since the last call, in order, and the number of those that were evicted. The
    /// effect of these is included in the events.
    pub(super) fn drain(&self) -> (Vec<EventRecord>, u64) {
        let log = &mut *locked(&self.log);
        self.log_deferred(log);
        log.current();
        let mut records = Vec::new();
        if let Some((first, last)) = log.file.gap.take() {
            // Regions are reserved at the beginning of the gap and released at its end: blocks of the gap are
            // inside a region.
            records.extend(log.before.without(&log.file.regions).records(first, true));
            records.extend(log.file.regions.without(&log.before).records(last, false));
            log.file.regions = log.before.clone();
        }
        for logged in log.events.iter_mut().filter(|logged| !logged.redundant && !logged.written) {
            logged.written = true;
            records.push(logged.record);
        }
        (records, std::mem::take(&mut log.file.evicted))
    }

    /// Returns the number of events that were evicted since the last drain.
    pub(super) fn evicted(&self) -> u64 {
        locked(&self.log).file.evicted
    }
}

impl RegionLog {
    fn push(&mut self, RegionRecord { record, already }: RegionRecord) {
        if already && !self.current().would_change(&record) {
            return;
        }
        let index = self.events.partition_point(|logged| logged.record.ticks <= record.ticks);
        let mut redundant = false;
        if index < self.events.len() {
            self.current = None;
        } else if let Some(current) = &mut self.current {
            redundant = !current.apply(&record, &self.rules);
        }
        self.events.insert(index, LoggedRecord { record, redundant, written: false });
        if self.events.len() > self.capacity
            && let Some(oldest) = self.events.pop_front()
        {
            self.evict(&oldest);
        }
    }

    fn evict(&mut self, LoggedRecord { record, written, .. }: &LoggedRecord) {
        let changes = self.before.apply(record, &self.rules);
        if *written {
            self.file.regions.apply(record, &self.rules);
        } else if changes {
            self.file.evicted += 1;
            let (first, last) = self.file.gap.unwrap_or((record.ticks, record.ticks));
            self.file.gap = Some((first.min(record.ticks), last.max(record.ticks)));
        }
    }

    /// Returns the current regions. Updates the `redundant` flags if an event arrived out of order.
    fn current(&mut self) -> &mut RegionTable {
        let Self { rules, before, events, current, .. } = self;
        current.get_or_insert_with(|| {
            let mut regions = before.clone();
            for logged in events {
                logged.redundant = !regions.apply(&logged.record, rules);
            }
            regions
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::EventAction;
    use orlop_core::Device;

    fn record(ticks: u64, action: EventAction, address: u64, bytes: u64) -> RegionRecord {
        let record = EventRecord { address, bytes, ..EventRecord::mark(ticks, action, Device::cuda(0), 1) };
        RegionRecord { record, already: false }
    }

    fn fields(records: &[EventRecord]) -> Vec<(u64, EventAction, u64, u64)> {
        records.iter().map(|record| (record.ticks, record.action, record.address, record.bytes)).collect()
    }

    const STEPS: [(EventAction, u64, u64); 6] = [
        (EventAction::RegionReserved, 100, 50),
        (EventAction::Mapped, 200, 10),
        (EventAction::Mapped, 220, 10),
        (EventAction::Mapped, 210, 10),
        (EventAction::Unmapped, 205, 5),
        (EventAction::RegionReleased, 100, 50),
    ];

    #[test]
    fn a_history_begins_with_evicted_regions() {
        let regions = RegionRecorder::new(1);
        for (ticks, (action, address, bytes)) in (0..).zip(STEPS) {
            regions.log(record(ticks, action, address, bytes));
        }
        let (start, events) = regions.read();
        let start: Vec<_> = start.iter().map(|(_, segment)| (segment.address, segment.bytes)).collect();
        assert_eq!(start, [(100, 50), (200, 5), (210, 20)]);
        assert_eq!(fields(&events), [(5, EventAction::RegionReleased, 100, 50)]);
    }

    #[test]
    fn a_file_gets_evicted_regions() {
        let regions = RegionRecorder::new(1);
        let log = |ticks: u64| {
            let (action, address, bytes) = STEPS[usize::try_from(ticks).unwrap()];
            regions.log(record(ticks, action, address, bytes));
        };
        log(0);
        assert_eq!(regions.drain(), (vec![record(0, STEPS[0].0, 100, 50).record], 0));
        (1..6).for_each(log);
        assert_eq!(regions.evicted(), 4);
        let (records, lost) = regions.drain();
        assert_eq!((lost, regions.evicted()), (4, 0));
        let expected = [
            (1, EventAction::Mapped, 200, 5),
            (1, EventAction::Mapped, 210, 20),
            (5, EventAction::RegionReleased, 100, 50),
        ];
        assert_eq!(fields(&records), expected);
        regions.log(record(6, EventAction::Unmapped, 200, 5));
        regions.log(record(7, EventAction::RegionReserved, 300, 9));
        let (records, lost) = regions.drain();
        assert_eq!(
            fields(&records),
            [(6, EventAction::Unmapped, 200, 5), (7, EventAction::RegionReserved, 300, 9)]
        );
        assert_eq!((lost, regions.drain()), (1, (vec![], 0)));
    }

    #[test]
    fn redundant_events_are_not_returned() {
        let regions = RegionRecorder::new(100);
        let steps = [
            (EventAction::RegionReserved, 100, 50, 1),
            (EventAction::RegionReserved, 100, 50, 1),
            (EventAction::RegionReserved, 120, 30, 1),
            (EventAction::RegionReleased, 150, 50, 1),
            (EventAction::RegionReleased, 100, 50, 2),
            (EventAction::RegionReleased, 100, 50, 2),
            (EventAction::RegionReserved, u64::MAX, 50, 2),
            (EventAction::RegionReserved, 100, 0, 2),
        ];
        for (action, address, bytes, count) in steps {
            regions.log(record(0, action, address, bytes));
            assert_eq!(regions.read().1.len(), count, "{action:?} {address}");
        }
    }

    /// One allocator releases a region; another reserves its addresses, and its event arrives first.
    #[test]
    fn late_events_keep_their_index() {
        let expected = [
            (1, EventAction::RegionReserved, 100, 50),
            (3, EventAction::RegionReleased, 100, 50),
            (4, EventAction::Mapped, 100, 50),
        ];
        for drains in [false, true] {
            let regions = RegionRecorder::new(100);
            let mut drained = Vec::new();
            let mut drain = || drained.extend(if drains { regions.drain().0 } else { Vec::new() });
            regions.log(record(1, EventAction::RegionReserved, 100, 50));
            // Another watch of the same allocator.
            regions.log(record(2, EventAction::RegionReserved, 100, 50));
            drain();
            regions.log(record(4, EventAction::Mapped, 100, 50));
            drain();
            regions.log(record(3, EventAction::RegionReleased, 100, 50));
            drain();
            assert_eq!(fields(&regions.read().1), expected);
            assert!(!drains || fields(&drained) == expected);
        }
    }

    #[test]
    fn an_observer_set_again_adds_no_records() {
        let regions = RegionRecorder::new(2);
        let again = RegionRecord { already: true, ..record(2, EventAction::RegionReserved, 100, 50) };
        regions.log(record(0, EventAction::RegionReserved, 100, 50));
        (0..10).for_each(|_| regions.log(again));
        assert_eq!(fields(&regions.read().1), [(0, EventAction::RegionReserved, 100, 50)]);
        assert_eq!(regions.evicted(), 0);
    }

    #[test]
    fn deferred_events_are_included() {
        let regions = RegionRecorder::new(2 * MAX_DEFERRED);
        regions.log(record(0, EventAction::RegionReserved, 100, 50));
        let lost = record(1, EventAction::RegionReleased, 100, 50);
        assert!(regions.defer(lost));
        assert_eq!(regions.read().1.len(), 2);
        assert_eq!((0..MAX_DEFERRED + 3).filter(|_| regions.defer(lost)).count(), MAX_DEFERRED);
        assert_eq!(regions.drain().0.len(), 2);
        assert!(regions.defer(lost));
    }
}
