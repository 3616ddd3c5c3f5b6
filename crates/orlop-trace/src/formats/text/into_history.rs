//! Conversion of plain traces, which have ids, into histories, which have addresses.
//!
//! Each block gets addresses that no other block of the trace has, one after the other: a history's blocks
//! may not overlap, and ids are used again. Times count operations.

use super::{ReplayStep, Trace};
use crate::history::{DeviceHistory, EventAction, History, HistoryEvent};
use orlop_core::StreamId;

/// Blocks begin at multiples of this, as PyTorch's do.
const ALIGNMENT: u64 = 512;

impl From<&Trace> for History {
    /// On device 0. A free is a [`FreeRequested`](EventAction::FreeRequested) and a
    /// [`FreeCompleted`](EventAction::FreeCompleted), as no stream holds it back.
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
        let mut blocks = vec![(0, 0, StreamId::DEFAULT); trace.slots()];
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
                    // Addresses only name blocks: past the last one they begin again.
                    let room = block.1.checked_next_multiple_of(ALIGNMENT).unwrap_or(0).max(ALIGNMENT);
                    next = next.checked_add(room).unwrap_or(ALIGNMENT);
                    if let Some(place) = blocks.get_mut(slot) {
                        *place = block;
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
