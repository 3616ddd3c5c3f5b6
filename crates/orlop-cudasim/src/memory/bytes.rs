//! Reads and writes through addresses: the effect of simulated operations.
//!
//! Every address here was checked against the allocations just before, or is host memory that a caller of the
//! driver's interface guarantees to be valid. The lock is held, so that the simulation's own accesses do not
//! overlap in time.

use super::CopyShape;
use std::ptr;

/// Fills bytes that the arena maps.
pub(crate) fn fill(address: usize, bytes: usize, byte: u8) {
    let at = ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: callers pass ranges that are mapped for writes (see the module's documentation).
    unsafe { at.write_bytes(byte, bytes) };
}

/// Writes a value of 1, 2 or 4 bytes `count` times.
pub(crate) fn fill_pattern(address: usize, count: usize, value: u32, width: usize) {
    let value = value.to_ne_bytes();
    let used = if cfg!(target_endian = "little") { &value[..width] } else { &value[4 - width..] };
    if used.iter().all(|byte| *byte == used[0]) {
        return fill(address, count * width, used[0]);
    }
    for index in 0..count {
        let at = ptr::with_exposed_provenance_mut::<u8>(address + index * width);
        // SAFETY: callers pass ranges that are mapped for writes; `used` is valid for `width` bytes.
        unsafe { at.copy_from_nonoverlapping(used.as_ptr(), width) };
    }
}

/// Copies bytes; the ranges may overlap.
pub(crate) fn copy(to: usize, from: usize, bytes: usize) {
    let (to, from) = (ptr::with_exposed_provenance_mut::<u8>(to), ptr::with_exposed_provenance::<u8>(from));
    // SAFETY: callers pass ranges that are valid for reads and writes (see the module's documentation).
    unsafe { to.copy_from(from, bytes) };
}

/// Copies the rows of a shape. Pitches are in bytes.
pub(crate) fn copy_rows(to: usize, from: usize, shape: &CopyShape) {
    for slice in 0..shape.depth {
        for row in 0..shape.height {
            let to = to + slice * shape.to_slice + row * shape.to_pitch;
            let from = from + slice * shape.from_slice + row * shape.from_pitch;
            copy(to, from, shape.width);
        }
    }
}

/// Copies bytes into a vector.
pub(crate) fn read(address: usize, bytes: usize) -> Vec<u8> {
    let mut copied = vec![0; bytes];
    let from = ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: callers pass a range that is valid for reads; the vector has `bytes` bytes.
    unsafe { from.copy_to_nonoverlapping(copied.as_mut_ptr(), bytes) };
    copied
}
