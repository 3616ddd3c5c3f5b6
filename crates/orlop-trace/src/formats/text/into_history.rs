//! Converting plain traces, which have ids, to histories, which have addresses.
//!
//! Each block gets its own addresses, one after the other: the blocks of a history do not overlap, and ids
//! are reused. The time of an event is the index of its operation.

use super::{ReplayStep, Trace};
use crate::history::{DeviceHistory, EventAction, History, HistoryEvent};
use orlop_core::StreamId;

/// The alignment of blocks, as in PyTorch.
const ALIGNMENT: u64 = 512;

impl From<&Trace> for History {
    /// Converts a trace to a history of device 0. A free becomes a
    /// [`FreeRequested`](EventAction::FreeRequested) and a [`FreeCompleted`](EventAction::FreeCompleted),
    /// because no stream delays it.
    ///
    /// ```
    /// use orlop_trace::formats::text::Trace;
    /// use orlop_trace::history::{EventAction, History};
    ///
    /// let history = History::from(&Trace::parse("a,7,100\nf,7\na,7,200\n".as_bytes())?);
    /// let events = &history.devices[0].events;
    /// assert_eq!((events[0].address, events[3].address), (512, 1024));
    /// assert_eq!(events[2].action, EventAction::FreeCompleted);
    /// # Ok::<(), orlop_trace::TraceError>(())
    /// ```
    fn from(trace: &Trace) -> Self {
        let mut device = DeviceHistory::default();
        device.events.reserve(trace.len());
        let mut blocks = vec![(0, 0, StreamId::from_raw(0)); trace.slots()];
        let mut next = ALIGNMENT;
        for (time, step) in (0..).zip(trace.steps()) {
            let event = |action, (address, bytes, stream)| HistoryEvent {
                time,
                stream,
                ..HistoryEvent::new(action, address, bytes)
            };
            match step {
                ReplayStep::Allocate { slot, bytes, stream } => {
                    let block = (next, bytes as u64, stream);
                    // Addresses only identify blocks: they wrap around at the end.
                    let room = block.1.checked_next_multiple_of(ALIGNMENT).unwrap_or(0).max(ALIGNMENT);
                    next = next.checked_add(room).unwrap_or(ALIGNMENT);
                    if let Some(entry) = blocks.get_mut(slot) {
                        *entry = block;
                    }
                    device.events.push(event(EventAction::Allocate, block));
                }
                ReplayStep::Free { slot } => {
                    let block = blocks.get(slot).copied().unwrap_or_default();
                    device.events.push(event(EventAction::FreeRequested, block));
                    device.events.push(event(EventAction::FreeCompleted, block));
                }
            }
        }
        Self { devices: vec![device], ..Self::default() }
    }
}
