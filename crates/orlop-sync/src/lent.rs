//! A value that is read often, replaced at times, and gone once it was replaced.
//!
//! To keep what was replaced, because another thread may be using it, is right for what is set once or twice. Observers come and go with every step of a program, and what is kept for them
//! would grow; nor may it hold on to a recorder's buffers. So who reads takes a loan here, which is counted, and who
//! replaces frees what nobody can have a loan of.
//!
//! An empty slot still costs one relaxed load. Loans are counted by thread slot: a thread that has one for itself counts with
//! two plain stores, and who replaces pays for that with the heavy one of an asymmetric pair of fences, as in
//! [`Slots`](super::Slots).
//!
//! # Ordering
//!
//! Who reads counts its loan and then loads the value; who replaces puts the new value there and then looks at the counts.
//! Each has a fence in between (a light and a heavy one; threads that share a slot count with locked instructions, all of it
//! sequentially consistent). So of two that meet, either the one who replaces sees the loan, or the reader sees the new
//! value. That a count went down (`lent.back`, release) pairs with looking at it (acquire): what was done with the value is
//! over.

use super::thread_slot::{self, OWNED, SLOTS};
use crate::ordering;
use crate::primitives::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::primitives::{Backoff, Mutex, fence};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// A slot for a `T`, empty at first.
pub struct Lent<T> {
    /// Null, or from a `Box` and ours.
    current: AtomicPtr<T>,
    /// There before the first value is.
    loans: OnceLock<Box<[CachePadded<AtomicUsize>; SLOTS]>>,
    /// From boxes, and ours: what was replaced and may be lent still.
    replaced: Mutex<Vec<NonNull<T>>>,
}

// SAFETY: a `T` that several threads have references to, and any may drop.
unsafe impl<T: Send + Sync> Send for Lent<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Lent<T> {}

/// The value, which stays while this lives.
#[derive(Debug)]
pub struct Loan<'a, T> {
    value: &'a T,
    count: Count<'a>,
}

/// Where a thread counts its loans.
#[derive(Debug, Clone, Copy)]
struct Count<'a> {
    loans: &'a AtomicUsize,
    /// Whether no other thread counts there.
    owned: bool,
    /// Tied to its thread.
    thread: PhantomData<*const ()>,
}

impl Count<'_> {
    #[inline(always)]
    fn up(self) {
        if self.owned {
            self.loans.store(self.loans.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        } else {
            self.loans.fetch_add(1, Ordering::SeqCst);
        }
        fence::light();
    }

    #[inline(always)]
    fn down(self) {
        let back = ordering!("lent.back", Release);
        if self.owned {
            self.loans.store(self.loans.load(Ordering::Relaxed).wrapping_sub(1), back);
        } else {
            self.loans.fetch_sub(1, back);
        }
    }
}

