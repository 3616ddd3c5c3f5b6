//! Virtual time: operations complete in the order of their ends, when the clock passes them.
//!
//! Every call of the host advances the clock a little; a call that waits advances it to the end of what it
//! waits for. Nothing depends on real time, so that a single-threaded program runs the same way every time.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::guard::DriverGuard;
use crate::operations::execute::execute;
use crate::operations::process_events::Patience;

impl Driver {
    /// Returns the end of a stream's first operation, once it can start.
    fn end_of_first(&mut self, id: u64) -> Option<u64> {
        let stream = self.streams.get(&id).filter(|stream| !stream.is_running)?;
        let first = stream.operations.front()?;
        if first.end.is_some() {
            return first.end;
        }
        let is_after = |&(other, position): &(u64, u64)| self.is_done(other, position);
        if !first.work.is_ready() || !first.after.iter().all(is_after) {
            return None;
        }
        // What it waited for has completed at the cursor at the latest.
        let waited = if first.after.is_empty() { 0 } else { self.cursor };
        let end = stream.ready_at.max(first.submitted_at).max(waited).saturating_add(first.duration);
        self.streams.get_mut(&id)?.operations.front_mut()?.end = Some(end);
        Some(end)
    }

    /// Returns the stream whose first operation ends next, and when.
    fn next_end(&mut self) -> Option<(u64, u64)> {
        let busy: Vec<u64> = self.busy.iter().copied().collect();
        busy.into_iter().filter_map(|id| Some((self.end_of_first(id)?, id))).min()
    }

    fn is_host_function_running(&self) -> bool {
        self.busy.iter().any(|id| self.streams.get(id).is_some_and(|stream| stream.is_running))
    }
}

impl DriverGuard {
    /// Completes every operation that ends at `time` or before, earliest first. Returns the next end after
    /// it.
    pub(crate) fn run_until(&mut self, time: u64) -> Option<u64> {
        loop {
            let (end, id) = self.next_end()?;
            if end > time {
                return Some(end);
            }
            self.complete(id, end);
        }
    }

    fn complete(&mut self, id: u64, end: u64) {
        self.cursor = self.cursor.max(end);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(first) = stream.operations.front_mut() else { return };
        let device = stream.device;
        let (work, touched) = (first.work.clone(), std::mem::take(&mut first.touched));
        stream.is_running = true;
        // The lock can be released in between: the stream is looked up again.
        execute(self, device, work, &touched, end);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_running = false;
            stream.operations.pop_front();
            stream.completed += 1;
            stream.ready_at = end;
            if stream.operations.is_empty() {
                self.busy.remove(&id);
                self.remove_if_drained(id);
            }
        }
    }

    /// Advances the clock until a condition holds.
    ///
    /// # Errors
    ///
    /// `LAUNCH_TIMEOUT` if no operation is left that could make it hold: a kernel that never ends, or another
    /// process that does not record its event.
    pub(crate) fn wait_until(&mut self, done: impl Fn(&Driver) -> bool) -> Outcome {
        let (before, mut has_waited) = (self.now, false);
        let mut patience = Patience::default();
        loop {
            let now = self.now;
            let next = self.run_until(now);
            if done(self) {
                break;
            }
            has_waited = true;
            match next {
                Some(end) if end < u64::MAX => self.now = self.now.max(end),
                _ if self.is_host_function_running() => self.wait_for_progress(),
                _ if self.is_awaiting_process() => self.wait_for_process(&mut patience)?,
                _ => return Err(Failure::LAUNCH_TIMEOUT),
            }
        }
        self.waits += u64::from(has_waited);
        self.waited_ns += self.now - before;
        Ok(())
    }
}
