//! [`HostPages`] as a device: the calls of an engine, as changes of the mappings.

use super::{GRANULE, HostPages};
use crate::backing::{BackingError, DeviceBacking, DriverFailure, EventId};
use orlop_alloc::Access;
use orlop_alloc::backing::{Region, pages};
use orlop_alloc::engine_support::trace_guarded;
use orlop_core::{Alignment, Device, StreamId};
use std::io;
use std::ptr::{self, NonNull};

/// Returns an error unless these are whole pages of the system, which closes no part of one.
fn check_whole(address: usize, bytes: usize) -> Result<(), BackingError> {
    let page = pages::size();
    let is_whole = bytes > 0 && address.is_multiple_of(page) && bytes.is_multiple_of(page);
    if is_whole { Ok(()) } else { Err(BackingError::Unsupported) }
}

/// Returns the error of a call that the system refused.
fn refused(call: &'static str) -> BackingError {
    let code = io::Error::last_os_error().raw_os_error().unwrap_or_default();
    BackingError::Failed(DriverFailure { call, code, name: "errno" })
}

fn region(address: usize, bytes: usize) -> Option<Region> {
    let ptr = NonNull::new(ptr::with_exposed_provenance_mut(address))?;
    Some(Region { ptr, bytes, align: Alignment::PLANNED, zeroed: true })
}

// SAFETY: 1. ranges are the kernel's, which do not overlap, and no extent of the file is under two addresses:
// see the head of the module above. Memory is initialised: the kernel's zeros, or what the engine's users
// wrote. 2. Nothing runs in a stream later than the call that puts it there. 3. What fails is undone; a move
// that fails has left the pages where they were, or has released them. 4. Its granularity is the system's
// page.
unsafe impl DeviceBacking for HostPages {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        let bytes = bytes.checked_next_multiple_of(pages::size()).ok_or(BackingError::OutOfMemory)?;
        let address = self.reserve_addresses(bytes)?;
        // SAFETY: reserved above, without pages.
        let mapped = unsafe { self.map(address, bytes, bytes) };
        if mapped.is_err() {
            // SAFETY: as above; it still has none.
            unsafe { self.release_addresses(address, bytes)? };
        }
        mapped.map(|()| address)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        let bytes = bytes.checked_next_multiple_of(pages::size()).ok_or(BackingError::OutOfMemory)?;
        // SAFETY: `allocate` mapped all of it; not in use (guaranteed by the caller).
        unsafe { self.unmap(address, bytes, bytes)? };
        // SAFETY: `allocate` reserved it, whole.
        if let Err(error) = unsafe { self.release_addresses(address, bytes) } {
            // Only addresses are lost.
            trace_guarded(|| tracing::error!(address, bytes, %error, "the system did not release addresses"));
        }
        Ok(())
    }

    fn page_granularity(&self) -> Option<usize> {
        Some(pages::size())
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        let bytes = bytes.checked_next_multiple_of(pages::size()).filter(|&bytes| bytes > 0);
        let start = bytes.and_then(|bytes| pages::reserve(bytes, GRANULE));
        start.map(|start| start.as_ptr().expose_provenance()).ok_or(BackingError::OutOfMemory)
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        let whole = bytes.checked_next_multiple_of(pages::size());
        let region = whole.and_then(|bytes| region(address, bytes)).ok_or(BackingError::Unsupported)?;
        let mut state = self.state();
        // SAFETY: the whole range, once; no page of it is in use (guaranteed by the caller).
        if !unsafe { pages::unmap(region) } {
            return Err(refused("munmap"));
        }
        // What the system kept mapped there was unmapped with the addresses.
        let kept = state.placed.take(address, region.bytes);
        self.give(&mut state, &kept);
        Ok(())
    }

    unsafe fn map(&self, address: usize, bytes: usize, _: usize) -> Result<(), BackingError> {
        check_whole(address, bytes)?;
        let mut state = self.state();
        if !state.meter.try_add(bytes) {
            return Err(BackingError::OutOfMemory);
        }
        // SAFETY: reserved, and without pages in use (guaranteed by the caller).
        if !unsafe { self.fill(&mut state, address, bytes) } {
            state.meter.sub(bytes);
            return Err(BackingError::OutOfMemory);
        }
        Ok(())
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, _: usize) -> Result<(), BackingError> {
        check_whole(address, bytes)?;
        let mut state = self.state();
        // SAFETY: mapped, and not in use (guaranteed by the caller).
        let _kept = unsafe { self.clear(&mut state, address, bytes) };
        state.meter.sub(bytes);
        Ok(())
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, _: usize) -> Result<(), BackingError> {
        check_whole(from, bytes)?;
        check_whole(to, bytes)?;
        let mut state = self.state();
        // SAFETY: reserved, and without pages in use (guaranteed by the caller).
        if !unsafe { self.make_way(&mut state, to, bytes) } {
            return Err(BackingError::OutOfMemory);
        }
        // SAFETY: mapped, and not in use (guaranteed by the caller).
        let lifted = unsafe { self.lift(&mut state, from, bytes) };
        let extents = lifted.ok_or(BackingError::OutOfMemory)?;
        // SAFETY: as for `make_way`, which removed what was mapped there.
        let placed = unsafe { self.place(&mut state, to, &extents) };
        if placed { Ok(()) } else { Err(BackingError::OutOfMemory) }
    }

    unsafe fn zero(&self, address: usize, bytes: usize, _: StreamId) -> Result<(), BackingError> {
        let start = ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: mapped, and the caller's alone (guaranteed by the caller).
        unsafe { start.write_bytes(0, bytes) };
        Ok(())
    }

    fn record(&self, _: StreamId) -> Result<EventId, BackingError> {
        Ok(self.streams.record())
    }

    fn query(&self, _: EventId) -> Result<bool, BackingError> {
        Ok(self.streams.query())
    }

    fn synchronize(&self, _: EventId) -> Result<(), BackingError> {
        Ok(())
    }

    fn wait(&self, _: StreamId, _: EventId) -> Result<(), BackingError> {
        self.streams.wait();
        Ok(())
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn free_memory(&self) -> Option<u64> {
        Some(self.memory.saturating_sub(self.used()))
    }

    fn device(&self) -> Device {
        Device::CPU
    }

    fn access(&self) -> Access {
        Access::Host
    }

    fn name(&self) -> &str {
        "host-pages"
    }
}
