//! Per-thread free lists for the small heap objects of a tensor.
//!
//! A view is made and dropped in a few nanoseconds, and `malloc` and `free` for its two hundred bytes would
//! take most of that time. Each thread keeps some free slots of each type; the rest go back to the heap, and
//! all of them when the thread ends.

use crate::shared::Counted;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::thread::LocalKey;

/// The largest number of free slots of a type that a thread keeps.
const MAX_FREE_SLOTS: usize = 64;

/// A thread's free slots for a `T`.
///
/// The list itself has no destructor, so accessing it does not check whether the thread is ending. A
/// separate [`Keeper`], registered when the first slot comes back, frees all slots at thread exit.
pub(crate) struct FreeSlots<T> {
    /// The first free slot. Each slot points to the next.
    first: Cell<Option<NonNull<Slot<T>>>>,
    /// The number of slots that may still be added: 0 until there is a keeper, and 0 after thread exit.
    room: Cell<usize>,
    keeper_state: Cell<KeeperState>,
}

/// Whether a keeper will free the slots at thread exit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeeperState {
    Missing,
    Registered,
    Ended,
}

/// Either a `T` or, while free, a pointer to the next slot. Both start at offset 0, so their addresses are
/// equal.
#[repr(C)]
union Slot<T> {
    next: Option<NonNull<Self>>,
    value: std::mem::ManuallyDrop<MaybeUninit<T>>,
}

/// A value with its count, and space for a companion value.
#[repr(C)]
pub(crate) struct Occupied<T: Recycled> {
    value: Counted<T>,
    companion: MaybeUninit<T::Companion>,
}

/// A type whose values are allocated in recycled slots.
pub(crate) trait Recycled: Sized + 'static {
    /// The companion type for which a slot has space beside the value; usually `()`.
    type Companion;

    /// Runs `look` on the thread's free list. It exists for the whole life of the thread, so the result is
    /// never `None`. A [`LocalKey`] is not used: calling one goes through a function pointer that might
    /// unwind.
    fn with_free_slots<R>(look: impl FnOnce(&FreeSlots<Occupied<Self>>) -> R) -> Option<R>;

    /// Returns the keeper that frees the slots at thread exit.
    fn keeper() -> &'static LocalKey<Keeper<Self>>;

    /// Drops a value, and recycles its slot if it has one. Types whose values may be built inside another
    /// object with [`Room::inside`](crate::shared::Room::inside) define their own `end`.
    ///
    /// # Safety
    ///
    /// The value was written, and is not used afterwards. It is in a slot from [`allocate_slot`], or in
    /// memory for which `Room::inside`'s contract holds.
    #[inline(never)]
    unsafe fn end(value: NonNull<Counted<Self>>) {
        // SAFETY: a value, dropped once (guaranteed by the caller).
        unsafe { value.drop_in_place() };
        // SAFETY: guaranteed by the caller; a type with this `end` has no values inside other objects.
        unsafe { recycle_slot(value) };
    }
}

/// Frees a thread's slots when the thread ends.
pub(crate) struct Keeper<T: Recycled>(PhantomData<T>);

/// Whether slots are recycled. Under a checker that detects use after free, freed memory has to go back to
/// the heap. (The compiler's own cfg for AddressSanitizer is unstable, so `xtask san` sets one.)
const RECYCLES: bool = !cfg!(any(loom, orlop_asan));

/// Allocates a slot for a value. It belongs to the caller until it is passed to [`recycle_slot`].
#[inline(always)]
pub(crate) fn allocate_slot<T: Recycled>() -> NonNull<Counted<T>> {
    allocate_slot_if::<T, RECYCLES>()
}

/// [`allocate_slot`] with recycling as a parameter, for tests that run under checkers.
#[inline(always)]
fn allocate_slot_if<T: Recycled, const RECYCLES: bool>() -> NonNull<Counted<T>> {
    let kept = if RECYCLES { T::with_free_slots(FreeSlots::pop).flatten() } else { None };
    kept.unwrap_or_else(|| new_slot::<Occupied<T>>()).cast()
}

