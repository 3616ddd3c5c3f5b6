//! A cell that holds a shared value: read often and without a lock, replaced rarely.
//!
//! A cell that is set once or twice can keep every value it ever held, because a reader may still use the old
//! one. Observers are set and removed throughout a program: kept values would accumulate, and each would keep
//! its buffers alive. So readers are counted here, and a replaced value is dropped as soon as no reader is
//! counted.
//!
//! Reading an empty cell costs one relaxed load. Readers are counted by thread slot: a thread that owns its
//! slot counts with two plain stores, and a writer pays with the heavy fence of an asymmetric pair, as in
//! [`Slots`](super::Slots).
//!
//! # Ordering
//!
//! A reader adds to its count and then loads the value; a writer stores the new value and then loads the
//! counts. Each executes a fence in between (light for the reader, heavy for the writer); threads that share
//! a slot count with locked instructions, all of them sequentially consistent. So if the two race, the writer
//! sees the count or the reader sees the new value. Taking a count down (`swap_cell.release`, release) pairs
//! with the writer's load of it (acquire): every use of the value happens before it is dropped.

use super::thread_slot::{self, OWNED, SLOTS};
use crate::ordering;
use crate::primitives::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::primitives::{Backoff, Mutex, fence};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// A cell that holds a `T` or nothing, and is empty at first.
pub struct SwapCell<T> {
    /// Null, or from `Box::into_raw`; owned.
    current: AtomicPtr<T>,
    /// Created before the first value is stored.
    readers: OnceLock<Box<[CachePadded<AtomicUsize>; SLOTS]>>,
    /// Replaced values that may still have readers: from `Box::into_raw`; owned.
    replaced: Mutex<Vec<NonNull<T>>>,
    /// Whether `replaced` has values: a hint that saves taking the lock.
    has_replaced: AtomicBool,
}

// SAFETY: the cell owns its values, several threads can have references to one, and any thread may drop it:
// `T` is both `Send` and `Sync`.
unsafe impl<T: Send + Sync> Send for SwapCell<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for SwapCell<T> {}

/// A reference to the value of a [`SwapCell`], which is not dropped while the guard exists.
#[derive(Debug)]
pub struct SwapGuard<'a, T> {
    value: &'a T,
    count: ReaderCount<'a>,
}

/// The counter of the calling thread's guards.
#[derive(Debug, Clone, Copy)]
struct ReaderCount<'a> {
    readers: &'a AtomicUsize,
    /// Whether this thread alone writes the counter.
    owned: bool,
    /// Tied to its thread.
    thread: PhantomData<*const ()>,
}

impl ReaderCount<'_> {
    #[inline(always)]
    fn up(self) {
        if self.owned {
            self.readers.store(self.readers.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        } else {
            self.readers.fetch_add(1, Ordering::SeqCst);
        }
        fence::light();
    }

    #[inline(always)]
    fn down(self) {
        let release = ordering!("swap_cell.release", Release);
        if self.owned {
            self.readers.store(self.readers.load(Ordering::Relaxed).wrapping_sub(1), release);
        } else {
            self.readers.fetch_sub(1, release);
        }
    }
}

