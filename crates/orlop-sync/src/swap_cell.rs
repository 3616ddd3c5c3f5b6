//! A cell that holds a shared value: read often and without a lock, replaced rarely.
//!
//! A cell that is set once or twice can keep every value it ever held, because a reader may still use the old
//! one. Observers are set and removed throughout a program: kept values would accumulate, and each would keep
//! its buffers alive. So readers are counted here, and a replaced value is returned to a writer as soon as no
//! reader is counted. The writer drops it, because only that knows when it holds no lock.
//!
//! A value is read in a closure ([`SwapCell::with`]): a guard in a thread-local would outlive the thread's
//! slot, and its reader's count would be the next owner's.
//!
//! Reading an empty cell costs one relaxed load. Readers are counted by thread slot: a thread that owns its
//! slot counts with two plain stores, and a writer pays with the heavy fence of an asymmetric pair, as in
//! [`Slots`](super::Slots).
//!
//! # After a fork
//!
//! Readers and a writer that do not exist in the child are forgotten there ([`inherited`](super::inherited)).
//! That is why what a writer changes under the lock is changed in steps of one store each: wherever it was,
//! the cell is whole, and lacks at most a value that is then leaked. The lock is this crate's own for the
//! same reason.
//!
//! # Ordering
//!
//! A reader adds to its count and then loads the value; a writer stores the new value and then loads the
//! counts. Each executes a fence in between (light for the reader, heavy for the writer); threads that share
//! a slot count with locked instructions, all of them sequentially consistent. So if the two race, the writer
//! sees the count or the reader sees the new value. Taking a count down (`swap_cell.release`, release) pairs
//! with the writer's load of it (acquire): every use of the value happens before it is dropped.

#[cfg(not(loom))]
use super::inherited::{ForkedChild, Inherited, Registration};
use super::thread_slot::{self, OWNED, SLOTS, ThreadSlot};
use super::unread_values::{Node, UnreadValues};
use crate::ordering;
use crate::primitives::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::primitives::{Backoff, Mutex, fence};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::ptr::{self, NonNull};
#[cfg(not(loom))]
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr as StdAtomicPtr;

/// A cell that holds a `T` or nothing, and is empty at first.
pub struct SwapCell<T> {
    /// Null, or from `Box::into_raw`; owned.
    current: AtomicPtr<Node<T>>,
    /// The list of replaced values that may still have readers: from `Box::into_raw`; owned. Changed under
    /// the writers' lock.
    replaced: AtomicPtr<Node<T>>,
    /// Null until the first value is stored, then constant: from `Box::into_raw`; owned. Not a `OnceLock`,
    /// which a thread that a `fork` does not copy may have locked. (`std`'s also in models: what they check
    /// is what happens afterwards.)
    users: StdAtomicPtr<Users>,
}

/// The readers of a cell, and the lock of its writers.
struct Users {
    /// Set before other threads see the users. Dropped first: from then on they may be freed.
    #[cfg(not(loom))]
    registration: OnceLock<Registration>,
    readers: [CachePadded<AtomicUsize>; SLOTS],
    writing: Mutex<()>,
}

// SAFETY: the cell owns its values, several threads can have references to one, and any thread may drop it:
// `T` is both `Send` and `Sync`.
unsafe impl<T: Send + Sync> Send for SwapCell<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for SwapCell<T> {}

/// A reader that is counted, by its thread's count. It does not leave the call that counts it.
struct CountedReader<'a> {
    readers: &'a AtomicUsize,
    /// Whether this thread alone writes the count.
    owned: bool,
}

impl<'a> CountedReader<'a> {
    #[inline(always)]
    fn new(readers: &'a AtomicUsize, owned: bool) -> Self {
        if owned {
            readers.store(readers.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        } else {
            readers.fetch_add(1, Ordering::SeqCst);
        }
        fence::light();
        Self { readers, owned }
    }
}

impl Drop for CountedReader<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let release = ordering!("swap_cell.release", Release);
        if self.owned {
            self.readers.store(self.readers.load(Ordering::Relaxed).wrapping_sub(1), release);
        } else {
            self.readers.fetch_sub(1, release);
        }
    }
}

impl Default for Users {
    fn default() -> Self {
        Self {
            #[cfg(not(loom))]
            registration: OnceLock::new(),
            readers: std::array::from_fn(|_| CachePadded::default()),
            writing: Mutex::default(),
        }
    }
}

#[cfg(not(loom))]
impl Inherited for Users {
    unsafe fn clean(&self, child: &mut ForkedChild) {
        for (index, readers) in self.readers.iter().enumerate() {
            // Its own count may include readers of others if the slot is a shared one. Then replaced values
            // are kept.
            if child.own != Some(index) {
                readers.store(0, Ordering::Relaxed);
            }
        }
        // SAFETY: guaranteed by the caller; the cell is whole at each step of a writer.
        unsafe { self.writing.release_dead_holder() };
    }
}