/// Returns the space for the companion of a value.
///
/// # Safety
///
/// The value's slot is from [`allocate_slot`], and not freed yet.
#[inline(always)]
pub(crate) unsafe fn companion<T: Recycled>(value: NonNull<Counted<T>>) -> NonNull<T::Companion> {
    let occupied = value.cast::<Occupied<T>>().as_ptr();
    // SAFETY: inside a slot, which begins with the value (`repr(C)`).
    let companion = unsafe { &raw mut (*occupied).companion };
    // SAFETY: not null: a slot is never at address zero.
    unsafe { NonNull::new_unchecked(companion) }.cast()
}

/// `extern "C"` because it cannot unwind: callers need not keep anything in memory for an unwind.
#[cold]
extern "C" fn new_slot<T>() -> NonNull<Slot<T>> {
    let slot = Slot { value: std::mem::ManuallyDrop::new(MaybeUninit::uninit()) };
    NonNull::from(Box::leak(Box::new(slot)))
}

/// Recycles a slot for the next value.
///
/// # Safety
///
/// The slot is from [`allocate_slot`], holds no value, and is not used afterwards.
#[inline(always)]
pub(crate) unsafe fn recycle_slot<T: Recycled>(slot: NonNull<Counted<T>>) {
    // SAFETY: guaranteed by the caller.
    unsafe { recycle_slot_if::<T, RECYCLES>(slot) };
}

/// [`recycle_slot`] with recycling as a parameter.
///
/// # Safety
///
/// Those of [`recycle_slot`].
#[inline(always)]
unsafe fn recycle_slot_if<T: Recycled, const RECYCLES: bool>(slot: NonNull<Counted<T>>) {
    let slot = slot.cast::<Slot<Occupied<T>>>();
    if !RECYCLES || T::with_free_slots(|slots| slots.push(slot)) != Some(true) {
        // SAFETY: from a `Box` (`new_slot`), and no longer in use.
        unsafe { free_slot::<T, RECYCLES>(slot) };
    }
}

/// Frees a slot that the list has no room for. If the keeper is missing, it is registered first, so that the
/// list keeps later slots.
///
/// # Safety
///
/// `slot` is from `new_slot`, and not used afterwards.
#[cold]
#[inline(never)]
unsafe fn free_slot<T: Recycled, const RECYCLES: bool>(slot: NonNull<Slot<Occupied<T>>>) {
    // The keeper is unavailable while the thread ends; then there is never room.
    if RECYCLES
        && T::with_free_slots(FreeSlots::needs_keeper) == Some(true)
        && T::keeper().try_with(|_| ()).is_ok()
    {
        T::with_free_slots(FreeSlots::open);
    }
    // SAFETY: from a `Box` (guaranteed by the caller).
    drop(unsafe { Box::from_raw(slot.as_ptr()) });
}

impl<T> FreeSlots<T> {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(None), room: Cell::new(0), keeper_state: Cell::new(KeeperState::Missing) }
    }

    #[inline(always)]
    fn pop(&self) -> Option<NonNull<Slot<T>>> {
        let first = self.first.get()?;
        // SAFETY: a free slot, written by `push`.
        self.first.set(unsafe { first.as_ref().next });
        self.room.set(self.room.get() + 1);
        Some(first)
    }

    /// Adds a slot to the list if there is room.
    #[inline(always)]
    fn push(&self, mut slot: NonNull<Slot<T>>) -> bool {
        let Some(room) = self.room.get().checked_sub(1) else { return false };
        // SAFETY: a free slot that only this thread uses. (Writing a field of a union is safe.)
        unsafe { slot.as_mut() }.next = self.first.get();
        self.first.set(Some(slot));
        self.room.set(room);
        true
    }

    fn needs_keeper(&self) -> bool {
        self.keeper_state.get() == KeeperState::Missing
    }

    /// Allows slots to be kept, because a keeper is registered.
    fn open(&self) {
        self.keeper_state.set(KeeperState::Registered);
        self.room.set(MAX_FREE_SLOTS);
    }

    /// Frees all slots and accepts no more.
    fn end(&self) {
        self.keeper_state.set(KeeperState::Ended);
        while let Some(slot) = self.pop() {
            // SAFETY: from a `Box` (`new_slot`), and removed from the list.
            drop(unsafe { Box::from_raw(slot.as_ptr()) });
        }
        self.room.set(0);
    }
}

