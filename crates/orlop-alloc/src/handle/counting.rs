//! Engines that count their own blocks: the trait, and its functions as the pointers that a cell calls.

use crate::{Allocator, RawBlock, Request, Result};
use orlop_sync::{BlockCounter, OwnerState};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// An engine that counts its blocks itself, in the slots where it caches them, so that a cached allocation
/// enters one slot and not two. A handle over such an engine keeps no counters of its own.
///
/// The engine returns [`Counting::new`] from [`Allocator::counting`]; without that, the handle counts too.
///
/// # Safety
///
/// 1. Every block that `allocate` or `take_cached` hands out is counted in, and every block that
///    `deallocate`, `deallocate_counted`, `deallocate_raw` or `give_cached` takes back is counted out, in the
///    one counter that `counter` returns and `close` closes.
/// 2. `deallocate_counted` and `close` return [`OwnerState::Unused`] only if that counter did.
/// 3. The promises of [`Allocator`] hold for `take_cached` as for `allocate`.
/// 4. `counter` and its sums take no lock and drop nothing.
pub unsafe trait CountingEngine: Allocator + Sized {
    /// Returns the counter.
    fn counter(&self) -> &dyn BlockCounter;

    /// Frees a block like [`Allocator::deallocate`], and returns [`OwnerState::Unused`] if it was the last
    /// one after [`CountingEngine::close`].
    ///
    /// It takes a pointer, because another thread may destroy the engine as soon as the block is counted out,
    /// while this call is still returning: a reference parameter would have to stay valid until then. The
    /// same holds for functions that this one calls. A local reference may be used until the block is counted
    /// out.
    ///
    /// # Errors
    ///
    /// As for [`Allocator::deallocate`]; the block then stays counted.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::deallocate`] of `this`, which is valid until the block is counted out. After
    /// [`OwnerState::Unused`] the engine must not be used.
    unsafe fn deallocate_counted(this: NonNull<Self>, block: RawBlock) -> Result<OwnerState>;

    /// Closes the counter: see [`ShardedCounters::close`](orlop_sync::ShardedCounters::close). It takes a
    /// pointer for the same reason as [`CountingEngine::deallocate_counted`].
    ///
    /// # Safety
    ///
    /// No handle of the engine remains, and this is called once. After [`OwnerState::Unused`], from this call
    /// or from a later free, the caller destroys the engine.
    unsafe fn close(this: NonNull<Self>) -> OwnerState;

    /// Allocates a block from the calling thread's cache and counts it, without a lock, a shared write or
    /// waiting. `None` means that [`Allocator::allocate`] has to be called, which searches further; that is
    /// always so for zero bytes.
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        let _ = request;
        None
    }

    /// Frees a block into the calling thread's cache and counts it out, without a change of a region. `Some`
    /// returns the block unchanged: the caller then passes it to [`CountingEngine::deallocate_counted`]. That
    /// is always so if the block could be the last one. It takes a pointer for the same reason as
    /// `deallocate_counted`.
    ///
    /// # Safety
    ///
    /// As for [`CountingEngine::deallocate_counted`]. After `None` the engine may already be destroyed.
    unsafe fn give_cached(this: NonNull<Self>, block: RawBlock) -> Option<RawBlock> {
        let _ = this;
        Some(block)
    }
}

/// How a handle uses an engine of type `A` that counts its own blocks.
pub struct Counting<A: ?Sized> {
    functions: CountingFns,
    engine: PhantomData<fn(&A)>,
}

impl<A: CountingEngine> Counting<A> {
    /// Returns the functions of the engine.
    #[must_use]
    pub fn new() -> Self {
        Self { functions: CountingFns::of::<A>(), engine: PhantomData }
    }
}

impl<A: CountingEngine> Default for Counting<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: ?Sized> fmt::Debug for Counting<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting").finish_non_exhaustive()
    }
}

/// The functions of a [`CountingEngine`] without its type. Each is called with the address of an engine of
/// the type that they were made for, and under the obligations of the trait's function.
#[derive(Clone, Copy)]
pub(super) struct CountingFns {
    pub(super) take_cached: unsafe fn(NonNull<()>, &Request) -> Option<RawBlock>,
    pub(super) give_cached: unsafe fn(NonNull<()>, RawBlock) -> Option<RawBlock>,
    pub(super) deallocate_counted: unsafe fn(NonNull<()>, RawBlock) -> Result<OwnerState>,
    pub(super) close: unsafe fn(NonNull<()>) -> OwnerState,
    pub(super) counter: unsafe fn(NonNull<()>) -> NonNull<dyn BlockCounter>,
}

impl CountingFns {
    /// Returns the functions of an allocator, if it counts its own blocks.
    pub(super) fn of_allocator<A: Allocator>() -> Option<Self> {
        A::counting().map(|counting| counting.functions)
    }

    fn of<A: CountingEngine>() -> Self {
        Self {
            // SAFETY: an engine of this type is at the address, for the whole call (guaranteed by the
            // caller).
            take_cached: |engine, request| unsafe { engine.cast::<A>().as_ref() }.take_cached(request),
            // SAFETY: an engine of this type is at the address; the rest is guaranteed by the caller.
            give_cached: |engine, block| unsafe { A::give_cached(engine.cast(), block) },
            // SAFETY: as above.
            deallocate_counted: |engine, block| unsafe { A::deallocate_counted(engine.cast(), block) },
            // SAFETY: as above.
            close: |engine| unsafe { A::close(engine.cast()) },
            // SAFETY: as for `take_cached`.
            counter: |engine| NonNull::from(unsafe { engine.cast::<A>().as_ref() }.counter()),
        }
    }
}

/// Implements `counter` and `close` of a [`CountingEngine`] whose blocks and handles are counted in the field
/// `$counters`, an [`orlop_sync::ShardedCounters`].
macro_rules! counted_by {
    ($counters:ident) => {
        fn counter(&self) -> &dyn ::orlop_sync::BlockCounter {
            &self.$counters
        }

        unsafe fn close(this: ::std::ptr::NonNull<Self>) -> ::orlop_sync::OwnerState {
            // SAFETY: the engine exists until it is closed (guaranteed by the caller).
            let counters = ::std::ptr::NonNull::from(unsafe { &this.as_ref().$counters });
            // SAFETY: guaranteed by the caller.
            unsafe { ::orlop_sync::ShardedCounters::close(counters) }
        }
    };
}
pub(crate) use counted_by;

/// Implements `counting`, `set_statistics` and `deallocate` of [`Allocator`] for an engine with
/// [`counted_by`].
macro_rules! counts_itself {
    ($counters:ident) => {
        fn counting() -> Option<$crate::engine_support::Counting<Self>> {
            Some($crate::engine_support::Counting::new())
        }

        fn set_statistics(&mut self, on: bool) {
            self.$counters.set_counted(on);
        }

        unsafe fn deallocate(&self, block: $crate::engine_support::RawBlock) -> $crate::Result<()> {
            let this = ::std::ptr::NonNull::from(self);
            // SAFETY: guaranteed by the caller.
            unsafe { $crate::handle::CountingEngine::deallocate_counted(this, block) }.map(|_| ())
        }
    };
}
pub(crate) use counts_itself;
