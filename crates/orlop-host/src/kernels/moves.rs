//! Moving one item, or one short run of bytes.
//!
//! The strided loops are generic over the move of each step, so that the size is a constant in the loop.
//! Items are moved as integers of their size; runs of other lengths up to 64 bytes as two overlapping
//! integers, which is cheaper than a call of `memcpy` for each. No alignment is needed: foreign memory may
//! lack it, and unaligned moves cost the same.

use core::{marker::PhantomData, mem::MaybeUninit};

/// Sixteen bytes.
pub(super) type Bytes16 = [u64; 2];

/// Thirty-two bytes.
pub(super) type Bytes32 = [u64; 4];

/// A `T` at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub(super) struct Unaligned<T>(pub(super) T);

/// The move of one step of a strided loop.
pub(super) trait Move: Copy {
    /// Moves the bytes at `src` to `dst`.
    ///
    /// # Safety
    /// 1. The bytes to move can be read at `src` and written at `dst`.
    /// 2. Those at `src` and those at `dst` do not overlap.
    unsafe fn move_one(self, dst: *mut u8, src: *const u8);
}

/// Moves one `T`.
pub(super) struct MoveItem<T>(PhantomData<T>);

impl<T> MoveItem<T> {
    pub(super) const MOVE: Self = Self(PhantomData);
}

impl<T> Clone for MoveItem<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MoveItem<T> {}

impl<T> Move for MoveItem<T> {
    #[inline(always)]
    unsafe fn move_one(self, dst: *mut u8, src: *const u8) {
        // SAFETY: obligation 1; any bytes are a valid `MaybeUninit`.
        let item = unsafe { src.cast::<MaybeUninit<T>>().read_unaligned() };
        // SAFETY: obligation 1.
        unsafe { dst.cast::<MaybeUninit<T>>().write_unaligned(item) };
    }
}

/// Moves a run of one to two times the size of `T`, as its first and its last `T`.
pub(super) struct MoveEnds<T> {
    /// The offset of the last `T`: at most the size of `T`.
    last: usize,
    item: PhantomData<T>,
}

impl<T> MoveEnds<T> {
    /// Creates the move for runs of `bytes` bytes, from `size_of::<T>()` to twice that.
    pub(super) const fn new(bytes: usize) -> Self {
        debug_assert!(size_of::<T>() <= bytes && bytes <= 2 * size_of::<T>());
        Self { last: bytes - size_of::<T>(), item: PhantomData }
    }
}

impl<T> Clone for MoveEnds<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MoveEnds<T> {}

impl<T> Move for MoveEnds<T> {
    #[inline(always)]
    unsafe fn move_one(self, dst: *mut u8, src: *const u8) {
        // SAFETY: obligations 1 and 2: the first `T` is part of the run.
        unsafe { MoveItem::<T>::MOVE.move_one(dst, src) };
        // SAFETY: obligations 1 and 2: the last `T` ends where the run ends.
        unsafe { MoveItem::<T>::MOVE.move_one(dst.wrapping_add(self.last), src.wrapping_add(self.last)) };
    }
}

/// Moves a run of this number of bytes.
#[derive(Clone, Copy)]
pub(super) struct MoveRun(pub(super) usize);

impl Move for MoveRun {
    #[inline(always)]
    unsafe fn move_one(self, dst: *mut u8, src: *const u8) {
        // SAFETY: obligations 1 and 2.
        unsafe { src.copy_to_nonoverlapping(dst, self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(m: impl Move, bytes: usize) {
        let src: [u8; 100] = core::array::from_fn(|index| u8::try_from(index + 1).unwrap());
        let mut dst = [0_u8; 100];
        // SAFETY: the arrays are larger than that, and distinct.
        unsafe { m.move_one(dst.as_mut_ptr(), src.as_ptr()) };
        assert_eq!(dst[..bytes], src[..bytes]);
        assert!(dst[bytes..].iter().all(|&byte| byte == 0), "{bytes}");
    }

    #[test]
    fn every_length() {
        check(MoveItem::<u8>::MOVE, 1);
        check(MoveItem::<Bytes16>::MOVE, 16);
        (2..=4).for_each(|bytes| check(MoveEnds::<u16>::new(bytes), bytes));
        (8..=16).for_each(|bytes| check(MoveEnds::<u64>::new(bytes), bytes));
        (32..=64).for_each(|bytes| check(MoveEnds::<Bytes32>::new(bytes), bytes));
        check(MoveRun(77), 77);
    }
}
