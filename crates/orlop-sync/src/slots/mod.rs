//! One value per thread slot: a thread enters its own slot without a locked instruction, and any thread can
//! visit all.
//!
//! # Why not thread-local values
//!
//! A thread-local value can be reached by its own thread only: a destructor must flush it at thread exit, it
//! cannot be trimmed while its thread sleeps, and no other thread can read it. A slot belongs to the
//! *allocator*; a thread has the right to use it (see [`thread_slot`](super::thread_slot)). Thread exit needs
//! no code: the next thread with that slot finds the value that the previous one left.
//!
//! # Owned slots: a handshake
//!
//! An owned slot is nearly always entered by one thread, its owner. The owner sets `busy` and then reads the
//! gate; a visitor closes the gate and then reads `busy`. Each needs a full fence between its two steps, or
//! both could miss the other's store. The owner's is the light one of an asymmetric pair and costs nothing;
//! the visitor pays with a system call.
//!
//! Safe code enters in a closure ([`Slots::with`]): a guard in a thread-local would outlive the thread's
//! right to the slot. A thread that is inside its slot cannot enter it again, whatever it calls there:
//! [`Slots::try_enter`] then returns `None`; `with` ends the process, because both callers would have
//! exclusive access to the value. They know by `busy`. `try_enter` does not load what the entry before has
//! just stored, which takes a tenth of the time of a cached block; it loads `entered`, which is set while
//! code inside may call others, and its caller promises to call nothing otherwise.
//!
//! # Shared slots: a lock
//!
//! Threads without a slot of their own share the other slots, whose `busy` is an ordinary spin lock.
//!
//! # One visitor at a time
//!
//! A visitor holds a mutex during its visit. An owner that finds the gate closed waits for the same mutex,
//! and so does one that enters for the first time, to create the slot's value.
//!
//! # Ordering
//!
//! * `slots.leave` (release, the owner leaves) pairs with `slots.vacant` (acquire, a visitor reads `busy` as
//!   zero), and in shared slots with `slots.take`;
//! * `slots.open` (release, a visitor leaves) pairs with `slots.enter` and `slots.try` (acquire, the owner
//!   reads the gate as open);
//! * `slots.made` (release) publishes a slot's body to `slots.peek` (acquire).

mod guard;
#[cfg(loom)]
mod modelled;
mod quiesce;
mod slot;
mod slot_box;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::guard::FastSlotGuard;
pub(crate) use self::guard::SlotGuard;
pub use self::quiesce::QuiescedSlots;

use self::slot::{BUSY, Body, CLOSED, LeaveOnDrop, OpenOnDrop, SEALED, Slot};
use self::slot_box::SlotBox;
use super::thread_slot::{self, OWNED, ThreadSlot};
#[cfg(not(loom))]
use crate::inherited::Registration;
use crate::ordering;
use crate::primitives::atomic::Ordering;
use crate::primitives::{ColdMutex, abort_reentered, fence};
use crossbeam_utils::CachePadded;
use std::fmt;

/// A `V` for each thread slot, which one thread at a time can change, and an `S` beside it that all threads
/// can read.
///
/// Both are created when a thread first enters the slot.
pub struct Slots<V, S = ()> {
    /// Dropped first: from then on the slots may be freed.
    #[cfg(not(loom))]
    _registration: Registration,
    slots: SlotBox<V, S>,
    visitors: ColdMutex<()>,
}

// SAFETY: a `&Slots` gives access to a `V` only through guards and visits, which exclude each other and order
// each access after the one before (head of this file). That is what a mutex does, so `V: Send` is
// enough. An `S` is reached by `&` from all threads at once.
unsafe impl<V: Send, S: Send + Sync> Sync for Slots<V, S> {}
// SAFETY: the slots own their bodies: sending them sends a `V` and an `S` for each.
unsafe impl<V: Send, S: Send> Send for Slots<V, S> {}

impl<V: Default, S: Default> Slots<V, S> {
    /// Creates slots without values.
    #[must_use]
    pub fn new() -> Self {
        let slots = SlotBox::new();
        Self {
            // SAFETY: the slots stay where they are until `slots` is dropped, and that is after this.
            #[cfg(not(loom))]
            _registration: unsafe { Registration::new(&*slots) },
            slots,
            visitors: ColdMutex::default(),
        }
    }

