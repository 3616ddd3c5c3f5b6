//! [`Work`]: what an operation in a stream does, and its execution.

use crate::call::{DriverGuard, as_callback};
use crate::codes::Failure;
use crate::driver::Driver;
use crate::memory::{CopyShape, MemoryAccess, bytes};
use crate::modules::Launch;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// Where a copy reads.
#[derive(Debug, Clone)]
pub(crate) enum CopySource {
    Address(usize),
    /// Pageable memory, staged when the call was made.
    Staged(Arc<[u8]>),
}

#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// Takes time, or only a place in the order.
    Nothing,
    Copy {
        to: usize,
        from: CopySource,
        shape: CopyShape,
    },
    Fill {
        to: usize,
        pitch: usize,
        count: usize,
        rows: usize,
        value: u32,
        width: usize,
    },
    /// Sets the time of an event, if it was not recorded again since.
    Record {
        event: u64,
        generation: u64,
    },
    Host {
        function: HostCallback,
    },
    Kernel(Arc<Launch>),
    /// Returns memory that was allocated in stream order.
    Free {
        address: usize,
    },
}

/// A host function with its argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCallback {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

impl Work {
    /// Returns how many bytes the operation moves, for its duration.
    pub(crate) fn moved(&self) -> usize {
        match self {
            Self::Copy { shape, .. } => shape.bytes(),
            Self::Fill { count, rows, width, .. } => count.saturating_mul(*rows).saturating_mul(*width),
            _ => 0,
        }
    }

    /// Returns `true` for operations that take no time of the device.
    pub(crate) fn is_instant(&self) -> bool {
        matches!(self, Self::Nothing | Self::Record { .. } | Self::Free { .. })
    }
}

impl Driver {
    /// Executes an operation that needs no callback into the program.
    fn execute_plain(&mut self, device: usize, work: Work, end: u64) {
        match work {
            Work::Copy { to, from: CopySource::Address(from), shape } => bytes::copy_rows(to, from, &shape),
            Work::Copy { to, from: CopySource::Staged(staged), shape } => {
                bytes::copy_rows(to, staged.as_ptr().expose_provenance(), &shape);
            }
            Work::Fill { to, pitch, count, rows, value, width } => {
                for row in 0..rows {
                    bytes::fill_pattern(to + row * pitch, count, value, width);
                }
            }
            Work::Record { event, generation } => self.complete_record(event, generation, end),
            Work::Free { address } => {
                if self.release_memory(address).is_err() {
                    self.devices[device].sticky.get_or_insert(Failure::ILLEGAL_ADDRESS);
                }
            }
            Work::Kernel(launch) => {
                let result = as_callback(|| launch.run());
                if let Err(failure) = result {
                    self.devices[device].sticky.get_or_insert(failure);
                }
            }
            Work::Host { .. } | Work::Nothing => {}
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
        if let Work::Record { event, generation } = work {
            driver.complete_record(event, generation, end);
        }
        return;
    }
    if !matches!(work, Work::Free { .. }) && touched.iter().any(|access| !driver.allows(access)) {
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
