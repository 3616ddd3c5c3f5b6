//! A lock that is released without a locked instruction.
//!
//! A mutex of the standard library takes one locked instruction to lock and one to unlock, because the thread
//! that unlocks must learn whether others wait. On x86 such an instruction also waits for all stores before
//! it. Here unlocking stores a word and then reads another, the mark of threads that wait; a thread that
//! waits sets the mark and then looks at the word. Of two threads that each write and then read, one must see
//! the other's write, which needs a full fence on both sides: the light one of an asymmetric pair, which
//! costs nothing, where the lock is released, and the heavy one where a thread is about to sleep anyway.
//!
//! # Who wakes whom
//!
//! A thread that unlocks and sees the mark clears it, begins a new turn and wakes one thread. That thread
//! sets the mark again, when it gets the lock or before it sleeps, because others may sleep: so there is one
//! call of the system for each, as in the standard library, and not one for each unlock while threads sleep.
//!
//! A mark that was set just before it is cleared is not lost. The thread that set it has read the turn
//! before, and sleeps only while that turn lasts.
//!
//! The lock is not fair, as the standard library's is not: a thread that is running takes it before one that
//! was woken.
//!
//! # Ordering
//!
//! * `lock.unlock` (release) pairs with `lock.lock` (acquire): what was done under the lock is seen by the
//!   next thread under it.
//! * A turn begins with release and is read with acquire: a thread that reads the new turn sets the mark
//!   after it was cleared. Neither is named: loom orders the stores to one word as it executes them, so no
//!   model fails when they are weakened.
//! * Mark and state are ordered by the fences.

use super::atomic::{AtomicU32, Ordering};
use super::parking::Parking;
use super::{Backoff, End, fence};
use crate::ordering;

const FREE: u32 = 0;
const LOCKED: u32 = 1;

/// How often the lock is read before a thread sleeps.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

/// A lock without data. Only the thread that locked it may unlock it.
#[derive(Debug)]
pub struct RawLock {
    state: AtomicU32,
    /// Not zero if threads may sleep that no other thread is about to wake.
    waiting: AtomicU32,
    /// Threads sleep while this stays the same.
    turn: AtomicU32,
    parking: Parking,
}

impl RawLock {
    /// Creates a lock that is free.
    pub fn new() -> Self {
        // So that `fence::light` works as a pair with `fence::heavy`, if it can.
        let _registered = fence::asymmetric();
        Self {
            state: AtomicU32::new(FREE),
            waiting: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            parking: Parking::new(),
        }
    }

    /// Locks the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        let lock = ordering!("lock.lock", Acquire);
        self.state.compare_exchange(FREE, LOCKED, lock, Ordering::Relaxed).is_ok()
    }

    /// Locks the lock. Waits while it is locked.
    #[inline(always)]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        if self.spin() {
            return;
        }
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            self.waiting.store(1, Ordering::Relaxed);
            // Either a thread that unlocks sees the mark, or this thread sees that the lock is free.
            if !fence::try_heavy() {
                return self.poll();
            }
            if self.try_lock() {
                return;
            }
            self.parking.wait_while(&self.turn, turn);
            if self.spin() {
                // For the others that sleep.
                self.waiting.store(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Waits without sleeping until the lock is free, and locks it: the thread that unlocks may not see the
    /// mark.
    fn poll(&self) {
        let backoff = Backoff::default();
        while !self.try_lock() {
            backoff.wait();
        }
    }

    /// Waits for a short time. Returns `true` if the lock was free and is locked now.
    fn spin(&self) -> bool {
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Unlocks the lock, and wakes a thread that waits for it.
    ///
    /// # Safety
    ///
    /// 1. The calling thread has locked it, and has not unlocked it since.
    /// 2. The lock exists until the call returns, although another thread may have locked it before.
    #[inline(always)]
    pub unsafe fn unlock(&self) {
        self.state.store(FREE, ordering!("lock.unlock", Release));
        fence::light_or_full();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::Release);
        self.parking.wake_one(&self.turn);
    }

    /// Makes the lock free again. (A thread that waited before a `fork` does not exist in the child; its mark
    /// costs a call that wakes no thread.)
    ///
    /// # Safety
    ///
    /// The calling thread is the only one, and no guard of this lock is used any more.
    #[cfg(not(loom))]
    pub unsafe fn reset(&self) {
        self.state.store(FREE, Ordering::Relaxed);
    }
}

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RawLock {
    fn drop(&mut self) {
        self.state.end();
        self.waiting.end();
        self.turn.end();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// As in the child of a `fork`, where a thread that waits, or that has the lock, does not exist.
    #[test]
    fn threads_that_do_not_exist_leave_a_lock_that_works() {
        let lock = RawLock::new();
        assert!(lock.try_lock());
        lock.waiting.store(1, Ordering::Relaxed);
        // SAFETY: locked above.
        unsafe { lock.unlock() };
        assert!(lock.try_lock() && lock.waiting.load(Ordering::Relaxed) == 0);
        // SAFETY: no other thread has the lock, and nothing uses what it protects.
        unsafe { lock.reset() };
        assert!(lock.try_lock());
    }

    #[test]
    fn threads_that_sleep_are_woken() {
        let (lock, threads) = (&RawLock::new(), 4);
        let mut counter = 0;
        let pointer = std::sync::atomic::AtomicPtr::new(&raw mut counter);
        lock.lock();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..100 {
                        lock.lock();
                        // SAFETY: this thread has the lock, and the variable is used under it.
                        unsafe { *pointer.load(Ordering::Relaxed) += 1 };
                        // SAFETY: locked above.
                        unsafe { lock.unlock() };
                    }
                });
            }
            while lock.waiting.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            // SAFETY: this thread locked it.
            unsafe { lock.unlock() };
        });
        assert_eq!(counter, 100 * threads);
    }
}
