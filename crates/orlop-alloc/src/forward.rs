//! [`forward!`](crate::forward): the methods of [`Allocator`](crate::Allocator) that an adaptor leaves to its
//! upstream.

/// Implements every method of [`Allocator`](crate::Allocator) that an adaptor does not implement itself as a
/// call to the field `$inner`, or to the pointee of a smart pointer (`*`).
///
/// For adaptors whose `allocate` hands out the upstream's blocks unchanged. The methods after `except` are
/// left out: those that the adaptor implements, and those whose default it keeps. `allocate` is never
/// forwarded. Neither is `counting`: the handle over an adaptor counts. Nor is `into_ref`, which creates that
/// handle.
///
/// A method that the trait gains later is forwarded by every adaptor, so that none drops it by accident. The
/// testkit's `check_forwarding` finds an adaptor that drops one all the same.
///
/// ```
/// use orlop_alloc::backing::System;
/// use orlop_alloc::engine::Direct;
/// use orlop_alloc::engine_support::RawBlock;
/// use orlop_alloc::{Allocator, Request, Result};
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
    ($inner:tt) => { $crate::forward!($inner; except); };
    ($inner:tt; except $($own:ident),* $(,)?) => {
        $crate::__forwarded!(@each ($crate::Allocator) $inner [$($own)*]
            deallocate { unsafe fn(block: $crate::engine_support::RawBlock) -> $crate::Result<()> }
            grow_in_place { unsafe fn(block: &mut $crate::engine_support::RawBlock, bytes: usize) -> bool }
            device { fn() -> $crate::__private::Device }
            device_memory { fn() -> ::core::option::Option<$crate::DeviceMemory> }
            name { fn() -> &str }
            usage { fn() -> $crate::Usage }
            reset_peak { fn() }
            semantics { fn() -> $crate::Semantics }
            trim { fn(target: u64) -> u64 }
            find { fn(address: usize) -> ::core::option::Option<$crate::LookupResult> }
            has_tracked_sizes { fn() -> bool }
            allocated_size_slow {
                unsafe fn(ptr: ::core::ptr::NonNull<u8>) -> ::core::option::Option<usize>
            }
            deallocate_raw {
                unsafe fn(ptr: ::core::ptr::NonNull<u8>, requested: ::core::option::Option<usize>)
                    -> $crate::Result<$crate::LookupResult>
            }
            has_raw_deleter { fn() -> bool }
            has_opaque_handles { fn() -> bool }
            set_safe_frontier { fn(stamp: u64) }
            set_statistics { mut fn(on: bool) }
            describe { fn(report: &mut $crate::OutOfMemory) }
            tag_uses { fn() -> $crate::__private::Vec<$crate::TagUse> }
            wraps { fn(other: &$crate::AllocatorRef) -> bool }
            watch_regions { fn(watch: &$crate::__private::Arc<$crate::engine_support::RegionWatch>) }
            on_shared { fn(handle: &$crate::AllocatorRef) }
            verify { fn() -> $crate::Result<()> }
        );
    };
}
