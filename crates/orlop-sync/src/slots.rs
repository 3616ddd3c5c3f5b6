//! Values by thread slot: a thread enters its own without a locked instruction, and any thread may visit all.
//!
//! # Why not thread-local values
//!
//! A thread-local value can be reached by its own thread only: it must be flushed by a destructor at thread
//! exit, cannot be trimmed while its thread sleeps, and cannot be read by anybody else. A slot belongs to the
//! *allocator*; a thread has a seat in it (see [`thread_slot`](super::thread_slot)). Thread exit needs no code:
//! the next thread with that seat finds what the one before left.
//!
//! # Owned slots: a handshake
//!
//! An owned slot is entered by one thread nearly always. It says so (`busy`), then looks whether a visitor has
//! closed the gate; a visitor closes the gate, then looks whether the owner is inside. Between the two steps
//! each needs a full fence, or both could miss the other. The owner's is the light one of an asymmetric pair
//! and costs nothing; the visitor pays with a system call.
//!
//! A thread that is inside its slot cannot enter it again, whatever it calls there: `busy` is read before it is set. The
//! quick way in is then refused ([`Slots::try_hold`] gives nothing), the others end the process, because both would have
//! the value to themselves. It costs one load of the byte that is stored next.
//!
//! # Shared slots: a lock
//!
//! Threads that have no slot of their own share the others, whose `busy` is an ordinary spin lock.
//!
//! # One visitor at a time
//!
//! Visitors hold a mutex while they visit. An owner that finds the gate closed waits for the same mutex, and so
//! does one that comes for the first time, to make what the slot holds.
//!
//! # Ordering
//!
//! * `slots.leave` (release, the owner goes) pairs with `slots.vacant` (acquire, a visitor sees `busy` unset),
//!   and in shared slots with `slots.take`;
//! * `slots.open` (release, a visitor goes) pairs with `slots.enter` (acquire, the owner finds the gate open);
//! * `slots.made` (release) publishes a slot's body to `slots.peek` (acquire).

mod hold_all;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::hold_all::AllHeld;

use super::thread_slot::{OWNED, SLOTS, Seat};
use crate::ordering;
use crate::primitives::atomic::{AtomicPtr, AtomicU8, Ordering};
use crate::primitives::{Backoff, End, MutPtr, Mutex, UnsafeCell, fence};
use crossbeam_utils::CachePadded;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::{fmt, ptr};

/// A `V` for each slot, which one thread at a time may change, and an `S` beside it that all may read.
///
/// Both are made when the slot is first used.
pub struct Slots<V, S = ()> {
    slots: Box<[CachePadded<Slot<V, S>>]>,
    visitors: Mutex<()>,
}

#[repr(C)]
struct Slot<V, S> {
    /// Not zero in owned slots: the owner is inside, or about to look at the gate. In shared slots: somebody is inside.
    busy: AtomicU8,
    /// Null until the slot is first used; then it stays what it is.
    body: AtomicPtr<Body<V, S>>,
    /// Zero lets the owner in. See the constants. Changed with the mutex of the visitors held. Not in the same word
    /// as `busy`: a load beside a byte that was just stored waits for it on some processors.
    gate: AtomicU8,
}

/// What is in `busy`, if it is not zero.
const BUSY: u8 = 1;

/// A visitor is inside, or about to be.
const CLOSED: u8 = 1;
/// There is no body yet.
const EMPTY: u8 = 2;
/// [`Slots::seal`] was here.
const SEALED: u8 = 4;

struct Body<V, S> {
    shared: S,
    value: UnsafeCell<V>,
}

// SAFETY: a `&Slots` gives access to a `V` only through `Held` and the visits, which exclude each other (head
// of this file) and order each holder after the one before: what a mutex does, so `V: Send` is enough. `S` is
// reached by `&` from all threads at once.
unsafe impl<V: Send, S: Send + Sync> Sync for Slots<V, S> {}
// SAFETY: the bodies are owned: sending the slots sends a `V` and an `S` for each.
unsafe impl<V: Send, S: Send> Send for Slots<V, S> {}

