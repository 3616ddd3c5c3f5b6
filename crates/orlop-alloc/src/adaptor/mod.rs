//! Small allocators over an upstream allocator, each of which adds one promise.
//!
//! | adaptor | what it adds | row |
//! |---|---|---|
//! | [`Limit`] | never more than so many granted bytes at a time | L11 |
//! | [`Statistics`] | counters with nested scopes | P17 |
//! | [`Tracking`] | sizes and ids by address, a raw deleter, the list of what is alive | T11, T4, P23 |
//! | [`Logging`] | a line for each allocation and free, switched at run time | T14 |
//! | [`Failing`] | failures where a test wants them | |
//! | [`Hardened`] | canaries, poison, quarantine, guard pages | |
//! | [`Retry`] | asks somebody to make room, then tries again | |
//! | [`Waiting`] | waits for others to return memory | T18 |
//! | [`Warn`] | says when memory gets large, a few times | T13 |
//!
//! Behaviour is added by stacking, so that an engine knows nothing of logs and limits and each adaptor can be
//! read on its own page. Every adaptor is an [`Allocator`] itself and hands upstream's blocks on as they are
//! ([`Tracking`] adds an id where upstream gives none, [`Hardened`] hands them on a little shorter), so that any order of stacking works.
//!
//! A block grows in place ([`Allocator::grow_in_place`]) where upstream's does, and each adaptor counts what is more. Two
//! refuse it, so that a block that becomes larger is a new one: over [`Failing`] it is a request, which the rules can fail;
//! over [`Hardened`] it moves, and what still writes to its old place is found.
//!
//! The upstream may be an engine or an [`AllocatorRef`](crate::AllocatorRef), of a known type or erased.
//!
//! ```
//! use orlop_alloc::adaptor::{Limit, Tracking};
//! use orlop_alloc::backing::System;
//! use orlop_alloc::engine::Direct;
//! use orlop_alloc::{AllocatorRef, Request};
//!
//! let allocator = AllocatorRef::new(Tracking::new(Limit::new(Direct::new(System::new()).erase(), 1 << 20)));
//! let block = allocator.allocate(&Request::new(1000))?;
//! assert_eq!(allocator.live().len(), 1);
//! assert!(allocator.allocate(&Request::new(2 << 20)).is_err());
//! # drop(block);
//! # Ok::<(), orlop_alloc::Error>(())
//! ```

use crate::Allocator;

/// Writes the named methods of [`Allocator`] as calls to the field `$inner`.
macro_rules! forward {
    ($inner:ident: $($method:ident),+ $(,)?) => { $(forward!(@$method $inner);)+ };
    (@name $inner:ident) => {
        fn name(&self) -> &str { self.$inner.name() }
    };
    (@device $inner:ident) => {
        fn device(&self) -> ::orlop_core::Device { self.$inner.device() }
    };
    (@usage $inner:ident) => {
        fn usage(&self) -> $crate::Usage { self.$inner.usage() }
    };
    (@reset_peak $inner:ident) => {
        fn reset_peak(&self) { self.$inner.reset_peak(); }
    };
    (@semantics $inner:ident) => {
        fn semantics(&self) -> $crate::Semantics { self.$inner.semantics() }
    };
    (@trim $inner:ident) => {
        fn trim(&self, target: u64) -> u64 { self.$inner.trim(target) }
    };
    (@find $inner:ident) => {
        fn find(&self, address: usize) -> Option<$crate::LookupResult> { self.$inner.find(address) }
    };
    (@has_tracked_sizes $inner:ident) => {
        fn has_tracked_sizes(&self) -> bool { self.$inner.has_tracked_sizes() }
    };
    (@has_raw_deleter $inner:ident) => {
        fn has_raw_deleter(&self) -> bool { self.$inner.has_raw_deleter() }
    };
    (@has_opaque_handles $inner:ident) => {
        fn has_opaque_handles(&self) -> bool { self.$inner.has_opaque_handles() }
    };
    (@set_safe_frontier $inner:ident) => {
        fn set_safe_frontier(&self, stamp: u64) { self.$inner.set_safe_frontier(stamp); }
    };
    (@describe $inner:ident) => {
        fn describe(&self, report: &mut $crate::OutOfMemory) { self.$inner.describe(report); }
        forward!(@tag_uses $inner);
        forward!(@is_over $inner);
    };
    (@tag_uses $inner:ident) => {
        fn tag_uses(&self) -> Vec<$crate::TagUse> { self.$inner.tag_uses() }
    };
    (@is_over $inner:ident) => {
        fn is_over(&self, other: &$crate::AllocatorRef) -> bool { self.$inner.is_over(other) }
    };
    (@watch_regions $inner:ident) => {
        fn watch_regions(&self, watch: &::std::sync::Arc<$crate::RegionWatch>) {
            self.$inner.watch_regions(watch);
        }
    };
    (@set_statistics $inner:ident) => {
        fn set_statistics(&mut self, on: bool) { self.$inner.set_statistics(on); }
    };
    (@allocated_size_slow $inner:ident) => {
        unsafe fn allocated_size_slow(&self, ptr: ::std::ptr::NonNull<u8>) -> Option<usize> {
            // SAFETY: the caller's promise; `allocate` hands out upstream's blocks unchanged.
            unsafe { self.$inner.allocated_size_slow(ptr) }
        }
    };
    (@device_memory $inner:ident) => {
        fn device_memory(&self) -> Option<$crate::DeviceMemory> { self.$inner.device_memory() }
    };
    (@verify $inner:ident) => {
        fn verify(&self) -> $crate::Result<()> { self.$inner.verify() }
    };
    (@deallocate $inner:ident) => {
        unsafe fn deallocate(&self, block: $crate::RawBlock) -> $crate::Result<()> {
            // SAFETY: the caller's promises; `allocate` hands out upstream's blocks unchanged.
            unsafe { self.$inner.deallocate(block) }
        }
    };
    (@grow_in_place $inner:ident) => {
        unsafe fn grow_in_place(&self, block: &mut $crate::RawBlock, bytes: usize) -> bool {
            // SAFETY: the caller's promise; `allocate` hands out upstream's blocks unchanged.
            unsafe { self.$inner.grow_in_place(block, bytes) }
        }
    };
    (@deallocate_raw $inner:ident) => {
        unsafe fn deallocate_raw(
            &self,
            ptr: ::std::ptr::NonNull<u8>,
            requested: Option<usize>,
        ) -> $crate::Result<$crate::LookupResult> {
            // SAFETY: the caller's promises; `allocate` hands out upstream's blocks unchanged.
            unsafe { self.$inner.deallocate_raw(ptr, requested) }
        }
    };
}

mod failing;
mod hardened;
mod hardening;
mod limit;
mod log_switch;
mod logging;
mod retry;
mod statistics;
mod tracking;
mod waiting;
mod warn;

pub use self::failing::{Failing, Rule};
pub use self::hardened::{Hardened, POISON};
pub use self::hardening::{HardenedBuilder, Hardening};
pub use self::limit::Limit;
pub use self::log_switch::LogSwitch;
pub use self::logging::{Action, LogRecord, Logging};
pub use self::retry::{Decision, Retry};
pub use self::statistics::{Counter, Counters, Statistics};
pub use self::tracking::{Live, TagTotal, Tracking};
pub use self::waiting::Waiting;
pub use self::warn::{TotalMemory, Warn, WarnBuilder, Warning};

/// The name of `adaptor` over `inner`: "limit(bfc)".
fn name_over(adaptor: &str, inner: &impl Allocator) -> Box<str> {
    format!("{adaptor}({})", inner.name()).into()
}
