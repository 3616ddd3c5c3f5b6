//! The spans of ended steps whose times on the device were not read.
//!
//! A time is read without a lock: it waits for the device, and a backend can report something, to a
//! subscriber that is user code. A span that a thread reads is noted, so that others wait for its time.

use super::device_time::DeviceSpan;
use orlop_alloc::engine_support::trace_guarded;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Unread spans, each with the index of its step.
#[derive(Debug, Default)]
pub(super) struct UnreadSpans {
    queue: Mutex<SpanQueue>,
    /// Signals that a span was read.
    read: Condvar,
}

#[derive(Debug, Default)]
struct SpanQueue {
    /// In the order in which they ended.
    unread: VecDeque<(u64, Box<dyn DeviceSpan>)>,
    /// The steps whose spans are being read, by which threads.
    reading: Vec<(u64, ThreadId)>,
}

impl UnreadSpans {
    fn queue(&self) -> MutexGuard<'_, SpanQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the span of a step that has ended.
    pub(super) fn push(&self, step: u64, span: Box<dyn DeviceSpan>) {
        self.queue().unread.push_back((step, span));
    }

    pub(super) fn len(&self) -> usize {
        self.queue().unread.len()
    }

    /// Takes all spans that no thread reads.
    pub(super) fn take(&self) -> impl Sized + use<> {
        mem::take(&mut self.queue().unread)
    }

    /// Reads the times of the unread spans but the last `kept`, and passes each to `note` with the index of
    /// its step. Does not wait for spans that other threads read.
    pub(super) fn read(&self, kept: usize, note: impl Fn(u64, Option<Duration>)) {
        // Not those that end meanwhile: other threads could add them without end.
        for _ in kept..self.len() {
            let Some((step, mut span)) = self.take_next(kept) else { break };
            let noted = SpanRead { spans: self, step };
            let time = span.time();
            note(step, time.as_ref().ok().copied());
            drop(noted);
            // After the others were woken: a subscriber can wait for their threads.
            measured(time);
        }
    }

    /// Takes the oldest span to read it.
    fn take_next(&self, kept: usize) -> Option<(u64, Box<dyn DeviceSpan>)> {
        let mut queue = self.queue();
        let next = if queue.unread.len() > kept { queue.unread.pop_front() } else { None };
        queue.reading.extend(next.iter().map(|(step, _)| (*step, thread::current().id())));
        next
    }

    /// Waits for the spans that other threads read at this moment. Code that runs while a time is read does
    /// not wait: two such threads could wait for each other.
    pub(super) fn wait_for_readers(&self) {
        let queue = self.queue();
        let this = thread::current().id();
        if queue.reading.iter().any(|(_, reader)| *reader == this) {
            return;
        }
        let awaited: Vec<u64> = queue.reading.iter().map(|(step, _)| *step).collect();
        let is_reading = |queue: &mut SpanQueue| queue.reading.iter().any(|(step, _)| awaited.contains(step));
        drop(self.read.wait_while(queue, is_reading).unwrap_or_else(PoisonError::into_inner));
    }
}

/// A span that a thread reads, until this is dropped.
struct SpanRead<'a> {
    spans: &'a UnreadSpans,
    step: u64,
}

impl Drop for SpanRead<'_> {
    fn drop(&mut self) {
        self.spans.queue().reading.retain(|(step, _)| *step != self.step);
        self.spans.read.notify_all();
    }
}

/// Returns a measurement, if it did not fail.
pub(super) fn measured<T>(result: orlop_alloc::Result<T>) -> Option<T> {
    let failed = |error: &orlop_alloc::Error| {
        trace_guarded(|| tracing::warn!(%error, "the time of a step on the device was not measured"));
    };
    result.inspect_err(failed).ok()
}
