//! The refusals of requests, until it is known what became of the requests.
//!
//! An event of a refusal comes before the outcome: a context may free memory and serve the request after all.
//! So refusals, which are rare, are kept here behind a lock and not in the rings, as region events are. The
//! event that settles a request names its refusals. One that no event names is final; a drain waits for the
//! next one before it writes such a refusal, since the request may still be on its way.

use super::locked;
use super::record::EventRecord;
use crate::history::RefusalOutcome;
use orlop_alloc::RefusalCause;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The refusals of a recorder.
#[derive(Debug)]
pub(super) struct RefusalRecorder {
    log: Mutex<RefusalLog>,
}

#[derive(Debug)]
struct RefusalLog {
    capacity: usize,
    refusals: VecDeque<LoggedRefusal>,
    /// The position of each refusal by its number, counted from the first that was ever logged.
    positions: HashMap<u64, usize>,
    /// The number of refusals that were evicted.
    removed: usize,
    /// The number of refusals that were evicted before they were drained.
    evicted: u64,
}

/// A refusal with its event.
#[derive(Debug, Clone)]
pub(super) struct RecordedRefusal {
    /// With the action of the outcome.
    pub(super) record: EventRecord,
    pub(super) cause: RefusalCause,
    pub(super) refuser: Arc<str>,
    pub(super) outcome: RefusalOutcome,
}

#[derive(Debug)]
struct LoggedRefusal {
    number: u64,
    refusal: RecordedRefusal,
    is_settled: bool,
    /// Whether a drain met it, and whether it was written.
    was_met: bool,
    was_written: bool,
}

impl RefusalRecorder {
    pub(super) fn new(capacity: usize) -> Self {
        let log = RefusalLog {
            capacity: capacity.max(1),
            refusals: VecDeque::new(),
            positions: HashMap::new(),
            removed: 0,
            evicted: 0,
        };
        Self { log: Mutex::new(log) }
    }

    /// Logs a refusal; one that was delivered by two handles is logged once. The current thread is marked as
    /// recording, as in all other methods.
    pub(super) fn log(&self, number: u64, refusal: RecordedRefusal) {
        let log = &mut *locked(&self.log);
        if log.positions.contains_key(&number) {
            return;
        }
        if log.refusals.len() >= log.capacity
            && let Some(oldest) = log.refusals.pop_front()
        {
            log.evicted += u64::from(!oldest.was_written);
            log.positions.remove(&oldest.number);
            log.removed += 1;
        }
        log.positions.insert(number, log.removed + log.refusals.len());
        let (is_settled, was_met, was_written) = (false, false, false);
        log.refusals.push_back(LoggedRefusal { number, refusal, is_settled, was_met, was_written });
    }

    /// Settles the refusals of a request with these numbers, first to last.
    pub(super) fn settle(&self, numbers: &[u64], is_served: bool) {
        let log = &mut *locked(&self.log);
        for number in numbers {
            let index = log.positions.get(number).and_then(|position| position.checked_sub(log.removed));
            let Some(logged) = index.and_then(|index| log.refusals.get_mut(index)) else { continue };
            let refusal = &mut logged.refusal;
            refusal.outcome = match is_served {
                true => RefusalOutcome::Served,
                false if numbers.last() == Some(number) => RefusalOutcome::Failed,
                false => RefusalOutcome::Retried,
            };
            refusal.record.action = refusal.outcome.action(refusal.cause);
            logged.is_settled = true;
        }
    }

    /// Returns the logged refusals.
    pub(super) fn read(&self) -> Vec<RecordedRefusal> {
        locked(&self.log).refusals.iter().map(|logged| logged.refusal.clone()).collect()
    }

    /// Returns the refusals that are to be written, and the number of those that were evicted before. With
    /// `all`, it does not wait for outcomes.
    pub(super) fn drain(&self, all: bool) -> (Vec<RecordedRefusal>, u64) {
        let log = &mut *locked(&self.log);
        let mut drained = Vec::new();
        for logged in log.refusals.iter_mut().filter(|logged| !logged.was_written) {
            if all || logged.is_settled || logged.was_met {
                logged.was_written = true;
                drained.push(logged.refusal.clone());
            }
            logged.was_met = true;
        }
        (drained, std::mem::take(&mut log.evicted))
    }

    /// Returns the number of refusals that were evicted since the last drain.
    pub(super) fn evicted(&self) -> u64 {
        locked(&self.log).evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::EventAction;
    use orlop_core::Device;

    fn refusal(cause: RefusalCause) -> RecordedRefusal {
        let outcome = RefusalOutcome::Failed;
        let record = EventRecord::mark(1, outcome.action(cause), Device::CPU, 1);
        RecordedRefusal { record, cause, refuser: "x".into(), outcome }
    }

    fn outcomes(refusals: &[RecordedRefusal]) -> Vec<RefusalOutcome> {
        refusals.iter().map(|refusal| refusal.outcome).collect()
    }

    #[test]
    fn a_drain_waits_for_the_outcome_once() {
        let refusals = RefusalRecorder::new(8);
        for number in 1..=4 {
            refusals.log(number, refusal(RefusalCause::Device));
        }
        // Through a second handle.
        refusals.log(4, refusal(RefusalCause::Device));
        refusals.settle(&[1, 2], false);
        assert_eq!(outcomes(&refusals.drain(false).0), [RefusalOutcome::Retried, RefusalOutcome::Failed]);
        refusals.settle(&[3], true);
        let (late, evicted) = refusals.drain(false);
        assert_eq!(outcomes(&late), [RefusalOutcome::Served, RefusalOutcome::Failed]);
        let actions: Vec<_> = late.iter().map(|refusal| refusal.record.action).collect();
        assert_eq!((actions, evicted), (vec![EventAction::Refused, EventAction::OutOfMemory], 0));
        assert!(refusals.drain(true).0.is_empty());
        assert_eq!(refusals.read().len(), 4);
    }

    #[test]
    fn the_oldest_are_evicted_and_counted() {
        let refusals = RefusalRecorder::new(2);
        for number in 1..=3 {
            refusals.log(number, refusal(RefusalCause::Budget));
        }
        assert_eq!(refusals.evicted(), 1);
        let (drained, evicted) = refusals.drain(true);
        assert_eq!((drained.len(), evicted, refusals.evicted()), (2, 1, 0));
        assert_eq!(drained[0].record.action, EventAction::Refused);
    }
}