impl<T> Lent<T> {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value, if there is one. One relaxed load if not.
    #[inline]
    pub fn get(&self) -> Option<Loan<'_, T>> {
        if self.current.load(Ordering::Relaxed).is_null() { None } else { self.lend() }
    }

    #[inline]
    fn lend(&self) -> Option<Loan<'_, T>> {
        let seat = thread_slot::current().index();
        // Without counts there is no value yet that this thread has to see.
        let loans = self.loans.get()?.get(seat)?;
        let count = Count { loans, owned: seat < OWNED, thread: PhantomData };
        count.up();
        let current = self.current.load(Ordering::SeqCst);
        // SAFETY: null, or a box that is freed only by who finds it replaced and no loan counted (`gone`); ours is counted,
        // and was before the load.
        let Some(value) = (unsafe { current.as_ref() }) else {
            count.down();
            return None;
        };
        Some(Loan { value, count })
    }

    /// A copy of the value, without a loan to it.
    #[inline]
    pub fn cloned(&self) -> Option<T>
    where
        T: Clone,
    {
        self.get().map(|loan| T::clone(&loan))
    }

    /// Puts a value in the place of the current one, or takes that away, and says what it was.
    pub fn set(&self, value: Option<T>) -> Option<T>
    where
        T: Clone,
    {
        self.set_if(value, |_| true).unwrap_or(None)
    }

    /// [`Lent::set`] if this is so of the current value, which nobody else replaces meanwhile; else the value comes back.
    pub fn set_if(
        &self,
        value: Option<T>,
        is_so: impl FnOnce(Option<&T>) -> bool,
    ) -> Result<Option<T>, Option<T>>
    where
        T: Clone,
    {
        let mut replaced = self.replaced.lock();
        // Relaxed: whoever put it there had the lock.
        let current = NonNull::new(self.current.load(Ordering::Relaxed));
        // SAFETY: a box of ours, which nobody else replaces while this thread has the lock.
        let now = current.map(|current| unsafe { current.as_ref() });
        if !is_so(now) {
            return Err(value);
        }
        let before = now.cloned();
        self.loans.get_or_init(|| Box::new(std::array::from_fn(|_| CachePadded::default())));
        let new = value.map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(value)));
        self.current.swap(new, Ordering::SeqCst);
        fence::heavy();
        replaced.extend(current);
        let gone = self.gone(&mut replaced);
        drop(replaced);
        // Without the lock: a value's end may run anything.
        drop(gone);
        Ok(before)
    }

    /// Frees what was replaced, when those who have a loan are done; gives up after some time. For values that nobody has
    /// for long.
    pub fn settle(&self) {
        const TRIES: usize = if cfg!(loom) { 2 } else { 1000 };
        let backoff = Backoff::new();
        for _ in 0..TRIES {
            let mut replaced = self.replaced.lock();
            let gone = self.gone(&mut replaced);
            let settled = replaced.is_empty();
            drop(replaced);
            drop(gone);
            if settled {
                return;
            }
            backoff.wait();
        }
    }

    /// What was replaced, if nobody has a loan of any of it.
    fn gone(&self, replaced: &mut Vec<NonNull<T>>) -> Vec<Box<T>> {
        let counts = self.loans.get().into_iter().flat_map(|loans| loans.iter());
        // Each after the swap and its fence, under whose lock this is or was: loans that come later are of the new value.
        if counts.into_iter().any(|count| count.load(Ordering::SeqCst) != 0) {
            return Vec::new();
        }
        // SAFETY: from boxes, once each, and nobody has them.
        replaced.drain(..).map(|value| unsafe { Box::from_raw(value.as_ptr()) }).collect()
    }
}

impl<T> Deref for Loan<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        self.count.down();
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        // Relaxed: nobody else has the slot any more.
        let current = NonNull::new(self.current.swap(ptr::null_mut(), Ordering::Relaxed));
        let replaced = std::mem::take(&mut *self.replaced.lock());
        for value in replaced.into_iter().chain(current) {
            // SAFETY: from a box, once, and loans borrow the slot.
            drop(unsafe { Box::from_raw(value.as_ptr()) });
        }
    }
}

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), loans: OnceLock::new(), replaced: Mutex::default() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().as_deref().fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_was_replaced_goes_with_its_last_loan() {
        let (slot, value) = (Lent::default(), Arc::new(7));
        assert!(slot.get().is_none() && slot.set(Some(Arc::clone(&value))).is_none());
        let loan = slot.get().unwrap();
        assert_eq!(slot.set(None).as_deref(), Some(&7));
        assert_eq!((**loan, Arc::strong_count(&value)), (7, 2));
        drop(loan);
        slot.settle();
        assert!(slot.get().is_none() && Arc::strong_count(&value) == 1);
        for _ in 0..1000 {
            slot.set(Some(Arc::clone(&value)));
        }
        assert_eq!(Arc::strong_count(&value), 2);
        assert!(slot.set_if(None, |now| now.is_none()).is_err() && slot.get().is_some());
        drop(slot);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn readers_and_who_replaces_on_threads() {
        let (slot, done) = (Lent::<Arc<i32>>::default(), AtomicBool::new(false));
        let value = Arc::new(41);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        if let Some(loan) = slot.get() {
                            assert_eq!(**loan, 41);
                        }
                    }
                });
            }
            for round in 0..if cfg!(miri) { 50 } else { 5000 } {
                slot.set((round % 3 != 0).then(|| Arc::new(41)));
            }
            slot.set(Some(Arc::clone(&value)));
            done.store(true, Ordering::Relaxed);
        });
        slot.set(None);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
