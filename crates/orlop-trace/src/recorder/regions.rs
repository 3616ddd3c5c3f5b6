//! The regions of a recorder: their events, and those that are reserved.
//!
//! A program gains most of its regions early, and a ring forgets what is old: blocks would be left that are
//! in no region. So events of regions, which are rare, are not in the rings but here, and behind a lock.
//! There is room for so many; then the oldest is let go, and what it did to the regions is kept: a history
//! begins with the regions that were held before the first event that is left, and a file is told of them.
//!
//! # What is news
//!
//! Who watches one allocator by two ways is told of the same region twice. What changes nothing is no news,
//! and nobody who reads is told. But two allocators are told of in any order: one may gain the very addresses
//! that another lost, and be told of first. So events are kept in order of their stamps, news or not, and
//! what is news follows from that order.
//!
//! Who is set as observer again is told of all that is held again. That is only noted if it is news when it
//! is told: it would fill the log.
//!
//! # What is told in the midst of recording
//!
//! A recorder takes memory, also with this module's lock held, and that may be from an allocator that is
//! watched. Whatever is yet to be told of regions is told then, and is others' business. So it is put aside,
//! in a place that has its memory from the beginning, and taken in at the next opportunity.

use super::locked;
use super::record::EventRecord;
use super::region_table::RegionTable;
use crate::history::{Segment, SizeRules};
use std::collections::VecDeque;
use std::sync::Mutex;

/// How much can be put aside. An allocator tells of a few regions at a time.
const ASIDE: usize = 256;

/// Records the events of regions, and the regions that are held.
#[derive(Debug)]
pub(super) struct RegionRecorder {
    log: Mutex<RegionLog>,
    /// Never holds more than its first memory, so that nobody allocates under its lock. Taken last.
    aside: Mutex<VecDeque<DeferredRecord>>,
}

/// An event of a region, before it is logged.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeferredRecord {
    pub(super) record: EventRecord,
    /// Whether it is of a region that was there before the observer.
    pub(super) already: bool,
}

#[derive(Debug)]
struct RegionLog {
    capacity: usize,
    rules: SizeRules,
    /// What is held before the first of the events.
    before: RegionTable,
    /// In order of their stamps.
    events: VecDeque<Noted>,
    /// What is held after the last, once all know whether they are news.
    now: Option<RegionTable>,
    file: DrainedRegions,
}

#[derive(Debug, Clone, Copy)]
struct Noted {
    record: EventRecord,
    /// Whether it changes what is held.
    news: bool,
    /// Whether it was drained.
    written: bool,
}

/// The regions as a drained file has them.
#[derive(Debug, Default)]
struct DrainedRegions {
    /// What it takes to be held before the first of the events.
    held: RegionTable,
    /// How many events it was not told of since the last drain, and the stamps of the first and the last.
    lost: u64,
    gap: Option<(u64, u64)>,
}

impl RegionRecorder {
    pub(super) fn new(capacity: usize) -> Self {
        let log = RegionLog {
            capacity: capacity.max(1),
            rules: SizeRules::parse(""),
            before: RegionTable::default(),
            events: VecDeque::new(),
            now: Some(RegionTable::default()),
            file: DrainedRegions::default(),
        };
        Self { log: Mutex::new(log), aside: Mutex::new(VecDeque::with_capacity(ASIDE)) }
    }

    /// Notes an event. The calling thread is marked as busy recording, as by all others here.
    pub(super) fn note(&self, told: DeferredRecord) {
        let log = &mut *locked(&self.log);
        self.take_in(log);
        log.note(told);
    }

    /// Keeps an event that is told while the calling thread was busy already; false if there is no room.
    pub(super) fn put_aside(&self, told: DeferredRecord) -> bool {
        let mut aside = locked(&self.aside);
        let room = aside.len() < ASIDE;
        if room {
            aside.push_back(told);
        }
        room
    }

    /// One at a time: noting one may take memory, and lead to another that is put aside.
    fn take_in(&self, log: &mut RegionLog) {
        let next = || locked(&self.aside).pop_front();
        while let Some(told) = next() {
            log.note(told);
        }
    }

    /// The regions before the first event, each with its device's number, and all events.
    pub(super) fn read(&self) -> (Vec<(u32, Segment)>, Vec<EventRecord>) {
        let log = &mut *locked(&self.log);
        self.take_in(log);
        log.settle();
        let news = log.events.iter().filter(|noted| noted.news);
        (log.before.segments(), news.map(|noted| noted.record).collect())
    }

    /// The events since the last call, in order, and how many had been let go. What those did is among the
    /// events.
    pub(super) fn drain(&self) -> (Vec<EventRecord>, u64) {
        let log = &mut *locked(&self.log);
        self.take_in(log);
        log.settle();
        let mut records = Vec::new();
        if let Some((first, last)) = log.file.gap.take() {
            // Regions come at once and go at last: whatever blocks there were meanwhile lie in some.
            records.extend(log.before.without(&log.file.held).records(first, true));
            records.extend(log.file.held.without(&log.before).records(last, false));
            log.file.held = log.before.clone();
        }
        for noted in log.events.iter_mut().filter(|noted| noted.news && !noted.written) {
            noted.written = true;
            records.push(noted.record);
        }
        (records, std::mem::take(&mut log.file.lost))
    }

    /// How many events were let go since the last drain.
    pub(super) fn lost(&self) -> u64 {
        locked(&self.log).file.lost
    }
}

