//! What the child of a `fork` inherits from threads that do not exist there, and how it gets rid of that.
//!
//! `fork` copies all memory as it is at one instant, and one thread. The child then has thread numbers,
//! counts of readers and locks of threads that will never give them back. So objects that threads leave such
//! marks in are registered here, and one handler (`pthread_atfork`) goes through them in the child:
//!
//! * a cell forgets the readers of other threads, and the lock of a writer;
//! * slots report the threads that were inside: their numbers stay taken, because what they were changing is
//!   half changed. All other numbers are free again.
//!
//! # Why a list without a lock
//!
//! The child may not wait for a lock, because its holder may not exist there. So objects are in a list that
//! is only ever added to, in one step, and that can be walked at every instant. A place that an object has
//! left is used again.

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
        // If the system registers no more handlers, the child keeps what it inherits, which costs it slots
        // and memory.
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

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use crate::thread_slot::{self, OWNED};
    use crate::{Slots, SwapCell};
    use std::sync::{Arc, Barrier};
    use std::thread;

    fn byte(number: usize) -> u8 {
        u8::try_from(number).expect("a small number")
    }

    /// Runs `act` in a forked child. Returns its result, or `false` if the child hangs.
    fn child_does(act: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child uses this crate and the system's allocator, and then ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the alarm ends the child if it hangs.
            unsafe { libc::alarm(20) };
            let done = act();
            // SAFETY: ends the child without the exit handlers of the test harness.
            unsafe { libc::_exit(if done { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the process is our child, and the pointer is valid for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    #[test]
    fn a_child_uses_the_numbers_of_threads_that_do_not_exist_there() {
        let slots = Slots::<u32>::new();
        let (ready, over) = (Barrier::new(3), Barrier::new(3));
        let wait = || {
            ready.wait();
            over.wait();
        };
        thread::scope(|scope| {
            let idle = scope.spawn(|| {
                slots.with(|value| *value = 1);
                let number = thread_slot::index();
                wait();
                number
            });
            let inside = scope.spawn(|| {
                slots.with(|_| wait());
                thread_slot::index()
            });
            let own = thread_slot::index();
            ready.wait();
            // More threads than there are numbers, all alive at the same time.
            let numbers = || {
                let (all, threads) = (Barrier::new(OWNED), 0..OWNED);
                let number = || {
                    let number = thread_slot::index();
                    all.wait();
                    number
                };
                thread::scope(|scope| {
                    let threads: Vec<_> = threads.map(|_| scope.spawn(number)).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
                })
            };
            // The numbers are known after the child has ended; it sends the ones that it used.
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let ended = child_does(|| {
                use std::io::Write;
                let bytes: Vec<u8> = numbers().into_iter().map(byte).collect();
                writer.write_all(&bytes).is_ok()
            });
            drop(writer);
            over.wait();
            let (idle, inside) = (idle.join().unwrap(), inside.join().unwrap());
            assert!(ended);
            let mut used = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut used).unwrap();
            let is_used = |number: usize| used.contains(&byte(number));
            assert!(is_used(idle), "{idle} in {used:?}");
            assert!(!is_used(own) || own >= OWNED);
            assert!(!is_used(inside) || inside >= OWNED, "its value may be half changed");
        });
    }

    /// The child forgets the readers, and the writer, that do not exist there.
    #[test]
    fn a_cell_works_in_a_child_whatever_other_threads_were_doing() {
        let (cell, value) = (SwapCell::new(), Arc::new(7));
        drop(cell.set(Some(Arc::clone(&value))));
        let (ready, over) = (Barrier::new(3), Barrier::new(3));
        let wait = || {
            ready.wait();
            over.wait();
        };
        thread::scope(|scope| {
            scope.spawn(|| cell.with(|_| wait()));
            scope.spawn(|| {
                let unchanged = cell.set_if(None, |_| {
                    wait();
                    false
                });
                assert!(unchanged.is_err());
            });
            ready.wait();
            let works = child_does(|| {
                let own = cell.with(|own| {
                    // This thread's own reader counts.
                    drop(cell.set(Some(Arc::new(8))));
                    Arc::strong_count(&value) == 2 && **own == 7
                });
                drop(cell.settle());
                own == Some(true) && Arc::strong_count(&value) == 1 && cell.cloned().as_deref() == Some(&8)
            });
            over.wait();
            assert!(works);
        });
        assert_eq!((Arc::strong_count(&value), cell.cloned().as_deref()), (2, Some(&7)));
    }
}
