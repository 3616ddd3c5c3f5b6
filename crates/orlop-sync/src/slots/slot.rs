//! One slot: its state words, its value, and the steps of the handshake and of the lock.

use super::FastSlotGuard;
use crate::ordering;
use crate::primitives::atomic::{AtomicPtr, AtomicU8, Ordering};
use crate::primitives::{Backoff, End, MutPtr, UnsafeCell};
use std::ptr;

/// A slot's state and value; see the head of the [module](super) for the protocol.
#[repr(C)]
pub(super) struct Slot<V, S> {
    /// Zero or [`BUSY`]. In owned slots: the owner is inside, or about to read the gate. In shared slots: a
    /// thread is inside.
    pub(super) busy: AtomicU8,
    /// Null until the slot is first used; constant from then on.
    body: AtomicPtr<Body<V, S>>,
    /// Zero lets the owner in; otherwise a set of [`CLOSED`], [`EMPTY`], [`SEALED`] and
    /// [`QUIESCED`]. In owned slots it
    /// changes only while the visitors' mutex is held. Not in the same word as `busy`: on some processors a
    /// load next to a byte that was just stored waits for the store.
    pub(super) gate: AtomicU8,
    /// In owned slots: [`BUSY`] while the owner is inside and may call code that enters the slot. Only the
    /// thread inside uses it. Apart from `busy`, so that the fast path loads nothing that it has just stored.
    pub(super) entered: AtomicU8,
}

/// The value of `busy` and of `entered` while a thread is inside.
pub(super) const BUSY: u8 = 1;

/// A visitor is inside, or about to be.
pub(super) const CLOSED: u8 = 1;
/// The slot has no body yet.
pub(super) const EMPTY: u8 = 2;
/// [`Slots::seal`](super::Slots::seal) has visited the slot.
pub(super) const SEALED: u8 = 4;
/// All slots are quiesced: no owner is inside, whatever `busy` says.
pub(super) const QUIESCED: u8 = 8;

/// The part of a slot that is created when the slot is first used.
pub(super) struct Body<V, S> {
    pub(super) shared: S,
    pub(super) value: UnsafeCell<V>,
}

impl<V, S> Slot<V, S> {
    /// Creates a slot without a body.
    pub(super) fn empty() -> Self {
        Self {
            busy: AtomicU8::new(0),
            body: AtomicPtr::new(ptr::null_mut()),
            gate: AtomicU8::new(EMPTY),
            entered: AtomicU8::new(0),
        }
    }

    /// Returns the body if the slot was ever used.
    pub(super) fn body(&self) -> Option<&Body<V, S>> {
        let body = self.body.load(ordering!("slots.peek", Acquire));
        // SAFETY: null, or from `Box::into_raw` and freed by `drop_body` when the slots are dropped; `&self`
        // does not outlive them.
        unsafe { body.as_ref() }
    }

    /// Returns the value and the shared part if the slot was ever used.
    ///
    /// # Safety
    ///
    /// The caller is inside: no other thread enters before the caller has left.
    pub(super) unsafe fn inside(&self) -> Option<(MutPtr<V>, &S)> {
        self.body().map(|body| (body.value.get_mut(), &body.shared))
    }

    /// Returns `true` if [`Slots::seal`](super::Slots::seal) has visited the slot. The caller is inside, so
    /// no visit changes that meanwhile.
    #[inline(always)]
    pub(super) fn is_sealed(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & SEALED != 0
    }

    /// Returns the guard of a slot that the caller has entered and that has a body.
    #[inline(always)]
    pub(super) fn guard(&self) -> FastSlotGuard<'_, V, S> {
        // Relaxed: this thread created the body, or its entry is ordered after the creation: by the gate, by
        // the lock, or by taking over the slot.
        let body = self.body.load(Ordering::Relaxed);
        // SAFETY: the gate was not `EMPTY`, or `enter_slow` created the body; it lives as long as the slots.
        let body = unsafe { &*body };
        FastSlotGuard::new(self, body)
    }

    /// Waits until the owner is outside. The gate is closed and the heavy fence executed, so an owner that
    /// enters later finds the gate closed.
    pub(super) fn wait_for_owner(&self) {
        let backoff = Backoff::default();
        let vacant = ordering!("slots.vacant", Acquire);
        let mut busy = self.busy.load(vacant) != 0;
        while busy {
            backoff.wait();
            // Under loom a load may never see the newest store, and the loop would not end.
            busy = if cfg!(loom) {
                self.busy.compare_exchange(0, 0, vacant, Ordering::Relaxed).is_err()
            } else {
                self.busy.load(vacant) != 0
            };
        }
    }

    /// Enters a shared slot.
    pub(super) fn lock(&self) {
        let backoff = Backoff::default();
        let take = ordering!("slots.take", Acquire);
        while self.busy.compare_exchange(0, BUSY, take, Ordering::Relaxed).is_err() {
            backoff.wait();
        }
    }

    /// Frees the body. The slots are being dropped.
    pub(super) fn drop_body(&mut self) {
        let body = self.body.swap(ptr::null_mut(), Ordering::Acquire);
        if !body.is_null() {
            // SAFETY: from `Box::into_raw`, and access to the slots is exclusive.
            drop(unsafe { Box::from_raw(body) });
        }
    }

    /// Ends the atomic words: see [`End`].
    pub(super) fn end(&mut self) {
        self.busy.end();
        self.gate.end();
        self.entered.end();
        self.body.end();
    }
}

impl<V: Default, S: Default> Body<V, S> {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self { shared: S::default(), value: UnsafeCell::new(V::default()) })
    }
}

impl<V, S> Slot<V, S> {
    /// Sets the body unless there is one. The caller is inside, or holds the visitors' mutex. Returns a body
    /// that is not used: one was set since the caller made it.
    pub(super) fn set_body(&self, body: Option<Box<Body<V, S>>>) -> Option<Box<Body<V, S>>> {
        let body = body?;
        if !self.body.load(Ordering::Relaxed).is_null() {
            return Some(body);
        }
        self.body.store(Box::into_raw(body), ordering!("slots.made", Release));
        self.gate.fetch_and(!EMPTY, Ordering::Relaxed);
        None
    }
}

/// Leaves a slot when it is dropped.
pub(super) struct LeaveOnDrop<'a>(pub(super) &'a AtomicU8);

impl Drop for LeaveOnDrop<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(0, ordering!("slots.leave", Release));
    }
}

/// Opens a slot's gate when it is dropped.
pub(super) struct OpenOnDrop<'a>(pub(super) &'a AtomicU8);

impl Drop for OpenOnDrop<'_> {
    fn drop(&mut self) {
        let gate = self.0.load(Ordering::Relaxed);
        self.0.store(gate & !(CLOSED | QUIESCED), ordering!("slots.open", Release));
    }
}
