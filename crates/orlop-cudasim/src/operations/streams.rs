//! Streams: the default streams, submission, the order among streams, and the end of a stream.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::state::host_thread::thread;
use crate::state::stream::{LEGACY, Operation, PER_THREAD, Stream};
use crate::state::work::Submission;
use orlop_race::HOST_QUEUE;

impl Driver {
    /// Returns the stream of a handle, which may be a default stream's.
    pub(crate) fn stream_of(&mut self, handle: u64) -> Outcome<u64> {
        match handle {
            0 | LEGACY => Ok(self.devices[self.current_device()?].legacy),
            PER_THREAD => {
                let device = self.current_device()?;
                let key = (thread(), device);
                if let Some(&known) = self.thread_streams.get(&key) {
                    return Ok(known);
                }
                let stream = self.add_stream(device, Stream::new(0, 0));
                self.thread_streams.insert(key, stream);
                Ok(stream)
            }
            handle => match self.streams.get(&handle) {
                Some(stream) if !stream.is_destroyed && !stream.is_legacy => {
                    self.check_usable(stream.device)?;
                    Ok(handle)
                }
                _ => Err(Failure::INVALID_HANDLE),
            },
        }
    }

    /// Checks that the context of a device is usable, whichever is current.
    pub(crate) fn check_usable(&self, device: usize) -> Outcome {
        self.devices[device].sticky.map_or(Ok(()), Err)
    }

    /// Submits an operation to a stream, or adds it to the capture of the stream.
    pub(crate) fn submit(&mut self, id: u64, submission: Submission) -> Outcome {
        if self.stream(id)?.capture.is_some() {
            return self.capture_node(id, submission);
        }
        self.refuse_implicit(id)?;
        self.push(id, submission, Vec::new())
    }

    /// Submits an operation that starts after these positions of streams too.
    pub(crate) fn push(&mut self, id: u64, submission: Submission, mut after: Vec<(u64, u64)>) -> Outcome {
        self.join_default_stream(id, &mut after)?;
        let Submission { name, work, accesses, duration } = submission;
        let typical = match &work {
            work if work.is_instant() => 0,
            work => self.config.op_ns + work.moved() as u64 * 1000 / self.config.bytes_per_us.max(1),
        };
        let duration =
            duration.unwrap_or_else(|| if typical == 0 { 0 } else { self.durations.around(typical) });
        let queue = self.stream(id)?.queue;
        self.check_accesses(&name, queue, id, &accesses);
        let submitted_at = self.now;
        let stream = self.stream_mut(id)?;
        stream.submitted += 1;
        let touched = accesses;
        stream.operations.push_back(Operation { after, work, touched, duration, submitted_at, end: None });
        self.busy.insert(id);
        Ok(())
    }

    /// Orders an operation with the legacy default stream of the device.
    fn join_default_stream(&mut self, id: u64, after: &mut Vec<(u64, u64)>) -> Outcome {
        let stream = self.stream(id)?;
        let (device, queue) = (stream.device, stream.queue);
        if stream.is_legacy {
            let others: Vec<(u64, u64, usize)> = self
                .streams
                .iter()
                .filter(|(_, other)| other.device == device && other.is_blocking())
                .map(|(&other, found)| (other, found.submitted, found.queue))
                .collect();
            for (other, position, other_queue) in others {
                after.push((other, position));
                let clock = self.order.record(other_queue);
                self.order.wait(queue, &clock);
            }
            self.order.wait(queue, &self.devices[device].departed_blocking);
        } else if stream.is_blocking() {
            let legacy = self.devices[device].legacy;
            let found = self.stream(legacy)?;
            let (position, legacy_queue) = (found.submitted, found.queue);
            after.push((legacy, position));
            let clock = self.order.record(legacy_queue);
            self.order.wait(queue, &clock);
        }
        after.retain(|&(other, position)| !self.is_done(other, position));
        Ok(())
    }

    /// Orders the host after everything submitted to a stream.
    pub(crate) fn host_waits_for(&mut self, id: u64) {
        if let Some(queue) = self.streams.get(&id).map(|stream| stream.queue) {
            let clock = self.order.record(queue);
            self.order.wait(HOST_QUEUE, &clock);
        }
    }

    /// Destroys a stream; its operations still complete.
    pub(crate) fn destroy_stream(&mut self, id: u64) -> Outcome {
        self.stream_mut(id)?.is_destroyed = true;
        self.remove_if_drained(id);
        Ok(())
    }

    pub(crate) fn remove_if_drained(&mut self, id: u64) {
        if self.streams.get(&id).is_some_and(|stream| stream.is_destroyed && stream.operations.is_empty())
            && let Some(stream) = self.streams.remove(&id)
        {
            self.free_stream_handle(id, stream.submitted);
            // A wait for the device is one for this stream's work too.
            let end = self.order.record(stream.queue);
            self.order.retire_queue(stream.queue);
            let device = &mut self.devices[stream.device];
            device.departed.join(&end);
            if stream.is_blocking() {
                device.departed_blocking.join(&end);
            }
        }
    }
}