impl<T> SwapCell<T> {
    /// Creates an empty cell.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns `true` if the cell looks empty, at the cost of one relaxed load. Another thread may set it at
    /// the same moment.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.current.load(Ordering::Relaxed).is_null()
    }

    /// Runs `f` on the value, or returns `None` if the cell is empty, at the cost of one relaxed load. `f`
    /// may call anything, also this cell: a value that is replaced meanwhile stays until `f` returns.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        if self.is_empty() { None } else { self.with_counted(f) }
    }

    #[inline]
    fn with_counted<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        let slot = thread_slot::index();
        // While the counts do not exist for this thread, there is no value yet that it has to see.
        let readers = self.users()?.readers.get(slot)?;
        let _reader = CountedReader::new(readers, slot < OWNED);
        let current = self.current.load(Ordering::SeqCst);
        // SAFETY: null, or a box that is freed only after it was replaced and every count was seen to be zero
        // (`take_unread`). This reader is counted before the load and until `f` has returned. It is counted
        // by the same word throughout: a thread's slot changes between its calls only.
        let node = unsafe { current.as_ref() }?;
        Some(f(&node.value))
    }

    #[inline]
    fn users(&self) -> Option<&Users> {
        // Acquire: pairs with the release in `new_users`.
        // SAFETY: null, or a box that is constant and freed with the cell.
        unsafe { self.users.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn new_users(&self) -> &Users {
        let new = Box::into_raw(Box::<Users>::default());
        // SAFETY: made above; freed with the cell, or below.
        let users = unsafe { &*new };
        // SAFETY: the users are not moved, and `registration` is dropped with them.
        #[cfg(not(loom))]
        let _ = users.registration.set(unsafe { Registration::new(users) });
        match self.users.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => users,
            Err(other) => {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as in `users`; it is not null.
                unsafe { &*other }
            }
        }
    }

    /// Returns a clone of the value.
    #[inline]
    pub fn cloned(&self) -> Option<T>
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// Replaces the value, or removes it with `None`. Returns what was replaced by this call and earlier ones
    /// and has no reader any more.
    pub fn set(&self, value: Option<T>) -> UnreadValues<T> {
        self.set_if(value, |_| true).unwrap_or_default()
    }

    /// Does what [`SwapCell::set`] does if `condition` holds for the current value, and returns `value` as
    /// the error otherwise.
    ///
    /// `condition` runs under the writers' lock, so no other thread replaces the value between the two. It
    /// must not set the same cell: that panics.
    ///
    /// # Errors
    ///
    /// `value`, if the condition does not hold.
    pub fn set_if(
        &self,
        value: Option<T>,
        condition: impl FnOnce(Option<&T>) -> bool,
    ) -> Result<UnreadValues<T>, Option<T>> {
        let users = self.users().unwrap_or_else(|| self.new_users());
        // Allocated before the lock is taken: an allocator may be what a fork waits for.
        let new = value.map(|value| Box::new(Node { value, next: AtomicPtr::new(ptr::null_mut()) }));
        let writing = users.writing.lock();
        // Relaxed: the thread that stored it held the lock.
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: null, or a box that the cell owns; it is replaced only under the lock, which this thread
        // holds.
        let now = unsafe { current.as_ref() };
        if !condition(now.map(|now| &now.value)) {
            drop(writing);
            return Err(new.map(|new| new.value));
        }
        self.current.swap(new.map_or(ptr::null_mut(), Box::into_raw), Ordering::SeqCst);
        fence::heavy();
        if let Some(now) = now {
            now.next.store(self.replaced.load(Ordering::Relaxed), Ordering::Relaxed);
            self.replaced.store(current, Ordering::Relaxed);
        }
        Ok(self.take_unread(users))
    }

    /// Drops replaced values that have no reader any more. It costs one relaxed load if there are none: for
    /// readers whose closures take long to call after them, with no lock held.
    #[inline]
    pub fn release_replaced(&self) {
        if self.has_replaced() {
            drop(self.unread());
        }
    }

    /// Relaxed: a hint. A thread that replaced the value itself sees its own store.
    #[inline]
    fn has_replaced(&self) -> bool {
        !self.replaced.load(Ordering::Relaxed).is_null()
    }

    #[cold]
    fn unread(&self) -> UnreadValues<T> {
        let Some(users) = self.users() else { return UnreadValues::default() };
        let _writing = users.writing.lock();
        self.take_unread(users)
    }

    /// Waits until replaced values have no readers, and returns them. It gives up after a few attempts, so it
    /// serves values whose readers are quick; and at once if the calling thread is a reader itself.
    pub fn settle(&self) -> UnreadValues<T> {
        const TRIES: usize = if cfg!(loom) { 2 } else { 10 };
        let backoff = Backoff::default();
        for _ in 0..TRIES {
            let unread = self.unread();
            if !unread.is_empty() || !self.has_replaced() || self.is_read_here() {
                return unread;
            }
            backoff.wait();
        }
        UnreadValues::default()
    }

    /// Returns `true` if the calling thread is a reader. Not known of threads that share a slot.
    fn is_read_here(&self) -> bool {
        let count = |slot: ThreadSlot| self.users()?.readers.get(slot.index());
        // Relaxed: the thread's own count.
        thread_slot::owned().and_then(count).is_some_and(|count| count.load(Ordering::Relaxed) != 0)
    }

    /// Takes the replaced values if no reader is counted, and nothing otherwise. The caller has the writers'
    /// lock.
    fn take_unread(&self, users: &Users) -> UnreadValues<T> {
        // Each load comes after the swap and its fence: both happened under the lock that this thread holds.
        // A reader that counts later gets the new value.
        let is_read = users.readers.iter().any(|count| count.load(Ordering::SeqCst) != 0);
        let unread = if is_read {
            ptr::null_mut()
        } else {
            // Not a swap: the lock orders it, and other threads only look whether it is null.
            let all = self.replaced.load(Ordering::Relaxed);
            self.replaced.store(ptr::null_mut(), Ordering::Relaxed);
            all
        };
        UnreadValues::of(unread)
    }
}

