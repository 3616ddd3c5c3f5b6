//! Allocation in the order of a stream: memory that a stream frees goes back to its pool when the stream gets
//! there.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::guard::DriverGuard;
use crate::memory::{MemoryAccess, SimMemory, rounded};
use crate::state::work::{Submission, Work};

impl Driver {
    fn allocate_in_pool(&mut self, handle: u64, bytes: usize) -> Outcome<usize> {
        let taken = rounded(bytes)?;
        let device = self.pool(handle)?.device;
        self.charge_pool(handle, taken)?;
        let poison = self.config.has_poison;
        let allocated = self.memory.allocate(bytes, SimMemory::Device, device, handle, 0, poison);
        if allocated.is_err() {
            self.return_to_pool(handle, taken);
        }
        allocated
    }

    /// Frees memory when a stream gets there.
    pub(crate) fn free_in_stream(&mut self, address: usize, stream: u64) -> Outcome {
        let found = self.memory.allocations.get(&address).copied().ok_or(Failure::INVALID_VALUE)?;
        if found.kind != SimMemory::Device {
            return Err(Failure::INVALID_VALUE);
        }
        let access = MemoryAccess::write(address, found.bytes);
        if let Some((capture, _)) = self.stream(stream)?.capture {
            let owned =
                self.captures.get(&capture).is_some_and(|found| found.graph.memory.contains(&address));
            if !owned {
                // "must therefore be passed the address of a graph allocation". The capture goes on.
                return Err(Failure::INVALID_VALUE);
            }
            // The graph keeps its memory for the next launch.
            return self.submit(stream, Submission::new("cuMemFreeAsync", Work::Nothing, vec![access]));
        }
        self.refuse_in_capture()?;
        self.submit(stream, Submission::new("cuMemFreeAsync", Work::Free { address }, vec![access]))
    }
}

impl DriverGuard {
    /// Allocates from a pool in the order of a stream.
    pub(crate) fn allocate_in_stream(&mut self, handle: u64, bytes: usize, stream: u64) -> Outcome<usize> {
        if bytes == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        if !self.config.has_pools {
            return Err(Failure::NOT_SUPPORTED);
        }
        if self.stream(stream)?.capture.is_none() {
            self.refuse_in_capture()?;
        }
        let mut allocated = self.allocate_in_pool(handle, bytes);
        if allocated == Err(Failure::OUT_OF_MEMORY) && self.config.pools_wait {
            // Memory of this pool may be on its way back. The host learns nothing by the wait.
            self.wait_until(|driver| !driver.awaits_memory(handle))?;
            allocated = self.allocate_in_pool(handle, bytes);
        }
        let address = allocated?;
        let access = MemoryAccess::write(address, bytes);
        if let Some((capture, _)) = self.stream(stream)?.capture
            && let Some(capture) = self.captures.get_mut(&capture)
        {
            capture.graph.memory.push(address);
        }
        let submission = Submission::new("cuMemAllocAsync", Work::Nothing, vec![access]);
        if let Err(failure) = self.submit(stream, submission) {
            self.release_memory(address)?;
            return Err(failure);
        }
        Ok(address)
    }
}
