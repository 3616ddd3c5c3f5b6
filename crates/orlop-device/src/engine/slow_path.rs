//! The engine on its slow paths: growth, release and waits, which call the device without the engine's lock.
//!
//! A call that allocates, releases, maps or waits can take long, so [`SlowPath::call`] unlocks the engine
//! meanwhile, and other threads allocate cached memory and free blocks. One thread at a time is on a slow
//! path: the owner of the lock holds another one for that, the growth lock. So around a call
//!
//! 1. no other thread grows, releases, moves or waits: regions, reservations, pages and chunks without pages
//!    are as before;
//! 2. free chunks may be handed out, split and merged, and blocks freed. Chunks that a slow path needs after
//!    a call are taken out of their index before ([`ChunkState::Claimed`](super::ChunkState)), and nothing
//!    else changes them; indexes of others are stale, and are checked.
//!
//! Calls that do not wait stay under the lock: events are recorded and queried there, and streams are made to
//! wait for each other.

use super::Engine;
use crate::backing::{BackingError, CallFailure, DeviceBacking, GuardedDevice};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Exclusive access to an engine that can be given up for a call.
pub(crate) trait EngineLock<B: DeviceBacking> {
    fn engine(&self) -> &Engine<B>;

    fn engine_mut(&mut self) -> &mut Engine<B>;

    /// Calls `act` with the engine unlocked.
    fn unlocked(&mut self, act: &mut dyn FnMut());
}

/// An engine that its thread owns has no lock.
impl<B: DeviceBacking> EngineLock<B> for Engine<B> {
    fn engine(&self) -> &Engine<B> {
        self
    }

    fn engine_mut(&mut self) -> &mut Engine<B> {
        self
    }

    fn unlocked(&mut self, act: &mut dyn FnMut()) {
        act();
    }
}

/// An engine whose device can be called without its lock.
pub(crate) struct SlowPath<'a, B: DeviceBacking> {
    lock: &'a mut dyn EngineLock<B>,
}

impl<'a, B: DeviceBacking> SlowPath<'a, B> {
    /// The caller holds the growth lock, if the engine has one.
    pub(crate) fn new(lock: &'a mut dyn EngineLock<B>) -> Self {
        Self { lock }
    }

    /// Calls the device with the engine unlocked.
    pub(crate) fn call<R>(
        &mut self,
        call: impl FnOnce(&GuardedDevice<B>) -> Result<R, CallFailure>,
    ) -> Result<R, CallFailure> {
        let backing = Arc::clone(&self.backing);
        let mut call = Some(call);
        // A panic of the backing ends in its guard.
        let mut result = Err(CallFailure { call: "call", error: BackingError::Panicked });
        self.failures.are_others = true;
        self.lock.unlocked(&mut || {
            if let Some(call) = call.take() {
                result = call(&backing);
            }
        });
        self.failures.are_others = false;
        result
    }
}

impl<B: DeviceBacking> Deref for SlowPath<'_, B> {
    type Target = Engine<B>;

    fn deref(&self) -> &Engine<B> {
        self.lock.engine()
    }
}

impl<B: DeviceBacking> DerefMut for SlowPath<'_, B> {
    fn deref_mut(&mut self) -> &mut Engine<B> {
        self.lock.engine_mut()
    }
}
