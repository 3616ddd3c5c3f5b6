//! Host memory of as many bytes as a caller's sizes say.
//!
//! Sizes can say anything: `expand` makes 2⁶⁰ elements of one. `vec!` panics or aborts where that is not to be had.

use crate::error::{Error, Result};

/// A vector with room for so many elements, and none yet.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    let no_room = |source| Error::HostMemory { bytes: count.saturating_mul(size_of::<T>()), source };
    room.try_reserve_exact(count).map_err(no_room)?;
    Ok(room)
}

/// So many zeros.
pub(crate) fn zeros(bytes: usize) -> Result<Vec<u8>> {
    let mut zeros = room(bytes)?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}
