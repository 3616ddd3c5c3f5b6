//! A lock that is released without a locked instruction.
//!
//! A mutex of the standard library takes one locked instruction to lock and one to unlock, because the thread
//! that unlocks must learn whether others wait. On x86 such an instruction also waits for all stores before
//! it. Here unlocking stores a word and then reads another, the number of waiting threads; a thread that waits
//! changes that number and then reads the word. Of two threads that each write and then read, one must see
//! the other's write, which needs a full fence on both sides: the light one of an asymmetric pair, which costs
//! nothing, where the lock is released, and the heavy one where a thread is about to sleep anyway.
//!
//! A lock is not fair, as the standard library's is not: a thread that is running takes it before one that was
//! woken.
//!
//! # Ordering
//!
//! * `lock.unlock` (release) pairs with `lock.lock` (acquire): what was done under the lock is seen by the next
//!   thread under it.
//! * The number of waiting threads is ordered by the fences alone.

use super::atomic::{AtomicU32, Ordering};
use super::parking::Parking;
use super::{End, fence};
use crate::ordering;

const FREE: u32 = 0;
const LOCKED: u32 = 1;

/// How often the lock is read before a thread sleeps.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// A lock without data. Only the thread that locked it may unlock it.
#[derive(Debug)]
pub struct RawLock {
    state: AtomicU32,
    /// The number of threads that sleep, or are about to.
    waiting: AtomicU32,
    parking: Parking,
}

impl RawLock {
    /// Creates a lock that is free.
    pub fn new() -> Self {
        // So that `fence::light` works as a pair with `fence::heavy`, if it can.
        let _registered = fence::asymmetric();
        Self { state: AtomicU32::new(FREE), waiting: AtomicU32::new(0), parking: Parking::default() }
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
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return;
            }
            std::hint::spin_loop();
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Either a thread that unlocks sees the number, or this thread sees that the lock is free.
        fence::heavy();
        while !self.try_lock() {
            self.parking.wait_while(&self.state, LOCKED);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Unlocks the lock, and wakes a thread that waits for it.
    ///
    /// # Safety
    ///
    /// The calling thread has locked it, and has not unlocked it since.
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
        self.parking.wake_one(&self.state);
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
    }
}
