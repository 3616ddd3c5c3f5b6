//! Host memory in pages that can be moved: real memory for an engine that remaps.
//!
//! The memory is a file that exists only in memory (`memfd_create`). A page is an extent of it, and is not
//! bound to an address: it is at the address where that extent is mapped. To move it is to map the extent
//! elsewhere; no byte is copied. Used memory is committed (`fallocate`): granted memory is there when it is
//! touched. A request that the system cannot serve is refused; only at the limit of a memory cgroup can the
//! system end the process instead, during the request and not later. Released memory becomes a hole in the
//! file.
//!
//! # Why no page has two addresses
//!
//! 1. Every byte of the file is free or mapped at one address ([`extents`]). It moves from one to the other
//!    by value, behind one lock.
//! 2. An extent leaves its address only after the system has removed its mapping: first the address is closed
//!    (`PROT_NONE`), then the extent is mapped elsewhere, or free. In between it is mapped nowhere.
//! 3. If the system refuses to close an address (it counts mappings, and a process may have 65,530 by
//!    default), the extent stays there: it is not reused, and the address is closed before anything else is
//!    mapped there. This relies on the system to refuse before it removes anything. Where it runs out of its
//!    own memory in the middle of one call, Linux before 6.12 may leave a hole in the reservation.
//! 4. If it refuses to map an extent that was to move, the extent's memory is released; nothing is left at
//!    the old address.

mod as_device;
mod extents;
mod file;
mod refusals;

use self::extents::{Extent, FreeExtents, MappedExtents};
use self::file::MemoryFile;
use self::refusals::Refusals;
use crate::backing::{IdleStreams, MemoryMeter};
use crate::error::DeviceError;
use orlop_alloc::backing::pages;
use orlop_alloc::engine_support::trace_guarded;
use std::io::{self, ErrorKind};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reservations begin at multiples of this many bytes, and the memory is a multiple of it.
const GRANULE: usize = 2 << 20;

/// Host memory of a fixed size in pages that can be moved: a device for a
/// [`DeviceAllocator`](crate::DeviceAllocator) whose memory is the CPU's. Fragmentation does not make it run
/// out of memory.
///
/// ```
/// use orlop_alloc::{Allocator, Request};
/// use orlop_device::{DeviceAllocator, HostPages, Policy};
///
/// # if cfg!(not(target_os = "linux")) || cfg!(miri) {
/// #     return Ok(());
/// # }
/// let memory = HostPages::new(64 << 20)?;
/// let allocator = DeviceAllocator::new(memory, Policy::orlop()).into_ref();
/// let request = Request::new(10 << 20);
/// let mut blocks: Vec<_> = (0..6).map(|_| allocator.allocate(&request)).collect::<Result<_, _>>()?;
/// // Every second one is freed: 32 MiB are free, but not contiguous.
/// drop(blocks.remove(4));
/// drop(blocks.remove(2));
/// drop(blocks.remove(0));
/// let mut block = allocator.allocate(&Request::new(32 << 20))?;
/// block.bytes_mut()?.fill(1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Reserved memory is committed, touched or not: use less than the machine has. Work on the CPU is complete
/// when the call returns, so streams are names and events are complete.
///
/// A process that forks shares the memory with its child, as it is a file's: the child must not use it.
#[derive(Debug)]
pub struct HostPages {
    file: MemoryFile,
    memory: u64,
    state: Mutex<HostState>,
    streams: IdleStreams,
    refusals: Refusals,
}

#[derive(Debug)]
struct HostState {
    meter: MemoryMeter,
    free: FreeExtents,
    placed: MappedExtents,
}

impl HostPages {
    /// Its size is a multiple of this many bytes.
    pub const GRANULE: usize = GRANULE;

    /// Creates a device of `bytes` bytes, rounded up to 2 MiB, none of them committed.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoMovablePages`] elsewhere than on Linux (kind `Unsupported`), and where the system
    /// refuses.
    pub fn new(bytes: u64) -> Result<Self, DeviceError> {
        let refused = |kind| DeviceError::NoMovablePages { bytes, kind };
        let size = usize::try_from(bytes).ok().and_then(|size| size.checked_next_multiple_of(GRANULE));
        let size = size.filter(|&size| size <= isize::MAX.unsigned_abs());
        let size = size.ok_or_else(|| refused(ErrorKind::OutOfMemory))?;
        let file = MemoryFile::new(size).map_err(|error| refused(error.kind()))?;
        let memory = size as u64;
        let state = HostState {
            meter: MemoryMeter::new(memory),
            free: FreeExtents::new(size),
            placed: MappedExtents::default(),
        };
        Ok(Self {
            file,
            memory,
            state: Mutex::new(state),
            streams: IdleStreams::default(),
            refusals: Refusals::default(),
        })
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().meter.used()
    }