impl<T> SwapCell<T> {
    /// Creates an empty cell.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a guard of the value, or `None` if the cell is empty, at the cost of one relaxed load.
    #[inline]
    pub fn get(&self) -> Option<SwapGuard<'_, T>> {
        if self.current.load(Ordering::Relaxed).is_null() { None } else { self.get_counted() }
    }

    #[inline]
    fn get_counted(&self) -> Option<SwapGuard<'_, T>> {
        let slot = thread_slot::current().index();
        // While the counters do not exist for this thread, there is no value yet that it has to see.
        let readers = self.readers.get()?.get(slot)?;
        let count = ReaderCount { readers, owned: slot < OWNED, thread: PhantomData };
        count.up();
        let current = self.current.load(Ordering::SeqCst);
        // SAFETY: null, or a box that is freed only after it was replaced and every count was seen to be zero
        // (`take_unread`). This reader is counted, and was before the load.
        let Some(value) = (unsafe { current.as_ref() }) else {
            count.down();
            return None;
        };
        Some(SwapGuard { value, count })
    }

    /// Returns a clone of the value. The guard is released before this returns.
    #[inline]
    pub fn cloned(&self) -> Option<T>
    where
        T: Clone,
    {
        self.get().map(|guard| T::clone(&guard))
    }

    /// Replaces the value, or removes it with `None`, and returns a clone of the previous one.
    pub fn set(&self, value: Option<T>) -> Option<T>
    where
        T: Clone,
    {
        self.set_if(value, |_| true).unwrap_or(None)
    }

    /// Does what [`SwapCell::set`] does if `condition` holds for the current value, and returns `value` as
    /// the error otherwise.
    ///
    /// `condition` runs under the writers' lock, so no other thread replaces the value between the two. It
    /// must not set the same cell.
    pub fn set_if(
        &self,
        value: Option<T>,
        condition: impl FnOnce(Option<&T>) -> bool,
    ) -> Result<Option<T>, Option<T>>
    where
        T: Clone,
    {
        let mut replaced = self.replaced.lock();
        // Relaxed: the thread that stored it held the lock.
        let current = NonNull::new(self.current.load(Ordering::Relaxed));
        // SAFETY: a box that the cell owns; it is replaced only under the lock, which this thread holds.
        let now = current.map(|current| unsafe { current.as_ref() });
        if !condition(now) {
            return Err(value);
        }
        let before = now.cloned();
        self.readers.get_or_init(|| Box::new(std::array::from_fn(|_| CachePadded::default())));
        let new = value.map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(value)));
        self.current.swap(new, Ordering::SeqCst);
        fence::heavy();
        replaced.extend(current);
        let unread = self.take_unread(&mut replaced);
        drop(replaced);
        // After the lock: the destructor of a value may run any code.
        drop(unread);
        Ok(before)
    }

    /// Drops replaced values that have no reader any more. It costs one relaxed load if there are none: for
    /// readers with long guards to call when the guard is dropped, with no lock held.
    #[inline]
    pub fn release_replaced(&self) {
        // Relaxed: a hint. A thread that replaced the value itself sees its own store.
        if self.has_replaced.load(Ordering::Relaxed) {
            self.release_slow();
        }
    }

    #[cold]
    fn release_slow(&self) {
        let mut replaced = self.replaced.lock();
        let unread = self.take_unread(&mut replaced);
        drop(replaced);
        drop(unread);
    }

    /// Waits until replaced values have no readers and drops them. It gives up after a bounded number of
    /// attempts, so it serves values whose guards are short-lived.
    pub fn settle(&self) {
        const TRIES: usize = if cfg!(loom) { 2 } else { 50 };
        let backoff = Backoff::new();
        for _ in 0..TRIES {
            let mut replaced = self.replaced.lock();
            let unread = self.take_unread(&mut replaced);
            let settled = replaced.is_empty();
            drop(replaced);
            drop(unread);
            if settled {
                return;
            }
            backoff.wait();
        }
    }

    /// Takes the replaced values if no reader is counted, and nothing otherwise.
    fn take_unread(&self, replaced: &mut Vec<NonNull<T>>) -> Vec<Box<T>> {
        let counts = self.readers.get().into_iter().flat_map(|readers| readers.iter());
        // Each load comes after the swap and its fence: both happened under the lock that this thread holds.
        // A reader that counts later gets the new value.
        let is_read = counts.into_iter().any(|count| count.load(Ordering::SeqCst) != 0);
        self.has_replaced.store(is_read && !replaced.is_empty(), Ordering::Relaxed);
        if is_read {
            return Vec::new();
        }
        // SAFETY: each is from `Box::into_raw` and in the list once; no reader has a reference to it.
        replaced.drain(..).map(|value| unsafe { Box::from_raw(value.as_ptr()) }).collect()
    }
}

impl<T> Deref for SwapGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Drop for SwapGuard<'_, T> {
    fn drop(&mut self) {
        self.count.down();
    }
}

impl<T> Drop for SwapCell<T> {
    fn drop(&mut self) {
        // Relaxed: access is exclusive.
        let current = NonNull::new(self.current.swap(ptr::null_mut(), Ordering::Relaxed));
        let replaced = std::mem::take(&mut *self.replaced.lock());
        for value in replaced.into_iter().chain(current) {
            // SAFETY: from `Box::into_raw`, freed once; guards borrow the cell, so none is left.
            drop(unsafe { Box::from_raw(value.as_ptr()) });
        }
    }
}

impl<T> Default for SwapCell<T> {
    fn default() -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            readers: OnceLock::new(),
            replaced: Mutex::default(),
            has_replaced: AtomicBool::new(false),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for SwapCell<T> {
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
    fn a_replaced_value_is_dropped_after_its_last_guard() {
        let (cell, value) = (SwapCell::default(), Arc::new(7));
        assert!(cell.get().is_none() && cell.set(Some(Arc::clone(&value))).is_none());
        let guard = cell.get().unwrap();
        assert_eq!(cell.set(None).as_deref(), Some(&7));
        assert_eq!((**guard, Arc::strong_count(&value)), (7, 2));
        cell.release_replaced();
        assert_eq!(Arc::strong_count(&value), 2, "it has a reader");
        drop(guard);
        cell.release_replaced();
        assert!(cell.get().is_none() && Arc::strong_count(&value) == 1);
        for _ in 0..1000 {
            cell.set(Some(Arc::clone(&value)));
        }
        assert_eq!(Arc::strong_count(&value), 2);
        assert!(cell.set_if(None, |now| now.is_none()).is_err() && cell.get().is_some());
        drop(cell);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn readers_and_a_writer_on_threads() {
        let (cell, done) = (SwapCell::<Arc<i32>>::default(), AtomicBool::new(false));
        let value = Arc::new(41);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        if let Some(guard) = cell.get() {
                            assert_eq!(**guard, 41);
                        }
                    }
                });
            }
            for round in 0..if cfg!(miri) { 50 } else { 5000 } {
                cell.set((round % 3 != 0).then(|| Arc::new(41)));
            }
            cell.set(Some(Arc::clone(&value)));
            done.store(true, Ordering::Relaxed);
        });
        cell.set(None);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