impl<T> Drop for SwapCell<T> {
    fn drop(&mut self) {
        // Relaxed: access is exclusive. Readers borrow the cell, so none is left.
        let lists = [&self.current, &self.replaced];
        let [current, replaced] = lists.map(|list| list.swap(ptr::null_mut(), Ordering::Relaxed));
        let users = NonNull::new(self.users.swap(ptr::null_mut(), Ordering::Relaxed));
        // SAFETY: from `Box::into_raw` (`new_users`), and no caller borrows the cell.
        drop(users.map(|users| unsafe { Box::from_raw(users.as_ptr()) }));
        // The link of the current value is null.
        drop([current, replaced].map(|list| UnreadValues::of(list)));
    }
}

impl<T> Default for SwapCell<T> {
    fn default() -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            replaced: AtomicPtr::new(ptr::null_mut()),
            users: StdAtomicPtr::default(),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for SwapCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|value| Some(value).fmt(f)).unwrap_or_else(|| None::<&T>.fmt(f))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_replaced_value_is_dropped_after_its_last_reader() {
        let (cell, value) = (SwapCell::default(), Arc::new(7));
        assert!(cell.is_empty() && cell.set(Some(Arc::clone(&value))).is_empty());
        let read = cell.with(|read| {
            assert!(cell.set(None).is_empty(), "it has a reader");
            assert_eq!((**read, Arc::strong_count(&value)), (7, 2));
            cell.release_replaced();
            assert_eq!(Arc::strong_count(&value), 2, "it has a reader");
        });
        assert!(read.is_some());
        cell.release_replaced();
        assert!(cell.is_empty() && Arc::strong_count(&value) == 1);
        for _ in 0..1000 {
            drop(cell.set(Some(Arc::clone(&value))));
        }
        assert_eq!(Arc::strong_count(&value), 2);
        let unread = cell.set(Some(Arc::clone(&value)));
        assert!(!unread.is_empty() && Arc::strong_count(&value) == 3, "the caller drops it");
        drop(unread);
        assert_eq!(Arc::strong_count(&value), 2);
        assert!(cell.set_if(None, |now| now.is_none()).is_err() && !cell.is_empty());
        drop(cell);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_thread_does_not_wait_for_its_own_read() {
        let cell = SwapCell::default();
        drop(cell.set(Some(1)));
        // In the slot of a thread's own, which it has unless there are many.
        let has_slot = thread_slot::index() < OWNED;
        let elsewhere = || std::thread::scope(|scope| scope.spawn(|| cell.is_read_here()).join().unwrap());
        let read = cell.with(|_| (cell.is_read_here(), elsewhere()));
        assert_eq!(read, Some((has_slot, false)));
        assert!(!cell.is_read_here());
    }

    #[test]
    fn readers_and_a_writer_on_threads() {
        let (cell, done) = (SwapCell::<Arc<i32>>::default(), AtomicBool::new(false));
        let value = Arc::new(41);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        cell.with(|value| assert_eq!(**value, 41));
                    }
                });
            }
            for round in 0..if cfg!(miri) { 50 } else { 5000 } {
                drop(cell.set((round % 3 != 0).then(|| Arc::new(41))));
            }
            drop(cell.set(Some(Arc::clone(&value))));
            done.store(true, Ordering::Relaxed);
        });
        drop(cell.set(None));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