    /// Enters this thread's slot if the thread owns one that was used before, unless a visitor is there or
    /// this thread is inside by another entry. Calls nothing.
    ///
    /// # Safety
    ///
    /// 1. While the guard or a reference to the value exists, the thread calls nothing that may enter these
    ///    slots, except in [`FastSlotGuard::call`]. A panic inside is such a call, because its hook may be
    ///    any code, and so is a signal handler that allocates from these slots.
    /// 2. The guard is dropped before the caller returns to code that it does not know: it is neither kept,
    ///    as in a thread-local, nor leaked.
    #[inline(always)]
    pub unsafe fn try_enter(&self) -> Option<FastSlotGuard<'_, V, S>> {
        let slot = self.slot(thread_slot::owned()?);
        slot.busy.store(BUSY, Ordering::Relaxed);
        fence::light();
        // One branch for both words: this is the fast path of every cached block.
        let entered = slot.entered.load(Ordering::Relaxed);
        if slot.gate.load(ordering!("slots.try", Acquire)) | entered == 0 {
            return Some(slot.guard());
        }
        // Still busy if this thread is inside.
        slot.busy.store(entered, Ordering::Release);
        None
    }

    /// Enters this thread's slot. Waits for a visitor to leave.
    ///
    /// The guard must not outlive the call of this crate that made it (see [`Slots::with`]).
    #[inline(always)]
    pub(crate) fn enter(&self) -> SlotGuard<'_, V, S> {
        let own_slot = thread_slot::current();
        let slot = self.slot(own_slot);
        if own_slot.index() < OWNED {
            if slot.busy.load(Ordering::Relaxed) != 0 {
                abort_reentered();
            }
            slot.busy.store(BUSY, Ordering::Relaxed);
            fence::light();
            if slot.gate.load(ordering!("slots.enter", Acquire)) == 0 {
                return SlotGuard::new(slot.guard());
            }
        }
        self.enter_slow(own_slot)
    }

    /// Runs `f` on the value of this thread's slot. Waits for a visitor to leave.
    ///
    /// `f` is to be short, and may call anything but these slots. A thread that enters an owned slot while it
    /// is inside ends the process. One that enters during its own visit panics; one that enters a shared slot
    /// while it is inside waits for ever.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(&mut V) -> R) -> R {
        f(&mut self.enter())
    }

    #[inline(always)]
    fn slot(&self, own_slot: ThreadSlot) -> &Slot<V, S> {
        // SAFETY: there are `SLOTS` slots, and a `ThreadSlot`'s index is below that.
        unsafe { self.slots.get_unchecked(own_slot.index()) }
    }

    #[cold]
    #[inline(never)]
    fn enter_slow(&self, own_slot: ThreadSlot) -> SlotGuard<'_, V, S> {
        let slot = self.slot(own_slot);
        let owned = own_slot.index() < OWNED;
        if owned {
            // This thread is not inside after all. Release: a visitor may take this store for the end of an
            // earlier guard. (Not named: loom orders a thread's later stores with its earlier releases, and
            // would not miss it.)
            slot.busy.store(0, Ordering::Release);
        }
        // Before anything is locked, because `Default` is the user's code: it may panic, or enter.
        let body = slot.body().is_none().then(Body::new);
        let unused = if owned {
            // A visitor that held the mutex before has opened the gate; one that takes it later will find
            // `busy` set.
            let _no_visitors = self.visitors.lock();
            let unused = slot.set_body(body);
            slot.busy.store(BUSY, Ordering::Relaxed);
            unused
        } else {
            slot.lock();
            slot.set_body(body)
        };
        let guard = SlotGuard::new(slot.guard());
        // Inside, like all that the user's code does with the value: its destructor may panic.
        drop(unused);
        guard
    }
}

