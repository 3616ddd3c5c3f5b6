//! The lifetime of each block, in order of allocation: the main table of the page.
//!
//! Times here are *instants*: instant `i` is after `i` events, so a history of `n` events has `n + 1`
//! instants. A block that event `e` allocates is live from instant `e + 1`. The page stacks blocks in order
//! of allocation.

use foldhash::HashMap;
use orlop_core::{MemoryKind, StreamId};
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, Segment, SegmentBlock, SiteId, TextId, WorkStep, Workload,
};

/// The granularity of PyTorch's blocks in bytes.
const GRANULARITY: u64 = 512;

/// The lifetime of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockLifetime {
    /// The first instant at which it is live.
    pub(super) born: u64,
    /// The first instant at which it is freed.
    pub(super) freed: u64,
    /// The first instant at which its memory is free.
    pub(super) done: u64,
    /// Requested bytes.
    pub(super) bytes: u64,
    /// Bytes of its segment that it takes.
    pub(super) taken: u64,
    pub(super) address: u64,
    pub(super) stream: StreamId,
    pub(super) site: SiteId,
    pub(super) text: TextId,
    pub(super) kind: MemoryKind,
    /// The call site that freed it.
    pub(super) freed_by: SiteId,
}

/// Returns the lifetimes of all blocks of a device, and the instant after its last event.
pub(super) fn lifetimes(history: &DeviceHistory, work: &Workload) -> (Vec<BlockLifetime>, u64) {
    let end = instant(history.events.len());
    let pending_at_start =
        chunks(&history.start, BlockState::Pending).map(|(segment, block)| BlockLifetime {
            born: 0,
            freed: 0,
            done: end,
            bytes: block.requested,
            taken: block.bytes,
            address: block.address,
            stream: segment.stream,
            site: block.site,
            text: TextId::NONE,
            kind: MemoryKind::default(),
            freed_by: SiteId::UNKNOWN,
        });
    let mut lifetimes: Vec<BlockLifetime> = pending_at_start.collect();
    let pending_count = lifetimes.len();
    let grain = if history.has_segments() { GRANULARITY } else { 1 };
    let event_of = |step: usize| work.events.get(step).map_or(0, |&event| event as usize);
    lifetimes.extend(work.blocks.iter().map(|block| BlockLifetime {
        born: block.born.map_or(0, |step| instant(event_of(step))),
        freed: block.died.map_or(end, |step| instant(event_of(step))),
        done: block.died.map_or(end, |step| instant(event_of(step))),
        bytes: block.bytes,
        taken: block.bytes.checked_next_multiple_of(grain).unwrap_or(block.bytes),
        address: block.address,
        stream: block.stream,
        site: block.site,
        text: block.text,
        kind: block.kind,
        freed_by: SiteId::UNKNOWN,
    }));
    complete(history, work, &mut lifetimes, pending_count);
    set_taken(history, &mut lifetimes[pending_count..], end);
    (lifetimes, end)
}

/// Returns the first instant after this event.
pub(super) fn instant(event: usize) -> u64 {
    u64::try_from(event).unwrap_or(u64::MAX).saturating_add(1)
}

/// Sets when the memory of freed blocks was free, and the call sites that freed them.
fn complete(history: &DeviceHistory, work: &Workload, lifetimes: &mut [BlockLifetime], pending_count: usize) {
    let two_steps = history.events.iter().any(|event| event.action == EventAction::FreeCompleted);
    let end = instant(history.events.len());
    let mut pending: HashMap<u64, usize> = HashMap::default();
    pending.extend(
        lifetimes[..pending_count].iter().enumerate().map(|(index, lifetime)| (lifetime.address, index)),
    );
    let mut steps = work.steps.iter().zip(&work.events).peekable();
    for (index, event) in history.events.iter().enumerate() {
        let step = steps.next_if(|&(_, &at)| at as usize == index).map(|(step, _)| step);
        match (step, event.action) {
            (Some(&WorkStep::Free(block)), action) => {
                let Some(lifetime) = lifetimes.get_mut(pending_count + block as usize) else { continue };
                lifetime.freed_by = event.site;
                if action == EventAction::FreeRequested && two_steps {
                    lifetime.done = end;
                    pending.insert(event.address, pending_count + block as usize);
                }
            }
            (Some(WorkStep::Allocate(_) | WorkStep::Completed(_)), _)
            | (None, EventAction::FreeCompleted) => {
                let lifetime = pending.remove(&event.address).and_then(|block| lifetimes.get_mut(block));
                if let Some(lifetime) = lifetime {
                    lifetime.done = instant(index);
                }
            }
            _ => {}
        }
    }
}

