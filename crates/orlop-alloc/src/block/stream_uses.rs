//! The set of streams that used a block, in one word, and which of them are ordered after the block's own.
//!
//! A block is used by the stream that it was allocated for. Other streams are the exception, recorded by the
//! thread that launches work on them (`record_stream` in PyTorch). The set must therefore be shareable and
//! cost nothing when empty: it is one word, zero on a CPU. A recorded stream is a node pushed at the head of
//! a list. The list only grows while the block is shared, and its single owner frees it.
//!
//! Two facts are kept apart. A stream that is *recorded* uses the block: its reuse waits for the stream. A
//! stream that is *ordered* waited for the block's own stream, so that its next work may begin at once. Users
//! record streams; only what has made a stream wait notes that it is ordered.
//!
//! Each use walks the list: blocks are used by a few streams. `n` of them cost `n²` steps to record.
//!
//! # Ordering
//!
//! A link is written before it is published and never changed after (`streams.push`, release). A thread that
//! walks the list loads the head with acquire (`streams.walk`, `streams.again`, `streams.iter`); older nodes
//! were published before it. That a stream is ordered is stored after the call that made it wait
//! (`streams.order`, release), and work that relies on it is submitted after the load (`streams.ordered`,
//! acquire).

use orlop_core::StreamId;
use orlop_sync::{
    UnsafeCell,
    atomic::{AtomicBool, AtomicPtr, Ordering},
    ordering,
};
use std::{fmt, ptr};

/// A grow-only set of [`StreamId`]s. Empty costs one word and no allocation.
pub struct StreamUses {
    /// Invariant: null, or a list of nodes from `Box::into_raw` that are not freed while `self` is shared.
    head: AtomicPtr<Node>,
}

struct Node {
    /// In a cell, so that loom checks that no node is read before it is written.
    link: UnsafeCell<Link>,
    /// Whether the stream waited for the block's own.
    is_ordered: AtomicBool,
}

#[derive(Clone, Copy)]
struct Link {
    /// `None` stands for work that could not be waited for.
    stream: Option<StreamId>,
    next: *mut Node,
}

impl Node {
    fn new(stream: Option<StreamId>, is_ordered: bool) -> Self {
        let link = UnsafeCell::new(Link { stream, next: ptr::null_mut() });
        Self { link, is_ordered: AtomicBool::new(is_ordered) }
    }

    /// Sets the next node. Called before publication only.
    fn link_to(&self, next: *mut Self) {
        // SAFETY: the node is not published, so only the thread that made it has access.
        self.link.with_mut(|link| unsafe { (*link).next = next });
    }

    fn read(&self) -> Link {
        // SAFETY: nodes are written only before they are published, and readers reach them after that; see
        // `walk`.
        self.link.with(|link| unsafe { *link })
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
        self.insert(Some(stream), false)
    }

    /// Adds `stream`, and notes that it waited for the block's own stream. The set of a block is only reached
    /// through [`Block::acquire_for`](crate::Block::acquire_for), which makes it wait.
    pub fn order(&self, stream: StreamId) {
        self.insert(Some(stream), true);
    }

    /// Returns `true` if `stream` waited for the block's own stream.
    pub fn is_ordered(&self, stream: StreamId) -> bool {
        let node = self.nodes().find(|node| node.read().stream == Some(stream));
        node.is_some_and(|node| node.is_ordered.load(ordering!("streams.ordered", Acquire)))
    }

    /// Returns `true` if the stream was not in the set.
    fn insert(&self, stream: Option<StreamId>, is_ordered: bool) -> bool {
        let mut node: Option<Box<Node>> = None;
        let mut head = self.head.load(ordering!("streams.walk", Acquire));
        loop {
            // SAFETY: `head` was loaded from this set, which is borrowed.
            if let Some(known) = unsafe { Self::walk(head) }.find(|known| known.read().stream == stream) {
                if is_ordered {
                    known.is_ordered.store(true, ordering!("streams.order", Release));
                }
                return false;
            }
            let new = node.take().unwrap_or_else(|| Box::new(Node::new(stream, is_ordered)));
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
        self.insert(None, false);
    }

    /// Returns `true` if work on the block could not be waited for.
    #[inline]
    pub(crate) fn is_unfinished(&self) -> bool {
        !self.is_empty() && self.has_unfinished()
    }

    #[cold]
    fn has_unfinished(&self) -> bool {
        self.nodes().any(|node| node.read().stream.is_none())
    }

    /// Returns the streams recorded so far, latest first.
    pub fn iter(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.nodes().filter_map(|node| node.read().stream)
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let head = self.head.load(ordering!("streams.iter", Acquire));
        // SAFETY: loaded from this set, which is borrowed for as long as the nodes.
        unsafe { Self::walk(head) }
    }

    /// Returns the nodes from one on.
    ///
    /// # Safety
    ///
    /// `head` was loaded with acquire from the head of a set that is borrowed for `'a`.
    unsafe fn walk<'a>(head: *mut Node) -> impl Iterator<Item = &'a Node> {
        let mut next = head;
        std::iter::from_fn(move || {
            // SAFETY: `next` is null or a published node: it was read from `head` with acquire, or from a
            // node that was. Links of published nodes do not change, and no node is freed while the set is
            // shared, which the borrow ensures.
            let node = unsafe { next.as_ref() }?;
            next = node.read().next;
            Some(node)
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

// SAFETY: links are immutable once published and hold a `Copy` id; the rest is atomic.
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