    /// Returns the committed bytes, as the system counts them.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn resident(&self) -> io::Result<u64> {
        self.file.resident()
    }

    /// Panics unless every byte of the file is free or under one address, and mapped there and nowhere else.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn prove(&self) {
        let state = self.state();
        let bytes = usize::try_from(self.memory).unwrap_or(usize::MAX);
        extents::proof::every_byte_is_in_one_place(bytes, &state.free, &state.placed);
        extents::proof::the_system_agrees(self.file.mappings(), &state.placed);
    }

    /// Sets whether events are complete when they are queried. If not, they are once they are waited for.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn set_events_done(&self, done: bool) {
        self.streams.set_events_done(done);
    }

    /// Refuses the next calls of the system that change mappings, where a bit is set.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn refuse(&self, calls: u64) {
        self.refusals.set(calls);
    }

    fn state(&self) -> MutexGuard<'_, HostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps new memory, all or nothing.
    ///
    /// # Safety
    ///
    /// The addresses are whole pages of a reservation of this device, and not in use.
    unsafe fn fill(&self, state: &mut HostState, address: usize, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        if !unsafe { self.make_way(state, address, bytes) } {
            return false;
        }
        let Some(extents) = state.free.take(bytes) else { return false };
        if !extents.iter().all(|&extent| self.file.commit(extent)) {
            self.give(state, &extents);
            return false;
        }
        // SAFETY: guaranteed by the caller; what the system kept there before is gone.
        unsafe { self.place(state, address, &extents) }
    }

    /// Maps extents that are mapped nowhere, one after the other, all or nothing: if that fails, their memory
    /// is released to the system.
    ///
    /// # Safety
    ///
    /// As for `fill`, and nothing is mapped there.
    unsafe fn place(&self, state: &mut HostState, address: usize, extents: &[Extent]) -> bool {
        let mut at = address;
        for (number, &extent) in extents.iter().enumerate() {
            // SAFETY: guaranteed by the caller.
            if self.refusals.next() || !unsafe { self.file.map(at, extent) } {
                self.give(state, &extents[number..]);
                // SAFETY: mapped a moment ago, and used nowhere.
                let _kept = unsafe { self.clear(state, address, at - address) };
                return false;
            }
            state.placed.insert(at, extent);
            at += extent.bytes;
        }
        true
    }

    /// Removes mappings that the system refused to remove before. Returns `false` if it still does.
    ///
    /// # Safety
    ///
    /// As for `fill`.
    unsafe fn make_way(&self, state: &mut HostState, address: usize, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        !state.placed.is_any(address, bytes) || unsafe { self.clear(state, address, bytes) }
    }

    /// Removes mappings, and returns their extents. `None` if the system refuses: nothing has changed.
    ///
    /// # Safety
    ///
    /// As for `fill`.
    unsafe fn lift(&self, state: &mut HostState, address: usize, bytes: usize) -> Option<Vec<Extent>> {
        let start = NonNull::new(ptr::with_exposed_provenance_mut(address))?;
        if self.refusals.next() {
            return None;
        }
        // SAFETY: whole pages of a reservation of this device, not in use (guaranteed by the caller).
        let shut = bytes == 0 || unsafe { pages::decommit(start, bytes) };
        shut.then(|| state.placed.take(address, bytes))
    }

    /// Removes mappings and releases their memory. Returns `false` if the system keeps the mappings: their
    /// memory is released all the same, and the extents stay mapped.
    ///
    /// # Safety
    ///
    /// As for `fill`.
    unsafe fn clear(&self, state: &mut HostState, address: usize, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        if let Some(extents) = unsafe { self.lift(state, address, bytes) } {
            self.give(state, &extents);
            return true;
        }
        state.placed.inside(address, bytes).for_each(|extent| self.discard(extent));
        false
    }

    /// Frees extents that are mapped nowhere, and releases their memory to the system.
    fn give(&self, state: &mut HostState, extents: &[Extent]) {
        for &extent in extents {
            self.discard(extent);
            state.free.give(extent);
        }
    }

    fn discard(&self, extent: Extent) {
        if !self.file.discard(extent) {
            let error = io::Error::last_os_error();
            let Extent { offset, bytes } = extent;
            trace_guarded(|| tracing::error!(offset, bytes, %error, "the system did not release memory"));
        }
    }
}
