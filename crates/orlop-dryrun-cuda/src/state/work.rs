//! [`Work`]: streams, events, captures, and what has completed.
//!
//! Only the order of work is kept, not the work. A stream knows the position up to which it comes after each
//! stream; an event is a copy of that. The host completes positions when it waits.

use crate::code::{Failure, Outcome};
use orlop_dryrun::settings::Completion;
use std::collections::HashMap;

/// The legacy default stream, and the default stream of a thread.
const DEFAULT_STREAMS: [usize; 3] = [0, 1, 2];

/// Positions in streams.
type Clock = HashMap<usize, u64>;

#[derive(Debug, Default)]
struct Stream {
    device: usize,
    priority: i32,
    after: Clock,
    capture: Option<u64>,
}

#[derive(Debug, Default)]
struct Event {
    after: Clock,
    capture: Option<u64>,
}

/// Streams, events and captures.
#[derive(Debug)]
pub(crate) struct Work {
    completion: Completion,
    streams: HashMap<usize, Stream>,
    events: HashMap<usize, Event>,
    completed: Clock,
    /// What streams that were destroyed had submitted.
    destroyed: Clock,
    /// The streams in which captures began that have not ended, by the numbers of the captures.
    captures: HashMap<u64, usize>,
    last_capture: u64,
}

impl Work {
    pub(crate) fn new(completion: Completion) -> Self {
        let streams = DEFAULT_STREAMS.map(|stream| (stream, Stream::default())).into();
        Self {
            completion,
            streams,
            events: HashMap::new(),
            completed: Clock::new(),
            destroyed: Clock::new(),
            captures: HashMap::new(),
            last_capture: 0,
        }
    }

    pub(crate) fn create_stream(&mut self, handle: usize, device: usize, priority: i32) {
        self.streams.insert(handle, Stream { device, priority, ..Stream::default() });
    }

    pub(crate) fn destroy_stream(&mut self, handle: usize) -> Outcome {
        if DEFAULT_STREAMS.contains(&handle) {
            return Err(Failure::INVALID_HANDLE);
        }
        let stream = self.streams.remove(&handle).ok_or(Failure::INVALID_HANDLE)?;
        // Its work goes on, and events in it are still waited for.
        advance(&mut self.destroyed, &stream.after);
        if let Some(capture) = stream.capture.filter(|capture| self.captures.get(capture) == Some(&handle)) {
            self.forget_capture(capture);
        }
        Ok(())
    }

    fn stream(&mut self, handle: usize) -> Outcome<&mut Stream> {
        self.streams.get_mut(&handle).ok_or(Failure::INVALID_HANDLE)
    }

    pub(crate) fn priority(&mut self, handle: usize) -> Outcome<i32> {
        self.stream(handle).map(|stream| stream.priority)
    }

    pub(crate) fn device_of(&mut self, handle: usize) -> Outcome<usize> {
        self.stream(handle).map(|stream| stream.device)
    }

    /// Submits something to a stream.
    pub(crate) fn submit(&mut self, handle: usize) -> Outcome {
        *self.stream(handle)?.after.entry(handle).or_default() += 1;
        Ok(())
    }

    fn is_complete(&self, after: &Clock) -> bool {
        self.completion == Completion::Earliest
            || after
                .iter()
                .all(|(stream, &position)| self.completed.get(stream).copied().unwrap_or(0) >= position)
    }

    fn complete(&mut self, after: &Clock) {
        advance(&mut self.completed, after);
    }

    pub(crate) fn is_idle(&mut self, handle: usize) -> Outcome<bool> {
        let stream = self.streams.get(&handle).ok_or(Failure::INVALID_HANDLE)?;
        if stream.capture.is_some() {
            return Err(Failure::ILLEGAL_CAPTURE);
        }
        Ok(self.is_complete(&stream.after))
    }

    /// The host waits for a stream.
    pub(crate) fn wait_for_stream(&mut self, handle: usize) -> Outcome {
        let stream = self.stream(handle)?;
        if stream.capture.is_some() {
            return Err(Failure::ILLEGAL_CAPTURE);
        }
        let after = stream.after.clone();
        self.complete(&after);
        Ok(())
    }

    /// The host waits for everything.
    pub(crate) fn wait_for_all(&mut self) {
        let positions: Vec<Clock> = self.streams.values().map(|stream| stream.after.clone()).collect();
        for after in positions.iter().chain([&std::mem::take(&mut self.destroyed)]) {
            self.complete(after);
        }
    }

    pub(crate) fn create_event(&mut self, handle: usize) {
        self.events.insert(handle, Event::default());
    }

    pub(crate) fn destroy_event(&mut self, handle: usize) -> Outcome {
        self.events.remove(&handle).map(drop).ok_or(Failure::INVALID_HANDLE)
    }

    pub(crate) fn record(&mut self, event: usize, stream: usize) -> Outcome {
        if !self.events.contains_key(&event) {
            return Err(Failure::INVALID_HANDLE);
        }
        self.submit(stream)?;
        let stream = self.stream(stream)?;
        let recorded = Event { after: stream.after.clone(), capture: stream.capture };
        self.events.insert(event, recorded);
        Ok(())
    }