impl<T: Recycled> Keeper<T> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Recycled> Drop for Keeper<T> {
    fn drop(&mut self) {
        // The list has no destructor, so it stays accessible during thread exit.
        T::with_free_slots(FreeSlots::end);
    }
}

/// Implements [`Recycled`] for a type: its free list, its companion type, and its own `end` if it has one.
macro_rules! recycled {
    ($type:ty) => {
        $crate::recycle::recycled!($type, companion ());
    };
    ($type:ty, companion $companion:ty $(, $end:item)?) => {
        impl $crate::recycle::Recycled for $type {
            type Companion = $companion;

            $($end)?

            #[inline(always)]
            fn with_free_slots<R>(
                look: impl FnOnce(&$crate::recycle::FreeSlots<$crate::recycle::Occupied<Self>>) -> R,
            ) -> Option<R> {
                thread_local! {
                    static FREE_SLOTS: $crate::recycle::FreeSlots<$crate::recycle::Occupied<$type>> =
                        const { $crate::recycle::FreeSlots::new() };
                }
                FREE_SLOTS.try_with(look).ok()
            }

            fn keeper() -> &'static std::thread::LocalKey<$crate::recycle::Keeper<Self>> {
                thread_local! {
                    static KEEPER: $crate::recycle::Keeper<$type> = const { $crate::recycle::Keeper::new() };
                }
                &KEEPER
            }
        }
    };
}
pub(crate) use recycled;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    crate::recycle::recycled!(Arc<u8>);

    /// Allocates as `Shared` does, but recycles under every checker.
    fn make(value: &Arc<u8>) -> NonNull<Counted<Arc<u8>>> {
        let slot = allocate_slot_if::<Arc<u8>, true>();
        // SAFETY: a slot for a value, used only here.
        unsafe { slot.write(Counted::new(Arc::clone(value))) };
        slot
    }

    /// # Safety
    ///
    /// `value` is from [`make`], and this is called once for it.
    unsafe fn end(value: NonNull<Counted<Arc<u8>>>) {
        // SAFETY: guaranteed by the caller.
        unsafe { value.drop_in_place() };
        // SAFETY: as above, and it was dropped.
        unsafe { recycle_slot_if::<Arc<u8>, true>(value) };
    }

    #[test]
    fn values_reuse_slots() {
        let value = Arc::new(7);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let first = make(&value);
                    // SAFETY: made here. The slot is freed, not recycled, but its keeper is registered now.
                    unsafe { end(first) };
                    let second = make(&value);
                    // SAFETY: as above. This slot is recycled.
                    unsafe { end(second) };
                    assert_eq!(make(&value), second, "the slot that was recycled");
                    let mut alive: Vec<_> = (0..MAX_FREE_SLOTS + 10).map(|_| make(&value)).collect();
                    alive.push(second);
                    // SAFETY: each was made here; there is one more than are kept.
                    alive.into_iter().for_each(|value| unsafe { end(value) });
                });
            }
        });
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn slots_are_reused_and_freed() {
        let slots = FreeSlots::<u64>::new();
        let refused = new_slot::<u64>();
        assert!(slots.needs_keeper() && !slots.push(refused));
        // SAFETY: it was refused, and is from `new_slot`.
        drop(unsafe { Box::from_raw(refused.as_ptr()) });
        slots.open();
        let made: Vec<_> = (0..=MAX_FREE_SLOTS).map(|_| new_slot::<u64>()).collect();
        assert_eq!(made.iter().filter(|&&slot| slots.push(slot)).count(), MAX_FREE_SLOTS);
        assert_eq!(slots.pop(), Some(made[MAX_FREE_SLOTS - 1]));
        assert!(slots.push(made[MAX_FREE_SLOTS]) && !slots.push(made[MAX_FREE_SLOTS - 1]));
        slots.end();
        assert!(slots.pop().is_none() && !slots.needs_keeper() && !slots.push(made[MAX_FREE_SLOTS - 1]));
        // SAFETY: the one that was refused, from `new_slot`.
        drop(unsafe { Box::from_raw(made[MAX_FREE_SLOTS - 1].as_ptr()) });
    }
}