impl<V: Default, S: Default> Slots<V, S> {
    /// With nothing in any slot.
    #[must_use]
    pub fn new() -> Self {
        let slot = |_| {
            CachePadded::new(Slot {
                busy: AtomicU8::new(0),
                gate: AtomicU8::new(EMPTY),
                body: AtomicPtr::new(ptr::null_mut()),
            })
        };
        Self { slots: (0..SLOTS).map(slot).collect(), visitors: Mutex::default() }
    }

    /// Enters an owned slot that was used before, if no visitor is there and this thread is not inside. Calls nothing.
    #[inline(always)]
    pub fn try_hold(&self, seat: Seat) -> Option<Held<'_, V, S>> {
        let slot = self.slot(seat);
        debug_assert!(seat.index() < OWNED);
        let before = slot.busy.load(Ordering::Relaxed);
        slot.busy.store(BUSY, Ordering::Relaxed);
        fence::light();
        if slot.gate.load(ordering!("slots.try", Acquire)) | before == 0 {
            return Some(slot.held(false));
        }
        slot.busy.store(before, Ordering::Release);
        None
    }

    /// Enters this thread's slot, waiting for a visitor to go.
    ///
    /// For a few instructions only, and never twice at once: a thread that enters an owned slot while it is inside ends
    /// the process. One that enters while it visits, or enters a shared slot while it is inside, waits for itself.
    #[inline(always)]
    pub fn hold(&self, seat: Seat) -> Held<'_, V, S> {
        let slot = self.slot(seat);
        let mut before = 0;
        if seat.index() < OWNED {
            before = slot.busy.load(Ordering::Relaxed);
            slot.busy.store(BUSY, Ordering::Relaxed);
            fence::light();
            if slot.gate.load(ordering!("slots.enter", Acquire)) | before == 0 {
                return slot.held(false);
            }
        }
        self.hold_slowly(seat, before)
    }

    /// Runs `f` on the value of this thread's slot.
    #[inline(always)]
    pub fn with<R>(&self, seat: Seat, f: impl FnOnce(&mut V) -> R) -> R {
        f(&mut self.hold(seat))
    }

    #[inline(always)]
    fn slot(&self, seat: Seat) -> &Slot<V, S> {
        // SAFETY: there are `SLOTS` slots (`new`), and a seat's index is below that (`Seat::new`).
        unsafe { self.slots.get_unchecked(seat.index()) }
    }
}

impl<V, S> Slots<V, S> {
    /// Visits the value of every slot that was ever used. Owners of slots not yet visited wait meanwhile.
    pub fn visit(&self, mut f: impl FnMut(&mut V, &S)) {
        // A body that is not seen here was made after this call began.
        self.visit_where(
            |slot| slot.body().is_some(),
            |slot| {
                // SAFETY: `visit_where` has made sure that nobody else is inside.
                if let Some((value, shared)) = unsafe { slot.inside() } {
                    // SAFETY: as above; the reference is gone when the visit is.
                    f(unsafe { value.deref() }, shared);
                }
            },
        );
    }

    /// Marks every slot, used or not: from now on [`Held::sealed`] is true. `f` sees what is shared in the used
    /// ones, each at the moment of its marking.
    pub fn seal(&self, mut f: impl FnMut(&S)) {
        self.visit_where(
            |_| true,
            |slot| {
                slot.gate.fetch_or(SEALED, Ordering::Relaxed);
                if let Some(body) = slot.body() {
                    f(&body.shared);
                }
            },
        );
    }

