//! [`Arena`]: the mappings behind all simulated memory.
//!
//! One sparse file in memory has three parts. The first is mapped as a whole, readable and writable:
//! allocations are ranges of it. The second is physical memory for virtual memory management: its parts are
//! mapped with `MAP_FIXED` into reserved addresses, any number of times, so that aliases are true aliases.
//! The last has the events that processes share.

use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// Size of each part of the file, and of the linear region.
const PART: usize = 1 << 41;

/// Size of the part for events.
pub(super) const EVENTS: usize = 1 << 20;

/// Size of the region for reservations.
const RESERVATIONS: usize = 1 << 44;

/// Where the regions are mapped if nothing else is there: the same addresses in every run.
const LINEAR_AT: usize = 0x2000_0000_0000;
const RESERVATIONS_AT: usize = 0x3000_0000_0000;

#[derive(Debug)]
pub(crate) struct Arena {
    file: OwnedFd,
    linear: usize,
    reservations: usize,
}

impl Arena {
    pub(crate) fn map() -> Option<Self> {
        // SAFETY: the name is a terminated string; the call has no other precondition.
        let file = unsafe { libc::memfd_create(c"orlop-cudasim".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return None;
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let length = libc::off_t::try_from(2 * PART + EVENTS).ok()?;
        // SAFETY: the descriptor is open; the call changes only the size of this new file.
        if unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0 {
            return None;
        }
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let linear = map_at(LINEAR_AT, PART, read_write, shared, file.as_raw_fd())?;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let reservations = map_at(RESERVATIONS_AT, RESERVATIONS, libc::PROT_NONE, anonymous, -1)?;
        Some(Self { file, linear, reservations })
    }

    pub(crate) fn linear(&self) -> Range<usize> {
        self.linear..self.linear + PART
    }

    pub(crate) fn reservations(&self) -> Range<usize> {
        self.reservations..self.reservations + RESERVATIONS
    }

    /// Returns the part of the file for physical memory.
    pub(crate) fn physical(&self) -> Range<usize> {
        PART..2 * PART
    }

    /// Returns the file, and where its part for events begins.
    pub(super) fn events(&self) -> (&OwnedFd, usize) {
        (&self.file, 2 * PART)
    }

    /// Maps physical memory at reserved addresses, without access.
    pub(crate) fn map_physical(&self, address: usize, offset: usize, bytes: usize) -> bool {
        self.map_foreign_pages(address, &self.file, offset, bytes)
    }

    /// Maps physical memory in another process's file at reserved addresses, without access.
    pub(crate) fn map_foreign_pages(
        &self,
        address: usize,
        file: &OwnedFd,
        offset: usize,
        bytes: usize,
    ) -> bool {
        debug_assert!(self.reservations().contains(&address));
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let Ok(offset) = libc::off_t::try_from(offset) else { return false };
        let at = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the addresses are part of the arena's region of reservations, which nothing else uses;
        // what is mapped there is replaced on purpose.
        let mapped = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, file.as_raw_fd(), offset) };
        mapped != libc::MAP_FAILED
    }

    pub(crate) fn protect(&self, address: usize, bytes: usize, protection: i32) -> bool {
        debug_assert!(self.reservations().contains(&address));
        let at = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the addresses are part of the arena's region of reservations.
        unsafe { libc::mprotect(at, bytes, protection) == 0 }
    }

    /// Replaces what is mapped at reserved addresses by inaccessible memory.
    pub(crate) fn unmap(&self, address: usize, bytes: usize) -> bool {
        debug_assert!(self.reservations().contains(&address));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let at = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the addresses are part of the arena's region of reservations, which nothing else uses.
        let mapped = unsafe { libc::mmap(at, bytes, libc::PROT_NONE, flags, -1, 0) };
        mapped != libc::MAP_FAILED
    }

    /// Writes a byte over physical memory.
    pub(crate) fn write_physical(&self, offset: usize, bytes: usize, byte: u8) -> bool {
        let buffer = vec![byte; bytes.min(1 << 20)];
        let mut done = 0;
        while done < bytes {
            let part = &buffer[..buffer.len().min(bytes - done)];
            let Ok(at) = libc::off_t::try_from(offset + done) else { return false };
            // SAFETY: the buffer is valid for reads of its length.
            let written =
                unsafe { libc::pwrite(self.file.as_raw_fd(), part.as_ptr().cast(), part.len(), at) };
            match usize::try_from(written) {
                Ok(written) if written > 0 => done += written,
                _ => return false,
            }
        }
        true
    }

    /// Returns the number of the file's descriptor in this process.
    pub(crate) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Maps a part of another process's file at linear addresses.
    pub(crate) fn map_foreign(&self, address: usize, file: &OwnedFd, offset: usize, bytes: usize) -> bool {
        self.map_linear(address, file, offset, bytes)
    }

    /// Maps the file's own part at linear addresses again.
    pub(crate) fn unmap_foreign(&self, address: usize, bytes: usize) -> bool {
        self.map_linear(address, &self.file, address - self.linear, bytes)
    }

    fn map_linear(&self, address: usize, file: &OwnedFd, offset: usize, bytes: usize) -> bool {
        debug_assert!(self.linear().contains(&address));
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let Ok(offset) = libc::off_t::try_from(offset) else { return false };
        let (at, access) = (ptr::with_exposed_provenance_mut(address), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the addresses are part of the arena's linear region, of which the caller has taken them;
        // what is mapped there is replaced on purpose.
        let mapped = unsafe { libc::mmap(at, bytes, access, flags, file.as_raw_fd(), offset) };
        mapped != libc::MAP_FAILED
    }

    /// Makes memory read as zero. Returns `false` if it is as it was.
    pub(crate) fn discard_linear(&self, address: usize, bytes: usize) -> bool {
        self.punch(address - self.linear, bytes)
    }

    pub(crate) fn discard_physical(&self, offset: usize, bytes: usize) {
        self.punch(offset, bytes);
    }

    pub(crate) fn discard_all(&self) {
        self.punch(0, 2 * PART);
    }

    /// Gives the pages of a part of the file back to the system; they read as zero. A failure only keeps
    /// them.
    fn punch(&self, offset: usize, bytes: usize) -> bool {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (Ok(offset), Ok(bytes)) = (libc::off_t::try_from(offset), libc::off_t::try_from(bytes)) else {
            return false;
        };
        // SAFETY: the descriptor is open, and the file is the arena's own.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, bytes) == 0 }
    }
}

/// Maps memory at an address, or anywhere if that is taken, and exposes it.
fn map_at(address: usize, bytes: usize, protection: i32, flags: i32, file: i32) -> Option<usize> {
    let try_at = |at: usize, flags: i32| {
        let at = ptr::without_provenance_mut(at);
        // SAFETY: without `MAP_FIXED`, and with `MAP_FIXED_NOREPLACE`, no existing mapping is changed.
        let mapped = unsafe { libc::mmap(at, bytes, protection, flags, file, 0) };
        (mapped != libc::MAP_FAILED).then(|| mapped.expose_provenance())
    };
    try_at(address, flags | libc::MAP_FIXED_NOREPLACE).or_else(|| try_at(0, flags))
}
