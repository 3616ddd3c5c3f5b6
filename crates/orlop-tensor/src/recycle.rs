//! Memory of the small things that every tensor has, kept by the thread that dropped them.
//!
//! A view is made and dropped in a few nanoseconds, and the system's `malloc` and `free` for its two hundred bytes would be
//! most of that. Each thread keeps some places of each kind; what is more goes back, and all of them when it ends.

use crate::shared::Counted;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::thread::LocalKey;

/// How many places of a kind a thread keeps.
const MOST: usize = 64;

/// A thread's places for a `T`.
///
/// There is nothing to drop in it, so that looking costs no question whether the thread is ending: a [`Keeper`] beside it,
/// which is asked for when the first place comes back, gives them all up in the end.
pub(crate) struct Places<T> {
    /// The first unused place. Each holds a pointer to the next.
    first: Cell<Option<NonNull<Place<T>>>>,
    /// How many more there is room for. None at first, until there is a keeper, and none in the end.
    room: Cell<usize>,
    keeping: Cell<Keeping>,
}

/// Whether somebody gives the places up in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    NotYet,
    Begun,
    Ended,
}

/// Either a `T` or, unused, a pointer to the next place. Both at its start: an address of one is that of the other.
#[repr(C)]
union Place<T> {
    next: Option<NonNull<Self>>,
    value: std::mem::ManuallyDrop<MaybeUninit<T>>,
}

/// A value with its count, and room for something else that belongs to it.
#[repr(C)]
pub(crate) struct Occupied<T: Recycled> {
    value: Counted<T>,
    beside: MaybeUninit<T::Beside>,
}

/// What has such places, for itself and its count.
pub(crate) trait Recycled: Sized + 'static {
    /// What there is room for beside the value. Mostly nothing.
    type Beside;

    /// Looks at the thread's, which are always there (`None` never comes). Not by way of a [`LocalKey`]: a reference to one is
    /// a call through a pointer, which might unwind.
    fn with_places<R>(look: impl FnOnce(&Places<Occupied<Self>>) -> R) -> Option<R>;

    /// Who gives them up.
    fn keeper() -> &'static LocalKey<Keeper<Self>>;

    /// Drops a value, and keeps its place if it has one of its own. Types with values that have none, because they were made
    /// by [`Room::inside`](crate::shared::Room::inside), have an end of their own.
    ///
    /// # Safety
    ///
    /// The value was written, and is not used afterwards. It is in a place that is from [`place`], or where `Room::inside`
    /// was promised that it may be.
    // Not everywhere that a handle goes.
    #[inline(never)]
    unsafe fn end(value: NonNull<Counted<Self>>) {
        // SAFETY: a value, dropped once (the caller's promise).
        unsafe { value.drop_in_place() };
        // SAFETY: the caller's promise; a type with this end has no values inside of something else.
        unsafe { give_place(value) };
    }
}

/// Gives up a thread's places when the thread ends.
pub(crate) struct Keeper<T: Recycled>(PhantomData<T>);

/// Under a checker that finds uses of freed memory, what is freed has to go. (What the compiler knows of AddressSanitizer
/// is not stable, so `xtask san` says it.)
const KEEPS: bool = !cfg!(any(loom, orlop_asan));

/// Room for a value on the heap, ours alone, until it is given to [`give_place`].
#[inline(always)]
pub(crate) fn place<T: Recycled>() -> NonNull<Counted<T>> {
    place_if::<T, KEEPS>()
}

/// [`place`], for who knows whether places are kept: the tests that checkers run.
#[inline(always)]
fn place_if<T: Recycled, const KEEPS: bool>() -> NonNull<Counted<T>> {
    let kept = if KEEPS { T::with_places(Places::pop).flatten() } else { None };
    kept.unwrap_or_else(|| new_place::<Occupied<T>>()).cast()
}

/// The room beside a value.
///
/// # Safety
///
/// The value's room is from [`place`], and not given back.
#[inline(always)]
pub(crate) unsafe fn beside<T: Recycled>(value: NonNull<Counted<T>>) -> NonNull<T::Beside> {
    let occupied = value.cast::<Occupied<T>>().as_ptr();
    // SAFETY: inside of a place, which begins with the value (`repr(C)`).
    let beside = unsafe { &raw mut (*occupied).beside };
    // SAFETY: not at address zero, where a place cannot begin.
    unsafe { NonNull::new_unchecked(beside) }.cast()
}

/// Of the system's ABI, because that says that it does not unwind: callers need nothing in memory in case it did.
#[cold]
extern "C" fn new_place<T>() -> NonNull<Place<T>> {
    let place = Place { value: std::mem::ManuallyDrop::new(MaybeUninit::uninit()) };
    NonNull::from(Box::leak(Box::new(place)))
}

/// Keeps a place for the next value.
///
/// # Safety
///
/// It is from [`place`], without a value, and not used afterwards.
#[inline(always)]
pub(crate) unsafe fn give_place<T: Recycled>(place: NonNull<Counted<T>>) {
    // SAFETY: the caller's promise.
    unsafe { give_place_if::<T, KEEPS>(place) };
}

/// [`give_place`], for who knows whether places are kept.
///
/// # Safety
///
/// Those of [`give_place`].
#[inline(always)]
unsafe fn give_place_if<T: Recycled, const KEEPS: bool>(place: NonNull<Counted<T>>) {
    let place = place.cast::<Place<Occupied<T>>>();
    if !KEEPS || T::with_places(|places| places.push(place)) != Some(true) {
        // SAFETY: from a `Box` (`new_place`), and nobody has it any more.
        unsafe { give_up::<T, KEEPS>(place) };
    }
}

