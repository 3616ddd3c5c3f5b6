//! The streams that used a block, in one word.
//!
//! A block is used by the stream it was allocated for; other streams are the exception, recorded by
//! whichever thread launches work on them (`record_stream` in PyTorch). So the set must be shareable and
//! must cost nothing when empty: one word, zero on a CPU. A recorded stream is a node pushed at the head of
//! a list; the list only grows while the block is shared and is taken down by its single owner.
//!
//! # Ordering
//!
//! A node is written before it is published and never changed after (`streams.push`, release). Whoever
//! walks the list loads the head with acquire (`streams.walk`), and older nodes were published before it.

use orlop_core::StreamId;
use orlop_sync::{
    UnsafeCell,
    atomic::{AtomicPtr, Ordering},
    ordering,
};
use std::{fmt, ptr};

/// A grow-only set of [`StreamId`]s. Empty costs one word and no allocation.
pub struct StreamUses {
    /// Invariant: null, or a list of nodes from `Box::into_raw` that no one frees while `self` is shared.
    head: AtomicPtr<Node>,
}

/// In a cell so that loom checks that nobody reads a node before it was written.
struct Node(UnsafeCell<Link>);

#[derive(Clone, Copy)]
struct Link {
    stream: StreamId,
    next: *mut Node,
}

impl Node {
    fn new(stream: StreamId) -> Self {
        Self(UnsafeCell::new(Link { stream, next: ptr::null_mut() }))
    }

    /// Only before publication.
    fn link_to(&self, next: *mut Self) {
        // SAFETY: the node is in its maker's box: nobody else knows it.
        self.0.with_mut(|link| unsafe { (*link).next = next });
    }

    fn read(&self) -> Link {
        // SAFETY: nodes are written before they are published and by no one after; see `walk`.
        self.0.with(|link| unsafe { *link })
    }
}

impl StreamUses {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Whether no stream was recorded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Adds `stream`; true if it was not there yet. From any thread, at the same time as others.
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
            // A failed exchange reads nodes of other threads next: acquire, like the first load.
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

    /// The streams recorded so far, latest first.
    pub fn iter(&self) -> impl Iterator<Item = StreamId> + '_ {
        Self::walk(self.head.load(ordering!("streams.iter", Acquire)))
    }

    fn walk<'a>(head: *mut Node) -> impl Iterator<Item = StreamId> + 'a {
        let mut next = head;
        std::iter::from_fn(move || {
            // SAFETY: `next` is null or a published node: it was read from `head` with acquire, or from a
            // node that was. Nodes are not changed after publication, and not freed while the set is
            // shared, which the callers' borrow of `self` proves.
            let link = unsafe { next.as_ref() }?.read();
            next = link.next;
            Some(link.stream)
        })
    }
}

impl Drop for StreamUses {
    #[inline]
    fn drop(&mut self) {
        // Exclusive access: whoever moved the set here synchronised with every `record`.
        let mut next = self.head.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: by the invariant on `head` each node came from `Box::into_raw` and is freed once, here.
            let node = unsafe { Box::from_raw(next) };
            next = node.read().next;
        }
    }
}

// SAFETY: nodes are immutable once published and hold a `Copy` id; the head is atomic.
unsafe impl Send for StreamUses {}
// SAFETY: as above; `record` and `iter` are the only shared operations and are ordered as the head of this
// file says.
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
