//! Rarely used data of a storage: the messages of refused accesses, the origin of later memory, the end of
//! planned memory, the streams that read it, and its borrowed parts.

use super::memory::Origin;
use crate::borrows::Parts;
use crate::error::Revocation;
use orlop_alloc::engine_support::DeviceOps;
use orlop_core::StreamId;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A message, or none; an origin, or none. Rarely set, and read only for an error or an allocation.
#[derive(Debug, Default)]
pub(super) struct Notes {
    message: Mutex<Option<Box<str>>>,
    origin: Mutex<Option<Arc<Origin>>>,
    /// Why an unbound storage has lost its memory, if a plan took it.
    revoked: Mutex<Option<Arc<Revocation>>>,
    /// The streams that may still read host memory, each with the operations that wait for it.
    readers: Mutex<DeviceReaders>,
    parts: Parts,
}

/// A stream and the operations of its device.
pub(super) type DeviceReader = (StreamId, Arc<dyn DeviceOps>);

#[derive(Debug, Default)]
struct DeviceReaders {
    streams: Vec<DeviceReader>,
    /// The number of calls that added one, including those for a stream that was in the list.
    added: u64,
    /// The number of threads that are submitting to one.
    submitting: usize,
}

/// Work is being submitted to a stream that is in the list of readers.
#[derive(Debug)]
pub(crate) struct Submission<'a>(&'a Notes);

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        lock(&self.0.readers).submitting -= 1;
    }
}

impl Notes {
    /// Returns the borrowed parts.
    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    pub(super) fn get(&self) -> Option<Box<str>> {
        lock(&self.message).clone()
    }

    pub(super) fn set(&self, message: &str) {
        *lock(&self.message) = Some(message.into());
    }

    pub(super) fn revoked(&self) -> Option<Arc<Revocation>> {
        lock(&self.revoked).clone()
    }

    /// Sets why the storage has lost its memory, and returns what was set.
    pub(super) fn replace_revoked(&self, revoked: Option<Arc<Revocation>>) -> Option<Arc<Revocation>> {
        std::mem::replace(&mut *lock(&self.revoked), revoked)
    }

    pub(super) fn origin(&self) -> Option<Arc<Origin>> {
        lock(&self.origin).clone()
    }

    /// Adds a stream that reads the memory, and calls `mark` before another thread can see it.
    pub(super) fn add_reader(
        &self,
        stream: StreamId,
        ops: &Arc<dyn DeviceOps>,
        mark: impl FnOnce(),
    ) -> Submission<'_> {
        let mut readers = lock(&self.readers);
        if !readers.streams.iter().any(|&(known, _)| known == stream) {
            readers.streams.push((stream, Arc::clone(ops)));
        }
        readers.added += 1;
        readers.submitting += 1;
        mark();
        Submission(self)
    }

    /// Returns the streams that read the memory, and how many times one was added. `None` while work is
    /// being submitted to one: it cannot be waited for yet.
    pub(super) fn readers(&self) -> Option<(Vec<DeviceReader>, u64)> {
        let readers = lock(&self.readers);
        (readers.submitting == 0).then(|| (readers.streams.clone(), readers.added))
    }

    /// Removes all streams and calls `unmark`, if none was added since `added` was returned.
    pub(super) fn remove_readers(&self, added: u64, unmark: impl FnOnce()) {
        let mut readers = lock(&self.readers);
        if readers.added == added {
            let done = std::mem::take(&mut readers.streams);
            unmark();
            drop(readers);
            // With no lock held: operations are user code.
            drop(done);
        }
    }

    /// Replaces the origin, and returns the previous one.
    pub(super) fn replace_origin(&self, origin: Option<Arc<Origin>>) -> Option<Arc<Origin>> {
        std::mem::replace(&mut *lock(&self.origin), origin)
    }
}

/// The notes of a cell, dropped out of line: most cells have none, and their drop stays short.
#[derive(Debug, Default)]
pub(super) struct BoxedNotes(ManuallyDrop<Box<Notes>>);

impl Deref for BoxedNotes {
    type Target = Notes;

    fn deref(&self) -> &Notes {
        &self.0
    }
}

impl Drop for BoxedNotes {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