/// There is no room for a place: perhaps because nobody has asked for any.
///
/// # Safety
///
/// `place` is from `new_place`, and not used afterwards.
#[cold]
#[inline(never)]
unsafe fn give_up<T: Recycled, const KEEPS: bool>(place: NonNull<Place<Occupied<T>>>) {
    // The keeper cannot be had while the thread is ending; then there never is any room.
    if KEEPS && T::with_places(Places::asks_for_keeper) == Some(true) && T::keeper().try_with(|_| ()).is_ok()
    {
        T::with_places(Places::open);
    }
    // SAFETY: from a `Box` (the caller's promise).
    drop(unsafe { Box::from_raw(place.as_ptr()) });
}

impl<T> Places<T> {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(None), room: Cell::new(0), keeping: Cell::new(Keeping::NotYet) }
    }

    #[inline(always)]
    fn pop(&self) -> Option<NonNull<Place<T>>> {
        let first = self.first.get()?;
        // SAFETY: an unused place, written by `push`.
        self.first.set(unsafe { first.as_ref().next });
        self.room.set(self.room.get() + 1);
        Some(first)
    }

    /// Keeps a place, if there is room.
    #[inline(always)]
    fn push(&self, mut place: NonNull<Place<T>>) -> bool {
        let Some(room) = self.room.get().checked_sub(1) else { return false };
        // SAFETY: an unused place, and ours alone. (Writing a field of a union is safe.)
        unsafe { place.as_mut() }.next = self.first.get();
        self.first.set(Some(place));
        self.room.set(room);
        true
    }

    fn asks_for_keeper(&self) -> bool {
        self.keeping.get() == Keeping::NotYet
    }

    /// Makes room: there is a keeper.
    fn open(&self) {
        self.keeping.set(Keeping::Begun);
        self.room.set(MOST);
    }

    /// Gives all places up, and takes no more.
    fn end(&self) {
        self.keeping.set(Keeping::Ended);
        while let Some(place) = self.pop() {
            // SAFETY: from a `Box` (`new_place`), and no longer in the list.
            drop(unsafe { Box::from_raw(place.as_ptr()) });
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
        // Without anything to drop, the places can be looked at during the whole exit.
        T::with_places(Places::end);
    }
}

/// Gives a type its places, and what it has beside it, and an end of its own, if it has that.
macro_rules! recycled {
    ($type:ty) => {
        $crate::recycle::recycled!($type, beside ());
    };
    ($type:ty, beside $beside:ty $(, $end:item)?) => {
        impl $crate::recycle::Recycled for $type {
            type Beside = $beside;

            $($end)?

            #[inline(always)]
            fn with_places<R>(
                look: impl FnOnce(&$crate::recycle::Places<$crate::recycle::Occupied<Self>>) -> R,
            ) -> Option<R> {
                thread_local! {
                    static PLACES: $crate::recycle::Places<$crate::recycle::Occupied<$type>> = const { $crate::recycle::Places::new() };
                }
                PLACES.try_with(look).ok()
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

    /// As `Shared` does it, but keeping under every checker.
    fn make(value: &Arc<u8>) -> NonNull<Counted<Arc<u8>>> {
        let place = place_if::<Arc<u8>, true>();
        // SAFETY: room for a value, ours alone.
        unsafe { place.write(Counted::new(Arc::clone(value))) };
        place
    }

    /// # Safety
    ///
    /// From [`make`], once.
    unsafe fn end(value: NonNull<Counted<Arc<u8>>>) {
        // SAFETY: the caller's promise.
        unsafe { value.drop_in_place() };
        // SAFETY: as above, and it was dropped.
        unsafe { give_place_if::<Arc<u8>, true>(value) };
    }

    #[test]
    fn values_live_in_the_places_of_others() {
        let value = Arc::new(7);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let first = make(&value);
                    // SAFETY: made here. The place is not kept yet, but its keeper is there.
                    unsafe { end(first) };
                    let second = make(&value);
                    // SAFETY: as above. This place is kept.
                    unsafe { end(second) };
                    assert_eq!(make(&value), second, "its place, which was kept");
                    let mut alive: Vec<_> = (0..MOST + 10).map(|_| make(&value)).collect();
                    alive.push(second);
                    // SAFETY: each made here: the last of them more than are kept.
                    alive.into_iter().for_each(|value| unsafe { end(value) });
                });
            }
        });
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn places_are_used_again_and_given_up() {
        let places = Places::<u64>::new();
        let refused = new_place::<u64>();
        assert!(places.asks_for_keeper() && !places.push(refused));
        // SAFETY: it was refused, and is from `new_place`.
        drop(unsafe { Box::from_raw(refused.as_ptr()) });
        places.open();
        let made: Vec<_> = (0..=MOST).map(|_| new_place::<u64>()).collect();
        assert_eq!(made.iter().filter(|&&place| places.push(place)).count(), MOST);
        assert_eq!(places.pop(), Some(made[MOST - 1]));
        assert!(places.push(made[MOST]) && !places.push(made[MOST - 1]));
        places.end();
        assert!(places.pop().is_none() && !places.asks_for_keeper() && !places.push(made[MOST - 1]));
        // SAFETY: the one that was refused, from `new_place`.
        drop(unsafe { Box::from_raw(made[MOST - 1].as_ptr()) });
    }
}
