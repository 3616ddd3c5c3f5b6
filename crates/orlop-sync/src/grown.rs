//! A centre that threads take from, and that grows when it has nothing that fits.
//!
//! Growing means asking the operating system or a driver: microseconds to milliseconds. Holding the centre's
//! lock meanwhile stops every thread that only wants to return a block (PyTorch's allocator does so across
//! `cudaMalloc`). So growth has a lock of its own, taken *before* the centre's:
//!
//! 1. look in the centre under its lock; found: done;
//! 2. take the growth lock, then look again: a thread that grew while we waited has probably left enough;
//! 3. still nothing: ask the centre how much to get, let go of its lock, get it, take the lock again, add it
//!    and take our piece in the same breath, so that nobody snatches what we fetched.
//!
//! Threads that find the centre empty at the same moment thus gain one region, not one each, while others
//! take and return freely.
//!
//! # Ordering
//!
//! Two mutexes and no atomics. The order growth → centre is the only one; nobody holds the centre's lock
//! while waiting for growth.

use crate::primitives::{Mutex, MutexGuard};

/// What a centre must be able to do. The methods run under the centre's lock and must be short.
pub trait Centre {
    /// What is asked for.
    type Ask<'a>;
    /// What is handed out.
    type Got;
    /// What growth brings.
    type Gain;

    /// Takes a fitting piece, if there is one.
    fn take(&mut self, ask: &Self::Ask<'_>) -> Option<Self::Got>;

    /// Adds what growth brought.
    fn add(&mut self, gain: Self::Gain);
}

/// How a centre gets more. The steps run under the growth lock only, so they may be slow; each may lock the
/// centre for a moment.
pub trait Growth<C: Centre> {
    /// Why there is nothing more to be had.
    type Error;

    /// Gets something for `ask`, or says why not. May be called again if what it brought did not do.
    fn gain(&mut self, centre: &Mutex<C>, ask: &C::Ask<'_>) -> Result<C::Gain, Self::Error>;
}

/// A [`Centre`] with its two locks.
#[derive(Debug)]
pub struct Grown<C> {
    centre: Mutex<C>,
    growth: Mutex<()>,
}

impl<C: Centre> Grown<C> {
    /// Puts the locks around `centre`.
    pub fn new(centre: C) -> Self {
        Self { centre: Mutex::new(centre), growth: Mutex::new(()) }
    }

    /// The centre, locked. Do not wait for anything else while holding it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, C> {
        self.centre.lock()
    }

    /// Takes a piece, growing the centre if need be.
    ///
    /// # Errors
    ///
    /// What `growth` says when nothing more can be had.
    #[inline]
    pub fn take_or_grow<G: Growth<C>>(&self, ask: &C::Ask<'_>, growth: &mut G) -> Result<C::Got, G::Error> {
        // On a line of its own: the guard must be gone before growth begins.
        let found = self.lock().take(ask);
        match found {
            Some(got) => Ok(got),
            None => self.grow(ask, growth),
        }
    }

    #[cold]
    fn grow<G: Growth<C>>(&self, ask: &C::Ask<'_>, growth: &mut G) -> Result<C::Got, G::Error> {
        let _growing = self.growth.lock();
        if let Some(got) = self.lock().take(ask) {
            return Ok(got);
        }
        loop {
            let gain = growth.gain(&self.centre, ask)?;
            let mut centre = self.lock();
            centre.add(gain);
            if let Some(got) = centre.take(ask) {
                return Ok(got);
            }
        }
    }

    /// Keeps every thread from growing the centre until it is dropped.
    pub fn stop_growing(&self) -> MutexGuard<'_, ()> {
        self.growth.lock()
    }

    /// Runs `f` while no thread grows the centre: for giving regions back.
    pub fn while_not_growing<R>(&self, f: impl FnOnce(&Mutex<C>) -> R) -> R {
        let _growing = self.stop_growing();
        f(&self.centre)
    }
}
