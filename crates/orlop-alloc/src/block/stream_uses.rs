//! The set of streams that used a block, in one word.
//!
//! A block is used by the stream that it was allocated for. Other streams are the exception, recorded by the
//! thread that launches work on them (`record_stream` in PyTorch). The set must therefore be shareable and
//! cost nothing when empty: it is one word, zero on a CPU. A recorded stream is a node pushed at the head of
//! a list. The list only grows while the block is shared, and its single owner frees it.
//!
//! # Ordering
//!
//! A node is written before it is published and never changed after (`streams.push`, release). A thread that
//! walks the list loads the head with acquire (`streams.walk`, `streams.again`, `streams.iter`); older nodes
//! were published before it.

use orlop_core::StreamId;
use orlop_sync::{
    UnsafeCell,
    atomic::{AtomicPtr, Ordering},
    ordering,
};
use std::{fmt, ptr};

/// A grow-only set of [`StreamId`]s. Empty costs one word and no allocation.
pub struct StreamUses {
    /// Invariant: null, or a list of nodes from `Box::into_raw` that are not freed while `self` is shared.
    head: AtomicPtr<Node>,
}

/// In a cell, so that loom checks that no node is read before it is written.
struct Node(UnsafeCell<Link>);

#[derive(Clone, Copy)]
struct Link {
    stream: StreamId,
    next: *mut Node,
}

/// Stands for work of a stream that could not be waited for. No device has this default stream.
const UNFINISHED: StreamId = StreamId::from_raw(u64::MAX ^ (0x2105 << 48));

impl Node {
    fn new(stream: StreamId) -> Self {
        Self(UnsafeCell::new(Link { stream, next: ptr::null_mut() }))
    }

    /// Sets the next node. Called before publication only.
    fn link_to(&self, next: *mut Self) {
        // SAFETY: the node is not published, so only the thread that made it has access.
        self.0.with_mut(|link| unsafe { (*link).next = next });
    }

    fn read(&self) -> Link {
        // SAFETY: nodes are written only before they are published, and readers reach them after that; see
        // `walk`.
        self.0.with(|link| unsafe { *link })
    }
}

impl StreamUses {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns `true` if no stream was recorded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Adds `stream`. Returns `true` if it was not in the set. May be called from several threads at the same
    /// time.
    pub fn record(&self, stream: StreamId) -> bool {
        let mut node: Option<Box<Node>> = None;
        let mut head = self.head.load(ordering!("streams.walk", Acquire));
        loop {
            if Self::walk(head).any(|known| known == stream) {
                return false;
            }
            let new = node.take().unwrap_or_else(|| Box::new(Node::new(stream)));
            new.link_to(head);
            let raw = Box::into_raw(new);
            // A failed exchange returns a head whose nodes are read next: acquire, like the first load.
            match self.head.compare_exchange(
                head,
                raw,
                ordering!("streams.push", Release),
                ordering!("streams.again", Acquire),
            ) {
                Ok(_) => return true,
                Err(now) => {
                    // SAFETY: `raw` came from `Box::into_raw` above and was not published.
                    node = Some(unsafe { Box::from_raw(raw) });
                    head = now;
                }
            }
        }
    }

    /// Notes that work on the block may run for an unknown time, since waiting for it failed: the block is
    /// never reused.
    pub(crate) fn record_unfinished(&self) {
        self.record(UNFINISHED);
    }

    /// Returns `true` if work on the block could not be waited for.
    #[inline]
    pub(crate) fn is_unfinished(&self) -> bool {
        !self.is_empty() && self.has_unfinished()
    }

    #[cold]
    fn has_unfinished(&self) -> bool {
        self.all().any(|stream| stream == UNFINISHED)
    }

    /// Returns the streams recorded so far, latest first.
    pub fn iter(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.all().filter(|&stream| stream != UNFINISHED)
    }

    fn all(&self) -> impl Iterator<Item = StreamId> + '_ {
        Self::walk(self.head.load(ordering!("streams.iter", Acquire)))
    }

    fn walk<'a>(head: *mut Node) -> impl Iterator<Item = StreamId> + 'a {
        let mut next = head;
        std::iter::from_fn(move || {
            // SAFETY: `next` is null or a published node: it was read from `head` with acquire, or from a
            // node that was. Published nodes do not change and are not freed while the set is shared, which
            // the callers' borrow of `self` ensures.
            let link = unsafe { next.as_ref() }?.read();
            next = link.next;
            Some(link.stream)
        })
    }
}

impl Drop for StreamUses {
    #[inline]
    fn drop(&mut self) {
        // Exclusive access: moving the set here required synchronisation with every `record`.
        let mut next = self.head.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: by the invariant on `head` each node came from `Box::into_raw`; it is freed once, here.
            let node = unsafe { Box::from_raw(next) };
            next = node.read().next;
        }
    }
}

// SAFETY: nodes are immutable once published and hold a `Copy` id; the head is atomic.
unsafe impl Send for StreamUses {}
// SAFETY: as above; `record` and `iter` are the only shared operations and are ordered as the module
// documentation says.
unsafe impl Sync for StreamUses {}

impl Default for StreamUses {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StreamUses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
