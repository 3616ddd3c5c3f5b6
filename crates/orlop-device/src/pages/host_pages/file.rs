//! A file of memory: on Linux, `memfd_create`.

use super::extents::Extent;

#[cfg(target_os = "linux")]
pub(super) use self::linux::MemoryFile;
#[cfg(not(target_os = "linux"))]
pub(super) use self::none::MemoryFile;

#[cfg(target_os = "linux")]
mod linux {
    use super::Extent;
    use std::fs::File;
    use std::io::{Error, ErrorKind};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::fs::MetadataExt;
    use std::ptr;

    /// Memory is committed in steps of this: a signal that comes meanwhile undoes one step.
    const STEP: usize = 2 << 20;

    /// The unit of `st_blocks`, whatever the file system's own.
    const BLOCK: u64 = 512;

    /// A file that exists only in memory, of this process alone.
    #[derive(Debug)]
    pub(in super::super) struct MemoryFile {
        file: File,
    }

    impl MemoryFile {
        /// Creates a file of `bytes` bytes, without memory yet.
        pub(in super::super) fn new(bytes: usize) -> Result<Self, Error> {
            if cfg!(miri) {
                // Miri does not map files.
                return Err(ErrorKind::Unsupported.into());
            }
            // SAFETY: the name is a string that ends in a zero.
            let descriptor = unsafe { libc::memfd_create(c"orlop".as_ptr(), libc::MFD_CLOEXEC) };
            if descriptor < 0 {
                return Err(Error::last_os_error());
            }
            // SAFETY: the kernel made it a moment ago, for us.
            let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
            let file = File::from(owned);
            file.set_len(bytes as u64)?;
            Ok(Self { file })
        }

        /// Commits memory for an extent, zeroed where there was none. Returns `false` if the system has no
        /// more.
        pub(in super::super) fn commit(&self, extent: Extent) -> bool {
            let Extent { offset, bytes } = extent;
            let steps = (offset..offset + bytes).step_by(STEP);
            steps.into_iter().all(|at| self.allocate(0, at, STEP.min(offset + bytes - at)))
        }

        /// Decommits the memory of an extent. Returns `false` if the system keeps it in the file.
        pub(in super::super) fn discard(&self, extent: Extent) -> bool {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            self.allocate(mode, extent.offset, extent.bytes)
        }

        fn allocate(&self, mode: libc::c_int, offset: usize, bytes: usize) -> bool {
            let (Ok(offset), Ok(bytes)) = (libc::off_t::try_from(offset), libc::off_t::try_from(bytes))
            else {
                return false;
            };
            loop {
                // SAFETY: a call on a file of ours. Holes are made only where no block is.
                if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, bytes) } == 0 {
                    return true;
                }
                if Error::last_os_error().kind() != ErrorKind::Interrupted {
                    return false;
                }
            }
        }

        /// Maps an extent, and replaces what is mapped there. Returns `false` if the system cannot.
        ///
        /// # Safety
        ///
        /// The addresses are the caller's, and not in use.
        pub(in super::super) unsafe fn map(&self, address: usize, extent: Extent) -> bool {
            let Ok(offset) = libc::off_t::try_from(extent.offset) else { return false };
            let place = ptr::with_exposed_provenance_mut(address);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // The memory is there: finding each page again by a fault would take many times longer.
            let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
            let file = self.file.as_raw_fd();
            // SAFETY: what is there may be replaced (guaranteed by the caller).
            let mapped = unsafe { libc::mmap(place, extent.bytes, protection, flags, file, offset) };
            mapped == place
        }

        /// Returns the bytes of memory of the file, as the system counts them.
        pub(in super::super) fn resident(&self) -> Result<u64, Error> {
            Ok(self.file.metadata()?.blocks() * BLOCK)
        }

        /// Returns the mappings of the file in this process, in order of address, as the system lists them.
        #[cfg(test)]
        pub(in super::super) fn mappings(&self) -> Vec<(usize, Extent)> {
            let inode = self.file.metadata().expect("it is open").ino().to_string();
            let list = std::fs::read_to_string("/proc/self/maps").expect("Linux has this file");
            let number = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            let of_file = list.lines().filter_map(|line| {
                // 7f00-7f20 rw-s 00001000 00:01 1234 /memfd:orlop (deleted)
                let mut fields = line.split_ascii_whitespace();
                let (range, mut fields) = (fields.next()?, fields.skip(1));
                let (offset, mut fields) = (fields.next()?, fields.skip(1));
                let (start, end) = range.split_once('-')?;
                let ours = fields.next() == Some(&inode) && line.contains("memfd:orlop");
                let place = (number(start), number(end));
                ours.then(|| (place.0, Extent { offset: number(offset), bytes: place.1 - place.0 }))
            });
            of_file.collect()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use super::Extent;
    use std::io::{Error, ErrorKind};

    /// There are no such files here.
    #[derive(Debug)]
    pub(in super::super) enum MemoryFile {}

    impl MemoryFile {
        pub(in super::super) fn new(_: usize) -> Result<Self, Error> {
            Err(ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn commit(&self, _: Extent) -> bool {
            match *self {}
        }

        pub(in super::super) fn discard(&self, _: Extent) -> bool {
            match *self {}
        }

        /// # Safety
        ///
        /// None: there is no value to call it with.
        pub(in super::super) unsafe fn map(&self, _: usize, _: Extent) -> bool {
            match *self {}
        }

        pub(in super::super) fn resident(&self) -> Result<u64, Error> {
            match *self {}
        }
    }
}
