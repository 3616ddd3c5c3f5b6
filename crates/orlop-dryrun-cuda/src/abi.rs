//! Pointers of callers. [`Out`] and [`In`] can be null and are valid otherwise, by the interface of CUDA;
//! that is the one assumption they make. Device addresses and handles are plain numbers of the same size.

use crate::code::{Failure, Outcome};
use std::ffi::{CStr, c_char};
use std::ptr;

/// A pointer that a call writes values through.
///
/// Invariant: null, or valid for writes of the number of values that the call documents, while it runs. Only
/// a caller of the C interface makes one.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer for values whose type another argument decides.
    pub(crate) fn cast<U>(&self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Writes a value; fails on a null pointer.
    pub(crate) fn set(&self, value: T) -> Outcome {
        self.set_at(0, value)
    }

    /// Writes the value at an index; fails on a null pointer.
    pub(crate) fn set_at(&self, index: usize, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: not null, therefore valid for writes of the documented number of values by the invariant;
        // calls write no more than those.
        let place = unsafe { self.0.add(index) };
        // SAFETY: as above. Callers may pass unaligned pointers into their own buffers.
        unsafe { place.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value unless the pointer is null.
    pub(crate) fn set_optional(&self, value: T) {
        let _ = self.set(value);
    }
}

impl<T: Copy> Out<T> {
    /// Reads the value at an index that the caller wrote there.
    pub(crate) fn get_at(&self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: not null; arguments that are read and written are valid for reads of the documented number.
        let place = unsafe { self.0.add(index) };
        // SAFETY: as above.
        Ok(unsafe { place.read_unaligned() })
    }
}

impl Out<u8> {
    /// Writes bytes; nothing through a null pointer.
    pub(crate) fn write(&self, bytes: &[u8]) {
        if !self.0.is_null() {
            // SAFETY: not null, therefore valid for writes of the bytes that the call documents; `bytes` is a
            // slice of this library, which the caller's buffer does not overlap.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        }
    }

    /// Writes a C string into a buffer of `capacity` bytes, cut off if it is longer.
    pub(crate) fn write_text(&self, text: &str, capacity: usize) {
        let length = text.len().min(capacity.saturating_sub(1));
        if capacity > 0 {
            self.write(&[&text.as_bytes()[..length], &[0]].concat());
        }
    }
}

/// A pointer that a call reads values through. The invariant is that of [`Out`], for reads.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Returns the pointer at an address of a caller, which the interface of a call says is valid.
    pub(crate) fn from_address(address: usize) -> Self {
        Self(ptr::with_exposed_provenance(address))
    }

    /// Reads the value; fails on a null pointer.
    pub(crate) fn get(&self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: not null, therefore valid for reads by the type's invariant.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads `count` values; none through a null pointer.
    pub(crate) fn list(&self, count: usize) -> Vec<T> {
        if self.0.is_null() {
            return Vec::new();
        }
        let value = |index| {
            // SAFETY: not null, therefore valid for reads of the documented number of values.
            let place = unsafe { self.0.add(index) };
            // SAFETY: as above.
            unsafe { place.read_unaligned() }
        };
        (0..count).map(value).collect()
    }
}

/// A C string of a caller, or null.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// Returns the text; empty for a null pointer.
    pub(crate) fn get(&self) -> String {
        if self.0.is_null() {
            return String::new();
        }
        // SAFETY: not null, therefore a terminated string, by the interface of the call.
        unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned()
    }

    /// Returns the text at the address of one, which lives as long as the library that has it.
    pub(crate) fn from_address(address: usize) -> Self {
        Self(ptr::with_exposed_provenance(address))
    }
}

/// Copies bytes between buffers of the caller, which may overlap.
pub(crate) fn move_bytes(to: usize, from: usize, bytes: usize) {
    if to != 0 && from != 0 {
        let (to, from): (*mut u8, *const u8) =
            (ptr::with_exposed_provenance_mut(to), ptr::with_exposed_provenance(from));
        // SAFETY: the caller of a copy passes buffers that are valid for its number of bytes.
        unsafe { ptr::copy(from, to, bytes) };
    }
}

/// Reads bytes of a buffer of the caller.
pub(crate) fn read_bytes(from: usize, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    if from != 0 {
        let from: *const u8 = ptr::with_exposed_provenance(from);
        // SAFETY: the caller of a copy passes a buffer that is valid for its number of bytes; `read` is new.
        unsafe { ptr::copy_nonoverlapping(from, read.as_mut_ptr(), bytes) };
    }
    read
}

/// Fills a buffer of the caller.
pub(crate) fn fill_bytes(to: usize, value: u8, bytes: usize) {
    if to != 0 {
        let to: *mut u8 = ptr::with_exposed_provenance_mut(to);
        // SAFETY: the caller of a copy or fill passes a buffer that is valid for its number of bytes.
        unsafe { ptr::write_bytes(to, value, bytes) };
    }
}

/// Writes bytes to a buffer of the caller.
pub(crate) fn write_bytes(to: usize, bytes: &[u8]) {
    Out(ptr::with_exposed_provenance_mut(to)).write(bytes);
}

/// A grid or a block of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct Dimensions {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}