    /// What is shared in each slot that was ever used.
    pub fn shared(&self) -> impl Iterator<Item = &S> + '_ {
        self.slots.iter().filter_map(|slot| Some(&slot.body()?.shared))
    }

    /// [`Slots::shared`] with the slots' numbers.
    pub(super) fn numbered_shared(&self) -> impl Iterator<Item = (usize, &S)> + '_ {
        self.slots.iter().enumerate().filter_map(|(number, slot)| Some((number, &slot.body()?.shared)))
    }

    /// Visits the chosen slots: all gates are closed first, so that one fence does for all.
    fn visit_where(&self, choose: impl Fn(&Slot<V, S>) -> bool, mut f: impl FnMut(&Slot<V, S>)) {
        self.refuse_if_inside();
        let _visiting = self.visitors.lock();
        let (owned, shared) = self.slots.split_at(OWNED);
        let mut chosen = [false; OWNED];
        for (slot, chosen) in owned.iter().zip(&mut chosen) {
            *chosen = choose(slot);
            if *chosen {
                let gate = slot.gate.load(Ordering::Relaxed);
                slot.gate.store(gate | CLOSED, Ordering::Relaxed);
            }
        }
        if chosen.contains(&true) {
            fence::heavy();
        }
        for (slot, _) in owned.iter().zip(chosen).filter(|&(_, chosen)| chosen) {
            slot.wait_for_owner();
            let visit = OpenWhenDone(&slot.gate);
            f(slot);
            drop(visit);
        }
        for slot in shared.iter().filter(|slot| choose(slot)) {
            slot.lock();
            let visit = LeaveWhenDone(&slot.busy);
            f(slot);
            drop(visit);
        }
    }
}

impl<V, S> Slots<V, S> {
    /// Who visits while inside of its own slot would wait for itself.
    #[cfg(not(loom))]
    fn refuse_if_inside(&self) {
        let own = super::thread_slot::owned().and_then(|seat| self.slots.get(seat.index()));
        if own.is_some_and(|slot| slot.busy.load(Ordering::Relaxed) != 0) {
            entered_twice();
        }
    }

    /// Models say which slot they use, and say it of others.
    #[cfg(loom)]
    fn refuse_if_inside(&self) {}
}

/// Something that is called inside of a slot came back to it: a backing, or a global allocator over this one.
#[cold]
#[inline(never)]
fn entered_twice() -> ! {
    use std::io::Write;
    // As bytes and past any buffer: nothing may be allocated here. If it cannot be said, it ends all the same.
    let _ = std::io::stderr().write_all(b"orlop: an allocator was called from inside of itself\n");
    std::process::abort()
}

impl<V, S> Slot<V, S> {
    fn body(&self) -> Option<&Body<V, S>> {
        let body = self.body.load(ordering!("slots.peek", Acquire));
        // SAFETY: null, or from `Box::into_raw` and freed when the slots go, which `&self` outlives.
        unsafe { body.as_ref() }
    }

    /// The value and what is shared, if the slot was ever used.
    ///
    /// # Safety
    ///
    /// The caller is inside: nobody else enters before it has left.
    unsafe fn inside(&self) -> Option<(MutPtr<V>, &S)> {
        self.body().map(|body| (body.value.get_mut(), &body.shared))
    }

    /// The guard of a slot that the caller has entered, and that has a body.
    #[inline(always)]
    fn held(&self, sealed: bool) -> Held<'_, V, S> {
        // Relaxed: this thread made the body, or came after who did: by the gate, the lock, or its seat.
        let body = self.body.load(Ordering::Relaxed);
        // SAFETY: the gate was not `EMPTY`, or `hold_slowly` made the body; it lives as long as the slots.
        let body = unsafe { &*body };
        Held {
            value: body.value.get_mut(),
            shared: NonNull::from(&body.shared),
            sealed,
            _leave: LeaveWhenDone(&self.busy),
            slots: PhantomData,
        }
    }

    /// With the gate closed and the fence behind us: the owner is inside, or will find the gate closed.
    fn wait_for_owner(&self) {
        let backoff = Backoff::new();
        let vacant = ordering!("slots.vacant", Acquire);
        let mut busy = self.busy.load(vacant) != 0;
        while busy {
            backoff.wait();
            // Under loom a load may never see the newest store, and waiting would never end.
            busy = if cfg!(loom) {
                self.busy.compare_exchange(0, 0, vacant, Ordering::Relaxed).is_err()
            } else {
                self.busy.load(vacant) != 0
            };
        }
    }

    /// Enters a shared slot.
    fn lock(&self) {
        let backoff = Backoff::new();
        let take = ordering!("slots.take", Acquire);
        while self.busy.compare_exchange(0, BUSY, take, Ordering::Relaxed).is_err() {
            backoff.wait();
        }
    }
}

