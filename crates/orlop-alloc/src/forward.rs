//! [`forward!`](crate::forward): the methods of [`Allocator`](crate::Allocator) that an adaptor leaves to its
//! upstream.

/// Implements every method of [`Allocator`](crate::Allocator) that an adaptor does not implement itself as a
/// call to the field `$inner`.
///
/// For adaptors whose `allocate` hands out the upstream's blocks unchanged. The methods after `except` are
/// left out: those that the adaptor implements, and those whose default it keeps. `allocate` is never
/// forwarded. Neither are the methods that count blocks (`counter`, `deallocate_counted`, `close`,
/// `take_cached`, `give_cached`): the handle over an adaptor counts. Nor is `into_ref`, which creates that
/// handle.
///
/// A method that the trait gains later is forwarded by every adaptor, so that none drops it by accident. The
/// testkit's `check_forwarding` finds an adaptor that drops one all the same.
///
/// ```
/// use orlop_alloc::backing::System;
/// use orlop_alloc::engine::Direct;
/// use orlop_alloc::{Allocator, RawBlock, Request, Result};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Counts requests.
/// #[derive(Debug)]
/// struct Requests<A> {
///     inner: A,
///     count: AtomicU64,
/// }
///
/// // SAFETY: blocks are the upstream's, unchanged, and return to it.
/// unsafe impl<A: Allocator> Allocator for Requests<A> {
///     fn allocate(&self, request: &Request) -> Result<RawBlock> {
///         self.count.fetch_add(1, Ordering::Relaxed);
///         self.inner.allocate(request)
///     }
///
///     fn name(&self) -> &str {
///         "requests"
///     }
///
///     orlop_alloc::forward!(inner; except name);
/// }
///
/// let counted = Requests { inner: Direct::new(System::new()), count: AtomicU64::new(0) };
/// let allocator = counted.into_ref();
/// drop(allocator.allocate(&Request::new(100))?);
/// assert_eq!(allocator.count.load(Ordering::Relaxed), 1);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[macro_export]
macro_rules! forward {
    ($inner:ident) => { $crate::forward!($inner; except); };
    ($inner:ident; except $($own:ident),* $(,)?) => {
        $crate::forward!(@each $inner [$($own)*] deallocate grow_in_place device device_memory name usage
            reset_peak semantics trim find has_tracked_sizes allocated_size_slow deallocate_raw
            has_raw_deleter has_opaque_handles set_safe_frontier set_statistics describe tag_uses is_over
            watch_regions verify);
    };
    (@each $inner:ident $own:tt $($method:ident)+) => { $($crate::forward!(@unless $method $inner $own);)+ };

    // A method that is in the list of the adaptor's own is left out.
    (@unless deallocate $inner:ident [deallocate $($rest:ident)*]) => {};
    (@unless grow_in_place $inner:ident [grow_in_place $($rest:ident)*]) => {};
    (@unless device $inner:ident [device $($rest:ident)*]) => {};
    (@unless device_memory $inner:ident [device_memory $($rest:ident)*]) => {};
    (@unless name $inner:ident [name $($rest:ident)*]) => {};
    (@unless usage $inner:ident [usage $($rest:ident)*]) => {};
    (@unless reset_peak $inner:ident [reset_peak $($rest:ident)*]) => {};
    (@unless semantics $inner:ident [semantics $($rest:ident)*]) => {};
    (@unless trim $inner:ident [trim $($rest:ident)*]) => {};
    (@unless find $inner:ident [find $($rest:ident)*]) => {};
    (@unless has_tracked_sizes $inner:ident [has_tracked_sizes $($rest:ident)*]) => {};
    (@unless allocated_size_slow $inner:ident [allocated_size_slow $($rest:ident)*]) => {};
    (@unless deallocate_raw $inner:ident [deallocate_raw $($rest:ident)*]) => {};
    (@unless has_raw_deleter $inner:ident [has_raw_deleter $($rest:ident)*]) => {};
    (@unless has_opaque_handles $inner:ident [has_opaque_handles $($rest:ident)*]) => {};
    (@unless set_safe_frontier $inner:ident [set_safe_frontier $($rest:ident)*]) => {};
    (@unless set_statistics $inner:ident [set_statistics $($rest:ident)*]) => {};
    (@unless describe $inner:ident [describe $($rest:ident)*]) => {};
    (@unless tag_uses $inner:ident [tag_uses $($rest:ident)*]) => {};
    (@unless is_over $inner:ident [is_over $($rest:ident)*]) => {};
    (@unless watch_regions $inner:ident [watch_regions $($rest:ident)*]) => {};
    (@unless verify $inner:ident [verify $($rest:ident)*]) => {};
    (@unless $method:ident $inner:ident [$other:ident $($rest:ident)*]) => {
        $crate::forward!(@unless $method $inner [$($rest)*]);
    };
    (@unless $method:ident $inner:ident []) => { $crate::forward!(@method $method $inner); };

    (@method deallocate $inner:ident) => {
        unsafe fn deallocate(&self, block: $crate::RawBlock) -> $crate::Result<()> {
            // SAFETY: guaranteed by the caller; `allocate` hands out the upstream's blocks unchanged.
            unsafe { $crate::Allocator::deallocate(&self.$inner, block) }
        }
    };
    (@method grow_in_place $inner:ident) => {
        unsafe fn grow_in_place(&self, block: &mut $crate::RawBlock, bytes: usize) -> bool {
            // SAFETY: guaranteed by the caller; `allocate` hands out the upstream's blocks unchanged.
            unsafe { $crate::Allocator::grow_in_place(&self.$inner, block, bytes) }
        }
    };
    (@method device $inner:ident) => {
        fn device(&self) -> $crate::__private::Device { $crate::Allocator::device(&self.$inner) }
    };
    (@method device_memory $inner:ident) => {
        fn device_memory(&self) -> ::core::option::Option<$crate::DeviceMemory> {
            $crate::Allocator::device_memory(&self.$inner)
        }
    };
    (@method name $inner:ident) => {
        fn name(&self) -> &str { $crate::Allocator::name(&self.$inner) }
    };
    (@method usage $inner:ident) => {
        fn usage(&self) -> $crate::Usage { $crate::Allocator::usage(&self.$inner) }
    };
    (@method reset_peak $inner:ident) => {
        fn reset_peak(&self) { $crate::Allocator::reset_peak(&self.$inner); }
    };
    (@method semantics $inner:ident) => {
        fn semantics(&self) -> $crate::Semantics { $crate::Allocator::semantics(&self.$inner) }
    };
    (@method trim $inner:ident) => {
        fn trim(&self, target: u64) -> u64 { $crate::Allocator::trim(&self.$inner, target) }
    };
    (@method find $inner:ident) => {
        fn find(&self, address: usize) -> ::core::option::Option<$crate::LookupResult> {
            $crate::Allocator::find(&self.$inner, address)
        }
    };
    (@method has_tracked_sizes $inner:ident) => {
        fn has_tracked_sizes(&self) -> bool { $crate::Allocator::has_tracked_sizes(&self.$inner) }
    };
    (@method allocated_size_slow $inner:ident) => {
        unsafe fn allocated_size_slow(&self, ptr: ::core::ptr::NonNull<u8>) -> ::core::option::Option<usize> {
            // SAFETY: guaranteed by the caller; `allocate` hands out the upstream's blocks unchanged.
            unsafe { $crate::Allocator::allocated_size_slow(&self.$inner, ptr) }
        }
    };
    (@method deallocate_raw $inner:ident) => {
        unsafe fn deallocate_raw(
            &self,
            ptr: ::core::ptr::NonNull<u8>,
            requested: ::core::option::Option<usize>,
        ) -> $crate::Result<$crate::LookupResult> {
            // SAFETY: guaranteed by the caller; `allocate` hands out the upstream's blocks unchanged.
            unsafe { $crate::Allocator::deallocate_raw(&self.$inner, ptr, requested) }
        }
    };
    (@method has_raw_deleter $inner:ident) => {
        fn has_raw_deleter(&self) -> bool { $crate::Allocator::has_raw_deleter(&self.$inner) }
    };
    (@method has_opaque_handles $inner:ident) => {
        fn has_opaque_handles(&self) -> bool { $crate::Allocator::has_opaque_handles(&self.$inner) }
    };
    (@method set_safe_frontier $inner:ident) => {
        fn set_safe_frontier(&self, stamp: u64) { $crate::Allocator::set_safe_frontier(&self.$inner, stamp); }
    };
    (@method set_statistics $inner:ident) => {
        fn set_statistics(&mut self, on: bool) { $crate::Allocator::set_statistics(&mut self.$inner, on); }
    };
    (@method describe $inner:ident) => {
        fn describe(&self, report: &mut $crate::OutOfMemory) {
            $crate::Allocator::describe(&self.$inner, report);
        }
    };
    (@method tag_uses $inner:ident) => {
        fn tag_uses(&self) -> $crate::__private::Vec<$crate::TagUse> {
            $crate::Allocator::tag_uses(&self.$inner)
        }
    };
    (@method is_over $inner:ident) => {
        fn is_over(&self, other: &$crate::AllocatorRef) -> bool {
            $crate::Allocator::is_over(&self.$inner, other)
        }
    };
    (@method watch_regions $inner:ident) => {
        fn watch_regions(&self, watch: &$crate::__private::Arc<$crate::RegionWatch>) {
            $crate::Allocator::watch_regions(&self.$inner, watch);
        }
    };
    (@method verify $inner:ident) => {
        fn verify(&self) -> $crate::Result<()> { $crate::Allocator::verify(&self.$inner) }
    };
}
