//! Streams: ordered queues of operations, and the legacy and per-thread default streams.

use crate::call::DriverGuard;
use crate::capture::NodeSet;
use crate::codes::{Failure, Outcome};
use crate::context::thread;
use crate::driver::Driver;
use crate::memory::MemoryAccess;
use crate::work::Work;
use orlop_race::HOST_QUEUE;
use std::collections::VecDeque;
use std::sync::Arc;

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
pub(crate) const LEGACY: u64 = 1;
pub(crate) const PER_THREAD: u64 = 2;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

/// An operation in a stream.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Streams and positions that must complete before it starts.
    pub(crate) after: Vec<(u64, u64)>,
    pub(crate) work: Work,
    pub(crate) touched: Vec<MemoryAccess>,
    pub(crate) duration: u64,
    pub(crate) submitted_at: u64,
    /// Known once it can start.
    pub(crate) end: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) is_legacy: bool,
    /// Its number in the order of work.
    pub(crate) queue: usize,
    pub(crate) operations: VecDeque<Operation>,
    /// How many operations were submitted and how many have completed.
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    /// The end of the last completed operation.
    pub(crate) ready_at: u64,
    /// Whether the first operation is a host function that runs now.
    pub(crate) is_running: bool,
    /// Gone for the program; its operations still complete.
    pub(crate) is_destroyed: bool,
    /// The capture it is part of, and the nodes that its next operation follows.
    pub(crate) capture: Option<(u64, NodeSet)>,
}

impl Stream {
    pub(crate) fn new(flags: u32, priority: i32) -> Self {
        Self {
            device: 0,
            flags,
            priority,
            is_legacy: false,
            queue: HOST_QUEUE,
            operations: VecDeque::new(),
            submitted: 0,
            completed: 0,
            ready_at: 0,
            is_running: false,
            is_destroyed: false,
            capture: None,
        }
    }

    pub(crate) fn legacy() -> Self {
        Self { is_legacy: true, ..Self::new(0, 0) }
    }

    /// Returns `true` for streams that wait for the legacy default stream and that it waits for.
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0 && !self.is_legacy
    }
}

/// An operation to submit.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) name: Arc<str>,
    pub(crate) work: Work,
    pub(crate) accesses: Vec<MemoryAccess>,
    /// A given duration; otherwise one that follows from the seed.
    pub(crate) duration: Option<u64>,
}

impl Submission {
    pub(crate) fn new(name: &str, work: Work, accesses: Vec<MemoryAccess>) -> Self {
        Self { name: Arc::from(name), work, accesses, duration: None }
    }
}

impl Driver {
    pub(crate) fn add_stream(&mut self, device: usize, stream: Stream) -> u64 {
        let handle = self.handle();
        let queue = self.order.add_queue();
        self.streams.insert(handle, Stream { device, queue, ..stream });
        handle
    }

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
                Some(stream) if !stream.is_destroyed && !stream.is_legacy => Ok(handle),
                _ => Err(Failure::INVALID_HANDLE),
            },
        }
    }

    pub(crate) fn stream(&self, id: u64) -> Outcome<&Stream> {
        self.streams.get(&id).ok_or(Failure::INVALID_HANDLE)
    }

    pub(crate) fn stream_mut(&mut self, id: u64) -> Outcome<&mut Stream> {
        self.streams.get_mut(&id).ok_or(Failure::INVALID_HANDLE)
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
        let done = |&(other, position): &(u64, u64)| {
            self.streams.get(&other).is_none_or(|found| found.completed >= position)
        };
        after.retain(|wait| !done(wait));
        Ok(())
    }

    /// Returns `true` if everything submitted to a stream has completed.
    pub(crate) fn is_idle(&self, id: u64) -> bool {
        self.streams.get(&id).is_none_or(|stream| stream.operations.is_empty())
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

impl DriverGuard {
    /// Waits until everything submitted so far to a stream has completed.
    pub(crate) fn synchronize_stream(&mut self, id: u64) -> Outcome {
        let stream = self.stream(id)?;
        let (device, position, queue) = (stream.device, stream.submitted, stream.queue);
        let clock = self.order.record(queue);
        self.wait_until(|driver| driver.streams.get(&id).is_none_or(|stream| stream.completed >= position))?;
        self.order.wait(HOST_QUEUE, &clock);
        self.trim_pools(device);
        self.devices[device].sticky.map_or(Ok(()), Err)
    }

    /// Waits until everything submitted so far to a device has completed.
    pub(crate) fn synchronize_device(&mut self, device: usize) -> Outcome {
        let streams: Vec<(u64, u64, usize)> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.device == device)
            .map(|(&id, stream)| (id, stream.submitted, stream.queue))
            .collect();
        let departed = self.devices[device].departed.clone();
        let clocks: Vec<_> = streams.iter().map(|&(_, _, queue)| self.order.record(queue)).collect();
        self.wait_until(|driver| {
            let done = |&(id, position, _): &(u64, u64, usize)| {
                driver.streams.get(&id).is_none_or(|stream| stream.completed >= position)
            };
            streams.iter().all(done)
        })?;
        for clock in clocks.iter().chain([&departed]) {
            self.order.wait(HOST_QUEUE, clock);
        }
        self.trim_pools(device);
        self.devices[device].sticky.map_or(Ok(()), Err)
    }
}
