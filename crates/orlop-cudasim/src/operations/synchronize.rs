//! The calls that wait: for a stream, a device or an event.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::guard::DriverGuard;
use crate::memory::{Located, MemoryAccess};
use crate::state::event::Recorded;
use crate::state::work::Submission;
use orlop_race::HOST_QUEUE;

impl DriverGuard {
    /// Submits an operation to a stream, or adds it to the capture of the stream. Waits while the stream's
    /// queue is full.
    pub(crate) fn submit(&mut self, id: u64, submission: Submission) -> Outcome {
        let limit = self.config.launch_queue;
        let has_room = move |driver: &Driver| {
            driver.streams.get(&id).is_none_or(|stream| stream.operations.len() < limit)
        };
        if !has_room(self) {
            self.wait_until(has_room)?;
        }
        Driver::submit(self, id, submission)
    }

    /// Waits until everything submitted so far to a stream has completed.
    pub(crate) fn synchronize_stream(&mut self, id: u64) -> Outcome {
        let stream = self.stream(id)?;
        let (device, position, queue) = (stream.device, stream.submitted, stream.queue);
        let clock = self.order.record(queue);
        self.wait_until(|driver| driver.is_done(id, position))?;
        self.order.wait(HOST_QUEUE, &clock);
        self.trim_pools(device, None);
        self.check_usable(device)
    }

    /// Before memory is freed: waits for the device if frees do. Otherwise the free is an access of the host.
    pub(crate) fn before_free(&mut self, call: &str, found: Located) -> Outcome {
        if self.config.frees_wait {
            return self.synchronize_device(found.device);
        }
        self.host_access(call, MemoryAccess::write(found.start, found.bytes));
        Ok(())
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
        self.wait_until(|driver| streams.iter().all(|&(id, position, _)| driver.is_done(id, position)))?;
        for clock in clocks.iter().chain([&departed]) {
            self.order.wait(HOST_QUEUE, clock);
        }
        self.trim_pools(device, None);
        self.check_usable(device)
    }

    /// Waits until the last record of an event has completed.
    pub(crate) fn synchronize_event(&mut self, handle: u64) -> Outcome {
        let device = self.event(handle)?.device;
        match self.event(handle)?.latest() {
            Recorded::Never => return Ok(()),
            Recorded::InCapture { .. } => return Err(Failure::CAPTURED_EVENT),
            Recorded::InStream { stream, position, clock } => {
                self.wait_until(|driver| driver.is_done(stream, position))?;
                self.order.wait(HOST_QUEUE, &clock);
            }
            Recorded::Elsewhere(record) => self.synchronize_process(&record)?,
        }
        self.trim_pools(device, None);
        self.check_usable(device)
    }
}
