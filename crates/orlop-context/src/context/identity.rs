//! The id of a context, by which memory refers to the context that allocated it.
//!
//! A tensor must not keep its context alive: a callback or a cache that belongs to the context may hold the
//! tensor, and neither would ever be dropped. Nor can each storage count a reference, because all threads
//! would change that count. So storages keep the id, which is copied, and look the context up when they need
//! memory again.

use super::{Context, Inner, scope};
use orlop_alloc::Block;
use orlop_alloc::engine_support::ContextHandle as _;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The contexts that exist.
static CONTEXTS: Mutex<BTreeMap<ContextId, Weak<Inner>>> = Mutex::new(BTreeMap::new());

/// The id of a context. It is unique in the process and never reused, and keeps nothing alive.
///
/// ```
/// use orlop_context::Context;
///
/// let context = Context::new();
/// let id = context.id();
/// id.scope(|| assert!(Context::current().same_as(&context)));
/// drop(context);
/// assert!(id.context().is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(u64);

impl ContextId {
    /// The id of no context.
    pub const NONE: Self = Self(0);

    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the numbers only need to differ.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number, from 1; 0 for [`ContextId::NONE`].
    #[inline]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the id with this number.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Returns the context that a block's allocator serves, or that last used it for a request; the thread's
    /// current one if no context knows the allocator.
    #[must_use]
    pub fn of_block(block: &Block) -> Self {
        let known = block.allocator().map(|allocator| Self(allocator.context_number()));
        let known = known.filter(|&known| known != Self::NONE && contexts().contains_key(&known));
        known.unwrap_or_else(|| Context::with_current(Context::id))
    }

    /// Returns the context, if it exists.
    #[must_use]
    pub fn context(self) -> Option<Context> {
        contexts().get(&self)?.upgrade().map(|inner| Context { inner })
    }

    /// Runs `f` with the context as the thread's current one. If it no longer exists, nothing changes for
    /// `f`.
    pub fn scope<R>(self, f: impl FnOnce() -> R) -> R {
        if self == Self::NONE || scope::is_current(self) {
            return f();
        }
        match self.context() {
            Some(context) => context.scope(f),
            None => f(),
        }
    }
}

impl Context {
    /// Returns the id of the context.
    #[inline]
    #[must_use]
    pub fn id(&self) -> ContextId {
        self.inner.id
    }
}

/// Returns the context, which its id leads to from now on.
pub(super) fn entered(inner: Arc<Inner>) -> Context {
    contexts().insert(inner.id, Arc::downgrade(&inner));
    Context { inner }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let former = contexts().remove(&self.id);
        drop(former);
    }
}

fn contexts() -> MutexGuard<'static, BTreeMap<ContextId, Weak<Inner>>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}
