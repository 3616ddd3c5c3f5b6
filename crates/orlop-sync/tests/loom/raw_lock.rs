//! `lock.*`: one thread at a time has the lock, sees what the one before did, and none sleeps for ever: loom
//! reports threads that all wait.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use orlop_sync::RawLock;

/// A number behind a lock.
struct Locked {
    lock: RawLock,
    number: UnsafeCell<u32>,
}

// SAFETY: the number is used under the lock only.
unsafe impl Sync for Locked {}

impl Locked {
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: RawLock::new(), number: UnsafeCell::new(0) })
    }

    fn increment(&self) -> u32 {
        self.lock.lock();
        self.increment_and_unlock()
    }

    /// Increments the number, which this thread has locked.
    fn increment_and_unlock(&self) -> u32 {
        // SAFETY: this thread has the lock.
        let number = self.number.with_mut(|number| unsafe {
            *number += 1;
            *number
        });
        // SAFETY: as above.
        unsafe { self.lock.unlock() };
        number
    }
}

#[test]
fn two_threads_exclude_each_other_and_wake_each_other() {
    loom::model(|| {
        let locked = Locked::new();
        let other = {
            let locked = Arc::clone(&locked);
            thread::spawn(move || [locked.increment(), locked.increment()])
        };
        locked.increment();
        let [first, second] = other.join().unwrap();
        assert!(first < second);
        assert_eq!(locked.increment(), 4);
    });
}

#[test]
fn three_threads_wait_in_turns() {
    loom::model(|| {
        let locked = Locked::new();
        let others = [0, 1].map(|_| {
            let locked = Arc::clone(&locked);
            thread::spawn(move || locked.increment())
        });
        locked.increment();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(locked.increment(), 4);
    });
}

#[test]
fn a_thread_that_does_not_wait_is_excluded_too() {
    loom::model(|| {
        let locked = Locked::new();
        let other = {
            let locked = Arc::clone(&locked);
            thread::spawn(move || locked.lock.try_lock().then(|| locked.increment_and_unlock()).is_some())
        };
        locked.increment();
        let entered = other.join().unwrap();
        assert_eq!(locked.increment(), 2 + u32::from(entered));
    });
}
