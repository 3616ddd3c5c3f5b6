//! Sleeping while a word has a value.

pub(super) use self::imp::Parking;

/// The kernel compares and sleeps in one step (`futex(2)`). It needs nothing beside the word.
#[cfg(all(target_os = "linux", not(loom)))]
mod imp {
    use std::ptr;
    use std::sync::atomic::AtomicU32;

    /// Threads that sleep while a word has a value.
    #[derive(Debug)]
    pub(in super::super) struct Parking;

    impl Parking {
        pub(in super::super) fn new() -> Self {
            Self
        }

        /// Sleeps while `word` has this value, until it is woken. May return early.
        pub(in super::super) fn wait_while(&self, word: &AtomicU32, value: u32) {
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            let forever = ptr::null::<libc::timespec>();
            // SAFETY: the word is borrowed, and aligned to four bytes; the kernel only reads it. All errors
            // mean that it has another value, or an interruption: the caller looks again.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, forever) };
        }

        /// Wakes a thread that sleeps. The word was changed before.
        pub(in super::super) fn wake_one(&self, word: &AtomicU32) {
            let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the call takes an address and two numbers, and accesses no memory of this program.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
        }
    }
}

/// Elsewhere threads look again after a short time. What they would sleep in could be locked in the child of
/// a `fork`, by a thread that does not exist there.
#[cfg(not(any(target_os = "linux", loom)))]
mod imp {
    use std::sync::atomic::AtomicU32;
    use std::thread;
    use std::time::Duration;

    /// Threads that sleep while a word has a value.
    #[derive(Debug)]
    pub(in super::super) struct Parking;

    impl Parking {
        pub(in super::super) fn new() -> Self {
            Self
        }

        /// Sleeps for a moment.
        pub(in super::super) fn wait_while(&self, _word: &AtomicU32, _value: u32) {
            thread::sleep(Duration::from_micros(20));
        }

        /// Does nothing.
        pub(in super::super) fn wake_one(&self, _word: &AtomicU32) {}
    }
}

/// A mutex orders the comparison and the change: a thread that wakes others locks it after the change, so
/// that a sleeping thread has either seen the change or is asleep.
#[cfg(loom)]
mod imp {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    /// Threads that sleep while a word has a value.
    #[derive(Debug)]
    pub(in super::super) struct Parking {
        asleep: Mutex<()>,
        changed: Condvar,
    }

    impl Parking {
        pub(in super::super) fn new() -> Self {
            Self { asleep: Mutex::new(()), changed: Condvar::new() }
        }

        /// Sleeps while `word` has this value, until it is woken. May return early.
        pub(in super::super) fn wait_while(&self, word: &AtomicU32, value: u32) {
            let asleep = self.asleep.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if word.load(Ordering::Relaxed) == value {
                drop(self.changed.wait(asleep));
            }
        }

        /// Wakes a thread that sleeps. The word was changed before.
        pub(in super::super) fn wake_one(&self, _word: &AtomicU32) {
            drop(self.asleep.lock());
            self.changed.notify_one();
        }
    }
}
