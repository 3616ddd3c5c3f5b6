//! What the child of a `fork` inherits from threads that do not exist there, and how it gets rid of that.
//!
//! `fork` copies all memory as it is at one instant, and one thread. The child then has thread numbers, counts
//! of readers and locks of threads that will never give them back. So objects that threads leave such marks in
//! are registered here, and one handler (`pthread_atfork`) goes through them in the child:
//!
//! * a cell forgets the readers of other threads, and the lock of a writer;
//! * slots report the threads that were inside: their numbers stay taken, because what they were changing is
//!   half changed. All other numbers are free again.
//!
//! # Why a list without a lock
//!
//! The child may not wait for a lock, because its holder may not exist there. So objects are in a list that is
//! only ever added to, in one step, and that can be walked at every instant. A place that an object has left is
//! used again.

use crate::thread_slot;
use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// The thread of a forked child, as the objects see it.
#[derive(Debug)]
pub(crate) struct ForkedChild {
    /// The index of its slot, if it has one.
    pub(crate) own: Option<usize>,
    /// Bit `i` is set if the owner of slot `i` was inside when the process was copied.
    pub(crate) inside: u32,
}

/// An object that is cleaned in the child of a `fork`.
pub(crate) trait Inherited {
    /// # Safety
    ///
    /// This is the child of a `fork`, and the calling thread is the only one.
    unsafe fn clean(&self, child: &mut ForkedChild);
}

/// An object's place in the list, which it leaves when this is dropped.
pub(crate) struct Registration(&'static Place);

struct Place {
    /// [`UNUSED`], [`CLAIMED`] or [`USED`].
    state: AtomicU8,
    /// Written by the thread that has claimed the place, and read by the thread of a child while it is used.
    entry: UnsafeCell<Entry>,
    next: *const Place,
}

#[derive(Clone, Copy)]
struct Entry {
    object: NonNull<()>,
    clean: unsafe fn(NonNull<()>, &mut ForkedChild),
}

const UNUSED: u8 = 0;
const CLAIMED: u8 = 1;
const USED: u8 = 2;

// SAFETY: `entry` is written by one thread at a time (`CLAIMED`), and read where there is one thread; `next`
// is constant.
unsafe impl Sync for Place {}

static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
/// A hint that saves a walk.
static UNUSED_PLACES: AtomicUsize = AtomicUsize::new(0);

/// Returns the first places and all behind them.
fn places() -> impl Iterator<Item = &'static Place> {
    let place = |place: *const Place| {
        // SAFETY: null, or from `Box::leak` and published by `add` (acquire, release).
        unsafe { place.as_ref() }
    };
    // Acquire: pairs with the release in `add`.
    std::iter::successors(place(PLACES.load(Ordering::Acquire)), move |last| place(last.next))
}

impl Registration {
    /// Adds an object.
    ///
    /// # Safety
    ///
    /// The object stays where it is, and exists until the registration is dropped.
    pub(crate) unsafe fn new<T: Inherited>(object: &T) -> Self {
        /// # Safety
        ///
        /// As for [`Inherited::clean`], and `object` is a `T`.
        unsafe fn clean<T: Inherited>(object: NonNull<()>, child: &mut ForkedChild) {
            // SAFETY: guaranteed by the caller.
            let object = unsafe { object.cast::<T>().as_ref() };
            // SAFETY: guaranteed by the caller.
            unsafe { object.clean(child) };
        }
        register_handler();
        let place = claim();
        let entry = Entry { object: NonNull::from(object).cast(), clean: clean::<T> };
        // SAFETY: this thread has claimed the place.
        unsafe { place.entry.get().write(entry) };
        place.state.store(USED, Ordering::Release);
        Self(place)
    }
}

/// Claims an unused place, or adds one.
fn claim() -> &'static Place {
    if UNUSED_PLACES.load(Ordering::Relaxed) > 0 {
        // Acquire: what its last object wrote there happens before.
        let claim = |place: &&Place| {
            place.state.compare_exchange(UNUSED, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if let Some(place) = places().find(claim) {
            UNUSED_PLACES.fetch_sub(1, Ordering::Relaxed);
            return place;
        }
    }
    let none = Entry { object: NonNull::dangling(), clean: |_, _| () };
    let state = AtomicU8::new(CLAIMED);
    let place = Box::leak(Box::new(Place { state, entry: UnsafeCell::new(none), next: ptr::null() }));
    let mut first = PLACES.load(Ordering::Relaxed);
    loop {
        place.next = first;
        match PLACES.compare_exchange_weak(first, place, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return place,
            Err(now) => first = now,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.state.store(UNUSED, Ordering::Release);
        UNUSED_PLACES.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").finish_non_exhaustive()
    }
}

/// Registers the handler before the first object.
#[cfg(all(unix, not(miri)))]
fn register_handler() {
    use std::sync::atomic::AtomicBool;

    // Not a `OnceLock`, which a thread that does not exist in the child may have locked.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.load(Ordering::Relaxed) && !REGISTERED.swap(true, Ordering::Relaxed) {
        // If the system registers no more handlers, the child keeps what it inherits, which costs it slots and
        // memory.
        // SAFETY: the handler is a function, valid as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(after_in_child)) };
    }
}

/// There is no `fork`.
#[cfg(any(not(unix), miri))]
fn register_handler() {}

#[cfg(all(unix, not(miri)))]
extern "C" fn after_in_child() {
    // SAFETY: the system calls this in the child of a `fork`, before any other thread is started.
    unsafe { clean_all() };
}

/// Cleans all objects.
///
/// # Safety
///
/// As for [`Inherited::clean`].
#[cfg_attr(any(not(unix), miri), expect(dead_code, reason = "there is no `fork`"))]
unsafe fn clean_all() {
    let mut child = ForkedChild { own: thread_slot::known_index(), inside: 0 };
    for place in places().filter(|place| place.state.load(Ordering::Acquire) == USED) {
        // SAFETY: the place is used, so no thread writes to it.
        let Entry { object, clean } = unsafe { *place.entry.get() };
        // SAFETY: the object has not left the list, so it exists; the rest is guaranteed by the caller.
        unsafe { clean(object, &mut child) };
    }
    // SAFETY: no thread that does not exist here was inside the slots of the other numbers.
    unsafe { thread_slot::keep_numbers(child.inside) };
}