    /// Returns whether the last record of an event has completed.
    pub(crate) fn is_recorded(&self, event: usize) -> Outcome<bool> {
        let event = self.events.get(&event).ok_or(Failure::INVALID_HANDLE)?;
        if event.capture.is_some() {
            return Err(Failure::CAPTURED_EVENT);
        }
        Ok(self.is_complete(&event.after))
    }

    /// The host waits for an event.
    pub(crate) fn wait_for_event(&mut self, event: usize) -> Outcome {
        self.is_recorded(event)?;
        let after = self.events.get(&event).map(|event| event.after.clone()).unwrap_or_default();
        self.complete(&after);
        Ok(())
    }

    /// A stream waits for an event. A stream that waits for an event of a capture takes part in it, unless
    /// the capture has ended.
    pub(crate) fn order(&mut self, stream: usize, event: usize) -> Outcome {
        let event = self.events.get(&event).ok_or(Failure::INVALID_HANDLE)?;
        let (after, capture) = (event.after.clone(), event.capture);
        if capture.is_some_and(|capture| !self.captures.contains_key(&capture)) {
            return Err(Failure::CAPTURED_EVENT);
        }
        let stream = self.stream(stream)?;
        stream.capture = stream.capture.or(capture);
        advance(&mut stream.after, &after);
        Ok(())
    }

    pub(crate) fn begin_capture(&mut self, handle: usize) -> Outcome {
        let id = self.last_capture + 1;
        let stream = self.stream(handle)?;
        if stream.capture.is_some() {
            return Err(Failure::ILLEGAL_CAPTURE);
        }
        stream.capture = Some(id);
        self.captures.insert(id, handle);
        self.last_capture = id;
        Ok(())
    }

    /// Returns the number of the capture that a stream takes part in.
    pub(crate) fn capture(&mut self, handle: usize) -> Outcome<Option<u64>> {
        self.stream(handle).map(|stream| stream.capture)
    }

    pub(crate) fn end_capture(&mut self, handle: usize) -> Outcome {
        let capture = self.capture(handle)?.ok_or(Failure::NO_CAPTURE)?;
        if self.captures.get(&capture) != Some(&handle) {
            return Err(Failure::UNMATCHED_CAPTURE);
        }
        self.forget_capture(capture);
        Ok(())
    }

    fn forget_capture(&mut self, capture: u64) {
        self.captures.remove(&capture);
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(capture)) {
            stream.capture = None;
        }
    }
}

/// Moves positions forward to those of another clock.
fn advance(clock: &mut Clock, to: &Clock) {
    for (&stream, &position) in to {
        let entry = clock.entry(stream).or_default();
        *entry = position.max(*entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(completion: Completion) -> Work {
        let mut work = Work::new(completion);
        work.create_stream(10, 0, 0);
        work.create_stream(20, 0, -1);
        work.create_event(30);
        work
    }

    #[test]
    fn late_work_completes_when_the_host_waits_for_what_comes_after_it() {
        let mut late = work(Completion::Latest);
        late.record(30, 10).unwrap();
        assert_eq!(late.is_recorded(30), Ok(false));
        late.wait_for_stream(20).unwrap();
        assert_eq!(late.is_recorded(30), Ok(false));
        late.order(20, 30).unwrap();
        late.wait_for_stream(20).unwrap();
        assert_eq!(late.is_recorded(30), Ok(true));
        let mut early = work(Completion::Earliest);
        early.record(30, 10).unwrap();
        assert_eq!((early.is_recorded(30), early.is_idle(10)), (Ok(true), Ok(true)));
    }

    #[test]
    fn late_work_of_a_destroyed_stream_completes_when_the_host_waits_for_everything() {
        let mut late = work(Completion::Latest);
        late.record(30, 10).unwrap();
        late.destroy_stream(10).unwrap();
        assert_eq!(late.is_recorded(30), Ok(false));
        late.wait_for_all();
        assert_eq!(late.is_recorded(30), Ok(true));
    }

    #[test]
    fn no_stream_joins_a_capture_that_has_ended() {
        let mut work = work(Completion::Earliest);
        work.begin_capture(10).unwrap();
        work.record(30, 10).unwrap();
        work.order(20, 30).unwrap();
        assert_eq!(work.end_capture(20), Err(Failure::UNMATCHED_CAPTURE));
        work.destroy_stream(10).unwrap();
        assert_eq!((work.capture(20), work.order(20, 30)), (Ok(None), Err(Failure::CAPTURED_EVENT)));
        assert_eq!(work.capture(20), Ok(None));
    }

    #[test]
    fn a_capture_spreads_through_events_and_ends_for_all() {
        let mut work = work(Completion::Earliest);
        work.begin_capture(10).unwrap();
        work.record(30, 10).unwrap();
        assert_eq!(work.is_recorded(30), Err(Failure::CAPTURED_EVENT));
        work.order(20, 30).unwrap();
        assert_eq!(work.capture(20), Ok(Some(1)));
        assert_eq!(work.is_idle(20), Err(Failure::ILLEGAL_CAPTURE));
        work.end_capture(10).unwrap();
        assert_eq!((work.capture(20), work.end_capture(10)), (Ok(None), Err(Failure::NO_CAPTURE)));
    }
}
