//! The execution of an operation whose time has come.

use crate::codes::Failure;
use crate::driver::Driver;
use crate::guard::DriverGuard;
use crate::memory::{MemoryAccess, ProcessRecord, Reach, bytes};
use crate::state::host_thread::as_callback;
use crate::state::work::{CopySource, HostCallback, Work};
use std::ptr;

impl Driver {
    fn complete_record(&mut self, event: u64, generation: u64, shared: Option<&ProcessRecord>, end: u64) {
        if let Some(shared) = shared {
            shared.complete();
        }
        if let Some(event) = self.events.get_mut(&event) {
            event.complete(generation, end);
        }
    }

    /// Executes an operation that needs no callback into the program.
    fn execute_plain(&mut self, device: usize, work: Work, end: u64) {
        match work {
            Work::Copy { to, from: CopySource::Address(from), shape, .. } => {
                bytes::copy_rows(to, from, &shape);
            }
            Work::Copy { to, from: CopySource::Staged(staged), shape, .. } => {
                bytes::copy_rows(to, staged.as_ptr().expose_provenance(), &shape);
            }
            Work::Fill { to, pitch, count, rows, value, width } => {
                for row in 0..rows {
                    bytes::fill_pattern(to + row * pitch, count, value, width);
                }
            }
            Work::Record { event, generation, shared } => {
                self.complete_record(event, generation, shared.as_ref(), end);
            }
            Work::Free { address } => {
                if self.release_memory(address).is_err() {
                    self.devices[device].sticky.get_or_insert(Failure::ILLEGAL_ADDRESS);
                }
            }
            Work::Kernel(launch) => {
                let result = as_callback(|| launch.run());
                if let Err(fault) = result {
                    let failure = self.report_fault(&fault);
                    self.devices[device].sticky.get_or_insert(failure);
                }
            }
            Work::Host { .. } | Work::Await(_) | Work::Nothing => {}
        }
    }
}

/// Executes an operation whose time has come. Memory that is no longer there is an illegal address.
pub(crate) fn execute(
    driver: &mut DriverGuard,
    device: usize,
    work: Work,
    touched: &[MemoryAccess],
    end: u64,
) {
    if driver.devices[device].sticky.is_some() {
        // The device does nothing any more; the order of events stays.
        if let Work::Record { event, generation, shared } = work {
            driver.complete_record(event, generation, shared.as_ref(), end);
        }
        return;
    }
    let reach = match work {
        Work::Copy { is_peer: true, .. } => Reach::PeerCopy,
        Work::Copy { .. } => Reach::Copy,
        _ => Reach::Processors,
    };
    let is_allowed = |access: &MemoryAccess| driver.allows(device, reach, access);
    if !matches!(work, Work::Free { .. }) && !touched.iter().all(is_allowed) {
        driver.devices[device].sticky = Some(Failure::ILLEGAL_ADDRESS);
        return;
    }
    match work {
        Work::Host { function: HostCallback { function, data } } => driver.unlocked(|| {
            // SAFETY: the caller of `cuLaunchHostFunc` guarantees that the function can be called with its
            // data when the stream reaches it.
            unsafe { function(ptr::with_exposed_provenance_mut(data)) }
        }),
        work => driver.execute_plain(device, work, end),
    }
}
