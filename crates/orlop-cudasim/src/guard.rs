//! [`DriverGuard`]: the one lock around the driver.

use crate::driver::Driver;
use crate::state::host_thread::as_callback;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(Mutex::default);

/// Signalled when a host function ends: a thread may wait for its stream.
static PROGRESS: Condvar = Condvar::new();

/// The locked driver. Host functions run with the lock released.
#[derive(Debug)]
pub(crate) struct DriverGuard(Option<MutexGuard<'static, Driver>>);

impl Deref for DriverGuard {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        // `None` only within `unlocked` and `wait_for_progress`, which hold the unique borrow.
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("the driver is locked"),
        }
    }
}

impl DerefMut for DriverGuard {
    fn deref_mut(&mut self) -> &mut Driver {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("the driver is locked"),
        }
    }
}

impl DriverGuard {
    pub(crate) fn lock() -> Self {
        Self(Some(DRIVER.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Runs a host function without the lock, as the real driver runs it on a thread of its own.
    pub(crate) fn unlocked(&mut self, function: impl FnOnce()) {
        self.0 = None;
        as_callback(function);
        *self = Self::lock();
        PROGRESS.notify_all();
    }

    /// Lets other threads have the driver for a while.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.0 = None;
        std::thread::sleep(time);
        *self = Self::lock();
    }

    /// Waits until a host function on another thread has ended.
    pub(crate) fn wait_for_progress(&mut self) {
        self.0 = self.0.take().map(|guard| PROGRESS.wait(guard).unwrap_or_else(PoisonError::into_inner));
    }
}
