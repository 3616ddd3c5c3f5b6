//! Fallible host buffers.
//!
//! Sizes from a caller can be of any magnitude: `expand` makes 2⁶⁰ elements of one. `vec!` would panic or
//! abort.

use crate::error::{Error, Result};

/// Returns an empty vector with room for `count` elements.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    let no_room = |source| Error::HostMemory { bytes: count.saturating_mul(size_of::<T>()), source };
    room.try_reserve_exact(count).map_err(no_room)?;
    Ok(room)
}

/// Returns a vector of `bytes` zeros.
pub(crate) fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let mut zeros = room(bytes)?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}
