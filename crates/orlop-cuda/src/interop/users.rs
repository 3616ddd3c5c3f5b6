//! [`BufferUsers`]: the streams that a buffer is used on beside its own.

use crate::device::DeviceStream;
use std::sync::{Mutex, PoisonError};

/// Keeps the streams that cudarc's functions use a buffer on.
///
/// A function of cudarc takes the address first and gives the stream its work later. If the last handle of
/// the stream were dropped in between, its id would stand for an event before that work, and the memory would
/// be reused too early. So the buffer is a handle too, until it is dropped or nothing else can use the
/// stream.
#[derive(Debug, Default)]
pub(super) struct BufferUsers(Mutex<Vec<DeviceStream>>);

impl BufferUsers {
    /// Keeps a stream. Others whose work is given are let go: a function that uses one has borrowed it from
    /// an owner.
    pub(super) fn keep(&self, stream: DeviceStream) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.iter().any(|kept| kept.id() == stream.id()) {
            drop(streams);
            return drop(stream);
        }
        let unused: Vec<_> = streams.extract_if(.., |kept| kept.is_only_owner()).collect();
        streams.push(stream);
        // Dropped with the list unlocked: the end of a stream can run code of a subscriber.
        drop(streams);
        drop(unused);
    }
}