/// Sets the bytes that blocks take of their segments, which are known for blocks at the start and at the end.
fn set_taken(history: &DeviceHistory, lifetimes: &mut [BlockLifetime], end: u64) {
    let at = |segments| -> HashMap<u64, u64> {
        chunks(segments, BlockState::Live).map(|(_, block)| (block.address, block.bytes)).collect()
    };
    let (start, last) = (at(&history.start), at(&history.end));
    for lifetime in lifetimes {
        let taken = match (lifetime.born, lifetime.freed) {
            (0, _) => start.get(&lifetime.address),
            (_, freed) if freed == end => last.get(&lifetime.address),
            _ => None,
        };
        if let Some(&taken) = taken {
            lifetime.taken = taken;
        }
    }
}

fn chunks(segments: &[Segment], state: BlockState) -> impl Iterator<Item = (&Segment, SegmentBlock)> {
    segments.iter().flat_map(move |segment| {
        segment.blocks.iter().filter(move |block| block.state == state).map(move |&block| (segment, block))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{block, segment};
    use orlop_trace::history::HistoryEvent;

    fn lifetimes(history: &DeviceHistory) -> (Vec<BlockLifetime>, u64) {
        super::lifetimes(history, &Workload::of(history))
    }

    fn history(events: Vec<HistoryEvent>) -> DeviceHistory {
        DeviceHistory::from_events(events)
    }

    #[test]
    fn moments_are_between_events() {
        let (lifetimes, end) = lifetimes(&history(vec![
            HistoryEvent::new(EventAction::Allocate, 16, 100),
            HistoryEvent::new(EventAction::FreeRequested, 16, 100),
            HistoryEvent::new(EventAction::Snapshot, 0, 0),
            HistoryEvent::new(EventAction::FreeCompleted, 16, 100),
            HistoryEvent::new(EventAction::Allocate, 16, 7),
        ]));
        assert_eq!(end, 6);
        let spans: Vec<_> = lifetimes
            .iter()
            .map(|lifetime| (lifetime.born, lifetime.freed, lifetime.done, lifetime.bytes))
            .collect();
        assert_eq!(spans, [(1, 2, 4, 100), (5, 6, 6, 7)]);
    }

    #[test]
    fn frees_in_one_step_are_complete_at_once() {
        for action in [EventAction::FreeRequested, EventAction::FreeCompleted] {
            let (lifetimes, _) = lifetimes(&history(vec![
                HistoryEvent::new(EventAction::Allocate, 1, 1),
                HistoryEvent::new(action, 1, 1),
            ]));
            assert_eq!((lifetimes[0].freed, lifetimes[0].done), (2, 2), "{action:?}");
        }
    }

    #[test]
    fn blocks_pending_at_the_start_are_never_live() {
        let mut history = history(vec![HistoryEvent::new(EventAction::FreeCompleted, 0, 512)]);
        history.start =
            vec![segment(0, &[block(0, 512, BlockState::Pending), block(512, 1024, BlockState::Live)])];
        let (lifetimes, _) = lifetimes(&history);
        assert_eq!((lifetimes[0].freed, lifetimes[0].done), (0, 1));
        assert_eq!((lifetimes[1].born, lifetimes[1].freed, lifetimes[1].taken), (0, 2, 1024));
    }

    #[test]
    fn a_free_without_completion_is_pending_to_the_end() {
        let (lifetimes, end) = lifetimes(&history(vec![
            HistoryEvent::new(EventAction::Allocate, 1, 1),
            HistoryEvent::new(EventAction::Allocate, 2, 1),
            HistoryEvent::new(EventAction::FreeRequested, 1, 1),
            HistoryEvent::new(EventAction::FreeRequested, 2, 1),
            HistoryEvent::new(EventAction::FreeCompleted, 2, 1),
        ]));
        assert_eq!((lifetimes[0].freed, lifetimes[0].done, lifetimes[1].done), (3, end, 5));
    }
}
