//! The types of the driver's C interface: pointer arguments as checked wrappers, and the structures of
//! version 2.
//!
//! A pointer that a call writes through is an [`Out`], one that it reads through an [`In`]. Both can be
//! null and are valid otherwise, by the driver's interface; that is the one assumption the wrappers make.
//! Device addresses and handles are plain numbers of the same size.

use crate::codes::{Failure, Outcome};
use std::ffi::{CStr, c_char, c_void};

/// A pointer that a call writes one value through.
///
/// Invariant: null, or valid for writes of `T` while the call runs. Only a caller of the C interface makes
/// one.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the value; fails on a null pointer.
    pub(crate) fn set(&self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: not null, therefore valid for writes by the type's invariant. Callers may pass unaligned
        // pointers into their own buffers.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the value unless the pointer is null.
    pub(crate) fn set_optional(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, therefore valid for writes by the type's invariant.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

impl<T> Out<T> {
    /// Returns the pointer for an address that the caller passed for writing in another argument.
    pub(crate) fn from_address(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Returns the pointer for an argument whose type another argument decides.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl<T: Copy> Out<T> {
    /// Reads what the caller wrote there: for arguments that are read and written.
    pub(crate) fn get(&self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: not null; arguments of this kind are valid for reads too, by the driver's interface.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// A pointer to values that a call reads.
///
/// Invariant: null, or valid for reads of the number of values that the call documents, while it runs. Only a
/// caller of the C interface makes one, or passes an address to be read in another argument.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Returns the pointer for one that the caller passed for reading in another argument.
    pub(crate) fn from_pointer(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// Returns the pointer for an address that the caller passed for reading in another argument.
    pub(crate) fn from_address(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance(address))
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Reads the value; fails on a null pointer.
    pub(crate) fn get(&self) -> Outcome<T> {
        self.at(0)
    }

    /// Reads the value at an index; fails on a null pointer.
    pub(crate) fn at(&self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        let place = self.0.wrapping_add(index);
        // SAFETY: not null, and callers of this function stay below the documented number of values.
        Ok(unsafe { place.read_unaligned() })
    }

    /// Copies `count` values; fails on a null pointer.
    pub(crate) fn list(&self, count: usize) -> Outcome<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

/// A C string that a call reads. Invariant: null, or a terminated string that is valid while the call runs.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(&self) -> Outcome<String> {
        if self.0.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: not null, therefore a terminated string by the type's invariant.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Writes a text with its terminator into a buffer of `length` bytes, cut to fit.
pub(crate) fn write_text(buffer: &Out<u8>, length: i32, text: &str) -> Outcome {
    let length = usize::try_from(length).map_err(|_| Failure::INVALID_VALUE)?;
    if length == 0 || buffer.is_null() {
        return Err(Failure::INVALID_VALUE);
    }
    let shown = text.as_bytes();
    for (index, byte) in shown.iter().take(length - 1).chain(std::iter::once(&0)).enumerate() {
        Out(buffer.0.wrapping_add(index)).set(*byte)?;
    }
    Ok(())
}

/// `CUhostFn`.
pub(crate) type HostFunction = Option<unsafe extern "C" fn(*mut c_void)>;

/// `CUmemLocation`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct MemoryLocation {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(crate) const LOCATION_DEVICE: i32 = 1;

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: MemoryLocation,
    pub(crate) win32: usize,
    pub(crate) flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: MemoryLocation,
    pub(crate) flags: i32,
}

/// `CUmemPoolProps`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: MemoryLocation,
    pub(crate) win32: usize,
    pub(crate) max_size: usize,
    pub(crate) reserved: [u8; 56],
}

/// One side of a 2-D copy.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Plane {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) memory: i32,
    pub(crate) host: usize,
    pub(crate) device: usize,
    pub(crate) array: usize,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy2d {
    pub(crate) source: Plane,
    pub(crate) destination: Plane,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One side of a 3-D copy.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Volume {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    pub(crate) lod: usize,
    pub(crate) memory: i32,
    pub(crate) host: usize,
    pub(crate) device: usize,
    pub(crate) array: usize,
    pub(crate) reserved: usize,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy3d {
    pub(crate) source: Volume,
    pub(crate) destination: Volume,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `CUlaunchConfig`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) stream: u64,
    pub(crate) attributes: usize,
    pub(crate) attribute_count: u32,
}

/// `CUipcMemHandle`, `CUipcEventHandle` and `CUmemFabricHandle`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle {
    reserved: [u8; 64],
}

impl IpcHandle {
    /// Packs numbers.
    pub(crate) fn of(numbers: [u64; 8]) -> Self {
        let mut reserved = [0; 64];
        for (bytes, number) in reserved.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        Self { reserved }
    }

    pub(crate) fn bytes(&self) -> [u8; 64] {
        self.reserved
    }

    /// Returns the numbers of [`IpcHandle::of`].
    pub(crate) fn numbers(&self) -> [u64; 8] {
        let mut numbers = [0; 8];
        for (number, bytes) in numbers.iter_mut().zip(self.reserved.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            *number = u64::from_le_bytes(eight);
        }
        numbers
    }
}

impl From<[u8; 64]> for IpcHandle {
    fn from(reserved: [u8; 64]) -> Self {
        Self { reserved }
    }
}