impl<V: Default, S: Default> Slots<V, S> {
    #[cold]
    #[inline(never)]
    fn hold_slowly(&self, seat: Seat, before: u8) -> Held<'_, V, S> {
        if before != 0 {
            entered_twice();
        }
        let slot = self.slot(seat);
        if seat.index() >= OWNED {
            slot.lock();
            slot.make();
        } else {
            // Not inside after all. Release: a visitor may take this for the end of the last time we were. (Not
            // named: loom orders a thread's later stores with its earlier releases, and would not miss it.)
            slot.busy.store(0, Ordering::Release);
            // Whoever visits when this is locked has opened the gate; whoever comes next will find us busy.
            let _no_visitors = self.visitors.lock();
            slot.make();
            slot.busy.store(BUSY, Ordering::Relaxed);
        }
        slot.held(slot.gate.load(Ordering::Relaxed) & SEALED != 0)
    }
}

impl<V: Default, S: Default> Slot<V, S> {
    /// Makes the body, if that was not done. The caller is inside, or keeps visitors away.
    fn make(&self) {
        if self.body.load(Ordering::Relaxed).is_null() {
            let body = Box::new(Body { shared: S::default(), value: UnsafeCell::new(V::default()) });
            self.body.store(Box::into_raw(body), ordering!("slots.made", Release));
            self.gate.fetch_and(!EMPTY, Ordering::Relaxed);
        }
    }
}

/// A slot that this thread is inside of, until it is dropped.
///
/// The slots may be gone as soon as it is left, while a function that this was given to still runs. So it holds no
/// reference but to the word that says so: an atomic may go while somebody has a reference to it.
pub struct Held<'a, V, S = ()> {
    // Dropped in this order: the access ends before the slot is left.
    value: MutPtr<V>,
    shared: NonNull<S>,
    sealed: bool,
    _leave: LeaveWhenDone<'a>,
    slots: PhantomData<&'a Slots<V, S>>,
}

struct LeaveWhenDone<'a>(&'a AtomicU8);

impl Drop for LeaveWhenDone<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(0, ordering!("slots.leave", Release));
    }
}

struct OpenWhenDone<'a>(&'a AtomicU8);

impl Drop for OpenWhenDone<'_> {
    fn drop(&mut self) {
        let gate = self.0.load(Ordering::Relaxed);
        self.0.store(gate & !CLOSED, ordering!("slots.open", Release));
    }
}

impl<'a, V, S> Held<'a, V, S> {
    /// What all may read.
    #[inline(always)]
    #[must_use]
    pub fn shared(&self) -> &'a S {
        // SAFETY: in a body, which is there as long as the slots, and those are borrowed for `'a`.
        unsafe { self.shared.as_ref() }
    }

    /// Whether [`Slots::seal`] came before.
    #[inline(always)]
    #[must_use]
    pub fn sealed(&self) -> bool {
        self.sealed
    }
}

impl<V, S> Deref for Held<'_, V, S> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        // SAFETY: by the handshake or the lock (head of this file) no other thread is inside until `_leave` has
        // run, and `self` is borrowed for as long as the reference lives.
        unsafe { self.value.deref() }
    }
}

impl<V, S> DerefMut for Held<'_, V, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut V {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { self.value.deref() }
    }
}

impl<V, S> Slots<V, S> {
    /// Nobody uses the words of the slots any more: see [`End`].
    pub(super) fn end(&mut self) {
        for slot in &mut self.slots {
            slot.busy.end();
            slot.gate.end();
            slot.body.end();
        }
    }
}

impl<V, S> Drop for Slots<V, S> {
    fn drop(&mut self) {
        self.end();
        for slot in &self.slots {
            let body = slot.body.swap(ptr::null_mut(), Ordering::Acquire);
            if !body.is_null() {
                // SAFETY: from `Box::into_raw`, and nobody else has the slots any more.
                drop(unsafe { Box::from_raw(body) });
            }
        }
    }
}

impl<V: Default, S: Default> Default for Slots<V, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V, S> fmt::Debug for Held<'_, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl<V, S> fmt::Debug for Slots<V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("used", &self.shared().count()).finish_non_exhaustive()
    }
}
