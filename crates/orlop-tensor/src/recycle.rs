//! Memory of the small things that every tensor has, kept by the thread that dropped them.
//!
//! A view is made and dropped in a few nanoseconds, and the system's `malloc` and `free` for its two hundred bytes would be
//! most of that. Each thread keeps some places of each kind; what is more goes back, and all of them when it ends.

use crate::shared::Counted;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::thread::LocalKey;

/// How many places of a kind a thread keeps.
const MOST: usize = 64;

/// A thread's places for a `T`.
pub(crate) struct Places<T> {
    /// The first unused place. Each holds a pointer to the next.
    first: Cell<Option<NonNull<Place<T>>>>,
    count: Cell<usize>,
}

/// Either a `T` or, unused, a pointer to the next place.
union Place<T> {
    next: Option<NonNull<Self>>,
    value: std::mem::ManuallyDrop<MaybeUninit<T>>,
}

/// What has such places, for itself and its count.
pub(crate) trait Recycled: Sized + 'static {
    /// The thread's.
    fn places() -> &'static LocalKey<Places<Counted<Self>>>;
}

/// Under a checker that finds uses of freed memory, what is freed has to go.
const KEEPS: bool = !cfg!(any(miri, loom));

/// Room for a value on the heap, ours alone: for [`recycle`], once there is one.
#[inline(always)]
pub(crate) fn place<T: Recycled>() -> NonNull<Counted<T>> {
    let kept = if KEEPS { T::places().try_with(Places::pop).ok().flatten() } else { None };
    kept.unwrap_or_else(new_place).cast()
}

#[cold]
fn new_place<T>() -> NonNull<Place<T>> {
    let place = Place { value: std::mem::ManuallyDrop::new(MaybeUninit::uninit()) };
    NonNull::from(Box::leak(Box::new(place)))
}

/// Drops the value and keeps its place.
///
/// # Safety
///
/// `value` is from [`place`] and was written, and is not used afterwards.
#[inline]
pub(crate) unsafe fn recycle<T: Recycled>(value: NonNull<Counted<T>>) {
    // SAFETY: a value, dropped once (the caller's promise).
    unsafe { value.drop_in_place() };
    let place = value.cast::<Place<Counted<T>>>();
    if !KEEPS || !T::places().try_with(|places| places.push(place)).unwrap_or(false) {
        // SAFETY: from a `Box` (`new_place`), and nobody has it any more.
        drop(unsafe { Box::from_raw(place.as_ptr()) });
    }
}

impl<T> Places<T> {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(None), count: Cell::new(0) }
    }

    #[inline]
    fn pop(&self) -> Option<NonNull<Place<T>>> {
        let first = self.first.get()?;
        // SAFETY: an unused place, written by `push`.
        self.first.set(unsafe { first.as_ref().next });
        self.count.set(self.count.get() - 1);
        Some(first)
    }

    /// Keeps a place, if there is room.
    #[inline]
    fn push(&self, mut place: NonNull<Place<T>>) -> bool {
        if self.count.get() >= MOST {
            return false;
        }
        // SAFETY: an unused place, and ours alone. (Writing a field of a union is safe.)
        unsafe { place.as_mut() }.next = self.first.get();
        self.first.set(Some(place));
        self.count.set(self.count.get() + 1);
        true
    }
}

impl<T> Drop for Places<T> {
    fn drop(&mut self) {
        while let Some(place) = self.pop() {
            // SAFETY: from a `Box` (`new_place`), and no longer in the list.
            drop(unsafe { Box::from_raw(place.as_ptr()) });
        }
    }
}

/// Gives a type its places.
macro_rules! recycled {
    ($type:ty) => {
        impl $crate::recycle::Recycled for $type {
            #[inline]
            fn places() -> &'static std::thread::LocalKey<$crate::recycle::Places<$crate::shared::Counted<Self>>>
            {
                thread_local! {
                    static PLACES: $crate::recycle::Places<$crate::shared::Counted<$type>> = const { $crate::recycle::Places::new() };
                }
                &PLACES
            }
        }
    };
}
pub(crate) use recycled;
