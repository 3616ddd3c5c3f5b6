//! Events: records in streams and in captures, waits of streams, and times.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::memory::ProcessEvent;
use crate::state::event::{DISABLE_TIMING, Event, INTERPROCESS, Recorded};
use crate::state::work::{Submission, Work};
use orlop_race::HOST_QUEUE;

impl Driver {
    pub(crate) fn create_event(&mut self, device: usize, flags: u32) -> Outcome<u64> {
        let is_shared = flags & INTERPROCESS != 0;
        if flags & !0b1111 != 0 || (is_shared && flags & DISABLE_TIMING == 0) {
            return Err(Failure::INVALID_VALUE);
        }
        // It counts its records on from those of the event that had the handle before.
        let (handle, generation) = self.freed_events.pop().unwrap_or_else(|| (self.handle(), 0));
        let mut event = Event { generation: generation + 1, ..Event::new(device, flags) };
        if is_shared {
            event.share(self.memory.create_process_event()?);
        }
        self.events.insert(handle, event);
        Ok(handle)
    }

    pub(crate) fn destroy_event(&mut self, handle: u64) -> Outcome {
        let event = self.events.remove(&handle).ok_or(Failure::INVALID_HANDLE)?;
        if let Some(shared) = event.shared {
            self.memory.destroy_process_event(&shared);
        }
        if !self.config.has_unique_handles {
            self.freed_events.push((handle, event.generation));
        }
        Ok(())
    }

    pub(crate) fn event(&self, handle: u64) -> Outcome<&Event> {
        self.events.get(&handle).ok_or(Failure::INVALID_HANDLE)
    }

    /// Records an event in a stream, or in the capture of the stream.
    pub(crate) fn record_event(&mut self, handle: u64, stream: u64) -> Outcome {
        let device = self.event(handle)?.device;
        let found = self.stream(stream)?;
        if found.device != device {
            return Err(Failure::INVALID_HANDLE);
        }
        if let Some((capture, nodes)) = found.capture.clone() {
            self.check_capture(capture)?;
            let event = self.events.get_mut(&handle).ok_or(Failure::INVALID_HANDLE)?;
            event.recorded = Recorded::InCapture { capture, nodes };
            return Ok(());
        }
        let event = self.events.get_mut(&handle).ok_or(Failure::INVALID_HANDLE)?;
        event.generation += 1;
        event.completed_at = None;
        let generation = event.generation;
        let shared = event.shared.as_ref().map(ProcessEvent::record);
        let work = Work::Record { event: handle, generation, shared: shared.clone() };
        let submitted = self.submit(stream, Submission::new("cuEventRecord", work, Vec::new()));
        if let Some(shared) = &shared {
            match submitted {
                Ok(()) => self.process_records.push(shared.clone()),
                // Nothing is to be waited for.
                Err(_) => shared.complete(),
            }
        }
        submitted?;
        let found = self.stream(stream)?;
        let (position, queue) = (found.submitted, found.queue);
        let clock = self.order.record(queue);
        if let Some(event) = self.events.get_mut(&handle) {
            event.recorded = Recorded::InStream { stream, position, clock };
            event.last_shared = shared.map_or(0, |shared| shared.generation());
        }
        Ok(())
    }

    /// Orders the later work of a stream after the last record of an event.
    pub(crate) fn wait_event(&mut self, stream: u64, handle: u64) -> Outcome {
        let recorded = self.event(handle)?.latest();
        let (capture, queue) = {
            let found = self.stream(stream)?;
            (found.capture.as_ref().map(|(capture, _)| *capture), found.queue)
        };
        match (capture, recorded) {
            (_, Recorded::Never) => Ok(()),
            (None, Recorded::InStream { stream: other, position, clock }) => {
                self.order.wait(queue, &clock);
                let done = self.is_done(other, position);
                if done {
                    return Ok(());
                }
                let submission = Submission::new("cuStreamWaitEvent", Work::Nothing, Vec::new());
                self.push(stream, submission, vec![(other, position)])
            }
            // Not even through an event may captured work depend on work outside of the capture.
            (None, Recorded::Elsewhere(record)) => {
                if record.is_complete() {
                    return Ok(());
                }
                record.want();
                let submission = Submission::new("cuStreamWaitEvent", Work::Await(record), Vec::new());
                self.push(stream, submission, Vec::new())
            }
            (Some(capture), Recorded::InStream { .. } | Recorded::Elsewhere(_)) => {
                self.invalidate(capture);
                Err(Failure::STREAM_CAPTURE_ISOLATION)
            }
            (own, Recorded::InCapture { capture, nodes }) => self.join_capture(stream, own, capture, &nodes),
        }
    }

    /// Returns whether the last record of an event has completed; then the host comes after it.
    pub(crate) fn query_event(&mut self, handle: u64) -> Outcome {
        let event = self.event(handle)?;
        self.check_usable(event.device)?;
        match event.latest() {
            Recorded::Never => Ok(()),
            Recorded::Elsewhere(record) => {
                record.want();
                if record.is_complete() { Ok(()) } else { Err(Failure::NOT_READY) }
            }
            Recorded::InCapture { .. } => Err(Failure::CAPTURED_EVENT),
            Recorded::InStream { stream, position, clock } => {
                if !self.is_done(stream, position) {
                    return Err(Failure::NOT_READY);
                }
                self.order.wait(HOST_QUEUE, &clock);
                Ok(())
            }
        }
    }

    /// Returns the milliseconds between the completed records of two events.
    pub(crate) fn elapsed(&self, start: u64, end: u64) -> Outcome<f32> {
        let (start, end) = (self.event(start)?, self.event(end)?);
        for event in [start, end] {
            match event.recorded {
                Recorded::InCapture { .. } => return Err(Failure::CAPTURED_EVENT),
                Recorded::InStream { .. } if event.is_timed() && start.device == end.device => {}
                _ => return Err(Failure::INVALID_HANDLE),
            }
        }
        let (Some(from), Some(to)) = (start.completed_at, end.completed_at) else {
            return Err(Failure::NOT_READY);
        };
        #[allow(clippy::cast_possible_truncation)] // The driver's type; microseconds fit well.
        let milliseconds = (std::time::Duration::from_nanos(to.abs_diff(from)).as_secs_f64() * 1e3) as f32;
        Ok(if to < from { -milliseconds } else { milliseconds })
    }
}