impl<V, S> Slots<V, S> {
    /// Runs `f` on the value of every slot that was ever used. Owners of slots not yet visited wait
    /// meanwhile.
    pub fn for_each_slot(&self, mut f: impl FnMut(&mut V, &S)) {
        // A body that is not seen here was created after this call began.
        self.visit_where(
            |slot| slot.body().is_some(),
            |slot| {
                // SAFETY: `visit_where` has excluded every other thread.
                if let Some((value, shared)) = unsafe { slot.inside() } {
                    // SAFETY: as above; the reference ends before the visit does.
                    f(unsafe { value.deref() }, shared);
                }
            },
        );
    }

    /// Marks every slot, used or not: from now on [`SlotGuard::is_sealed`] is true. Runs `f` on the shared
    /// part of each used slot at the moment it is marked.
    pub(crate) fn seal(&self, mut f: impl FnMut(&S)) {
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

    /// Returns the shared part of each slot that was ever used.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &S> + '_ {
        self.slots.iter().filter_map(|slot| Some(&slot.body()?.shared))
    }

    /// Returns [`Slots::shared`] with the slots' indices.
    pub(super) fn indexed_shared(&self) -> impl Iterator<Item = (usize, &S)> + '_ {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, &slot.body()?.shared)))
    }

    /// Visits the chosen slots. All gates are closed first, so that one fence serves all.
    fn visit_where(&self, choose: impl Fn(&Slot<V, S>) -> bool, mut f: impl FnMut(&Slot<V, S>)) {
        self.refuse_if_inside();
        let _visiting = self.visitors.lock();
        let (owned, shared) = self.slots.split_at(OWNED);
        let mut closed = ClosedGates { slots: owned, closed: [false; OWNED] };
        for (slot, closed) in owned.iter().zip(&mut closed.closed) {
            *closed = choose(slot);
            if *closed {
                let gate = slot.gate.load(Ordering::Relaxed);
                slot.gate.store(gate | CLOSED, Ordering::Relaxed);
            }
        }
        if closed.closed.contains(&true) {
            fence::heavy();
        }
        for (index, slot) in owned.iter().enumerate() {
            if !closed.closed[index] {
                continue;
            }
            slot.wait_for_owner();
            f(slot);
            closed.open(index);
        }
        for slot in shared.iter().filter(|slot| choose(slot)) {
            slot.lock();
            let visit = LeaveOnDrop(&slot.busy);
            f(slot);
            drop(visit);
        }
    }

    /// Ends the process if this thread is inside its own slot: a visit would wait for itself.
    #[cfg(not(loom))]
    fn refuse_if_inside(&self) {
        let own = thread_slot::owned().and_then(|own_slot| self.slots.get(own_slot.index()));
        if own.is_some_and(|slot| slot.busy.load(Ordering::Relaxed) != 0) {
            abort_reentered();
        }
    }

    /// Does nothing: a model assigns slots to threads itself, also slots that `thread_slot` gives to other
    /// threads.
    #[cfg(loom)]
    fn refuse_if_inside(&self) {}

    /// Ends the atomic words of the slots: see [`End`](crate::End).
    pub(super) fn end(&mut self) {
        self.slots.exclusive().for_each(Slot::end);
    }
}

/// The owned slots whose gates a visit has closed. Those that it has not reached, because `f` panicked, are
/// opened when this is dropped.
struct ClosedGates<'a, V, S> {
    slots: &'a [CachePadded<Slot<V, S>>],
    closed: [bool; OWNED],
}

impl<V, S> ClosedGates<'_, V, S> {
    fn open(&mut self, index: usize) {
        if std::mem::take(&mut self.closed[index]) {
            drop(OpenOnDrop(&self.slots[index].gate));
        }
    }
}

impl<V, S> Drop for ClosedGates<'_, V, S> {
    fn drop(&mut self) {
        (0..OWNED).for_each(|index| self.open(index));
    }
}

impl<V, S> Drop for Slots<V, S> {
    fn drop(&mut self) {
        self.end();
        self.slots.exclusive().for_each(Slot::drop_body);
    }
}

impl<V: Default, S: Default> Default for Slots<V, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V, S> fmt::Debug for Slots<V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("used", &self.shared().count()).finish_non_exhaustive()
    }
}