impl RegionLog {
    fn note(&mut self, DeferredRecord { record, already }: DeferredRecord) {
        if already && !self.settle().would_change(&record) {
            return;
        }
        let place = self.events.partition_point(|noted| noted.record.ticks <= record.ticks);
        let mut news = true;
        if place < self.events.len() {
            self.now = None;
        } else if let Some(now) = &mut self.now {
            news = now.apply(&record, &self.rules);
        }
        self.events.insert(place, Noted { record, news, written: false });
        if self.events.len() > self.capacity
            && let Some(oldest) = self.events.pop_front()
        {
            self.let_go(&oldest);
        }
    }

    fn let_go(&mut self, Noted { record, written, .. }: &Noted) {
        let news = self.before.apply(record, &self.rules);
        if *written {
            self.file.held.apply(record, &self.rules);
        } else if news {
            self.file.lost += 1;
            let (first, last) = self.file.gap.unwrap_or((record.ticks, record.ticks));
            self.file.gap = Some((first.min(record.ticks), last.max(record.ticks)));
        }
    }

    /// What is held now. Finds out what is news, if something was told too late for its stamp.
    fn settle(&mut self) -> &mut RegionTable {
        let Self { rules, before, events, now, .. } = self;
        now.get_or_insert_with(|| {
            let mut held = before.clone();
            for noted in events {
                noted.news = held.apply(&noted.record, rules);
            }
            held
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::EventAction;
    use orlop_core::Device;

    fn told(ticks: u64, action: EventAction, address: u64, bytes: u64) -> DeferredRecord {
        let record = EventRecord { address, bytes, ..EventRecord::mark(ticks, action, Device::cuda(0), 1) };
        DeferredRecord { record, already: false }
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
    fn what_is_let_go_is_what_a_history_begins_with() {
        let regions = RegionRecorder::new(1);
        for (ticks, (action, address, bytes)) in (0..).zip(STEPS) {
            regions.note(told(ticks, action, address, bytes));
        }
        let (start, events) = regions.read();
        let start: Vec<_> = start.iter().map(|(_, segment)| (segment.address, segment.bytes)).collect();
        assert_eq!(start, [(100, 50), (200, 5), (210, 20)]);
        assert_eq!(fields(&events), [(5, EventAction::RegionReleased, 100, 50)]);
    }

    #[test]
    fn a_file_is_told_of_what_was_let_go() {
        let regions = RegionRecorder::new(1);
        let note = |ticks: u64| {
            let (action, address, bytes) = STEPS[usize::try_from(ticks).unwrap()];
            regions.note(told(ticks, action, address, bytes));
        };
        note(0);
        assert_eq!(regions.drain(), (vec![told(0, STEPS[0].0, 100, 50).record], 0));
        (1..6).for_each(note);
        assert_eq!(regions.lost(), 4);
        let (records, lost) = regions.drain();
        assert_eq!((lost, regions.lost()), (4, 0));
        let expected = [
            (1, EventAction::Mapped, 200, 5),
            (1, EventAction::Mapped, 210, 20),
            (5, EventAction::RegionReleased, 100, 50),
        ];
        assert_eq!(fields(&records), expected);
        regions.note(told(6, EventAction::Unmapped, 200, 5));
        regions.note(told(7, EventAction::RegionReserved, 300, 9));
        let (records, lost) = regions.drain();
        assert_eq!(
            fields(&records),
            [(6, EventAction::Unmapped, 200, 5), (7, EventAction::RegionReserved, 300, 9)]
        );
        assert_eq!((lost, regions.drain()), (1, (vec![], 0)));
    }

    #[test]
    fn what_is_known_is_no_news() {
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
        for (action, address, bytes, news) in steps {
            regions.note(told(0, action, address, bytes));
            assert_eq!(regions.read().1.len(), news, "{action:?} {address}");
        }
    }

    /// One allocator loses a region, another gains its addresses and is told of first.
    #[test]
    fn what_is_told_too_late_takes_its_place() {
        let expected = [
            (1, EventAction::RegionReserved, 100, 50),
            (3, EventAction::RegionReleased, 100, 50),
            (4, EventAction::Mapped, 100, 50),
        ];
        for drains in [false, true] {
            let regions = RegionRecorder::new(100);
            let mut drained = Vec::new();
            let mut drain = || drained.extend(if drains { regions.drain().0 } else { Vec::new() });
            regions.note(told(1, EventAction::RegionReserved, 100, 50));
            // Another watch of the same.
            regions.note(told(2, EventAction::RegionReserved, 100, 50));
            drain();
            regions.note(told(4, EventAction::Mapped, 100, 50));
            drain();
            regions.note(told(3, EventAction::RegionReleased, 100, 50));
            drain();
            assert_eq!(fields(&regions.read().1), expected);
            assert!(!drains || fields(&drained) == expected);
        }
    }

    #[test]
    fn who_is_set_again_does_not_fill_the_log() {
        let regions = RegionRecorder::new(2);
        let again = DeferredRecord { already: true, ..told(2, EventAction::RegionReserved, 100, 50) };
        regions.note(told(0, EventAction::RegionReserved, 100, 50));
        (0..10).for_each(|_| regions.note(again));
        assert_eq!(fields(&regions.read().1), [(0, EventAction::RegionReserved, 100, 50)]);
        assert_eq!(regions.lost(), 0);
    }

    #[test]
    fn what_is_put_aside_is_taken_in() {
        let regions = RegionRecorder::new(2 * ASIDE);
        regions.note(told(0, EventAction::RegionReserved, 100, 50));
        let lost = told(1, EventAction::RegionReleased, 100, 50);
        assert!(regions.put_aside(lost));
        assert_eq!(regions.read().1.len(), 2);
        assert_eq!((0..ASIDE + 3).filter(|_| regions.put_aside(lost)).count(), ASIDE);
        assert_eq!(regions.drain().0.len(), 2);
        assert!(regions.put_aside(lost));
    }
}
