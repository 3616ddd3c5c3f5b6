//! [`forward!`](crate::forward): the methods of [`Allocator`](crate::Allocator) that an adaptor leaves to its
//! upstream; and what it shares with [`forward_backing!`](crate::forward_backing).

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
        $crate::__forwarded!(@each Allocator $inner [$($own)*]
            deallocate { unsafe fn(block: $crate::RawBlock) -> $crate::Result<()> }
            grow_in_place { unsafe fn(block: &mut $crate::RawBlock, bytes: usize) -> bool }
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
            is_over { fn(other: &$crate::AllocatorRef) -> bool }
            watch_regions { fn(watch: &$crate::__private::Arc<$crate::RegionWatch>) }
            verify { fn() -> $crate::Result<()> }
        );
    };
}

/// Implements each method of the table that is not in the list of the wrapper's own, as a call to the
/// allocator or backing inside: a field, or (`*`) the pointee of a smart pointer.
#[doc(hidden)]
#[macro_export]
macro_rules! __forwarded {
    (@each $trait:ident $inner:tt $own:tt $($method:ident { $($signature:tt)* })+) => {
        $($crate::__forwarded!(@unless $method $own $trait $inner { $($signature)* });)+
    };
    (@unless deallocate [deallocate $($rest:ident)*] $($call:tt)*) => {};
    (@unless grow_in_place [grow_in_place $($rest:ident)*] $($call:tt)*) => {};
    (@unless device [device $($rest:ident)*] $($call:tt)*) => {};
    (@unless device_memory [device_memory $($rest:ident)*] $($call:tt)*) => {};
    (@unless name [name $($rest:ident)*] $($call:tt)*) => {};
    (@unless usage [usage $($rest:ident)*] $($call:tt)*) => {};
    (@unless reset_peak [reset_peak $($rest:ident)*] $($call:tt)*) => {};
    (@unless semantics [semantics $($rest:ident)*] $($call:tt)*) => {};
    (@unless trim [trim $($rest:ident)*] $($call:tt)*) => {};
    (@unless find [find $($rest:ident)*] $($call:tt)*) => {};
    (@unless has_tracked_sizes [has_tracked_sizes $($rest:ident)*] $($call:tt)*) => {};
    (@unless allocated_size_slow [allocated_size_slow $($rest:ident)*] $($call:tt)*) => {};
    (@unless deallocate_raw [deallocate_raw $($rest:ident)*] $($call:tt)*) => {};
    (@unless has_raw_deleter [has_raw_deleter $($rest:ident)*] $($call:tt)*) => {};
    (@unless has_opaque_handles [has_opaque_handles $($rest:ident)*] $($call:tt)*) => {};
    (@unless set_safe_frontier [set_safe_frontier $($rest:ident)*] $($call:tt)*) => {};
    (@unless set_statistics [set_statistics $($rest:ident)*] $($call:tt)*) => {};
    (@unless describe [describe $($rest:ident)*] $($call:tt)*) => {};
    (@unless tag_uses [tag_uses $($rest:ident)*] $($call:tt)*) => {};
    (@unless is_over [is_over $($rest:ident)*] $($call:tt)*) => {};
    (@unless watch_regions [watch_regions $($rest:ident)*] $($call:tt)*) => {};
    (@unless verify [verify $($rest:ident)*] $($call:tt)*) => {};
    (@unless reserve [reserve $($rest:ident)*] $($call:tt)*) => {};
    (@unless release [release $($rest:ident)*] $($call:tt)*) => {};
    (@unless reserve_addresses [reserve_addresses $($rest:ident)*] $($call:tt)*) => {};
    (@unless commit_granularity [commit_granularity $($rest:ident)*] $($call:tt)*) => {};
    (@unless commit [commit $($rest:ident)*] $($call:tt)*) => {};
    (@unless decommit [decommit $($rest:ident)*] $($call:tt)*) => {};
    (@unless release_addresses [release_addresses $($rest:ident)*] $($call:tt)*) => {};
    (@unless discard [discard $($rest:ident)*] $($call:tt)*) => {};
    (@unless region_bytes [region_bytes $($rest:ident)*] $($call:tt)*) => {};
    (@unless is_pinned [is_pinned $($rest:ident)*] $($call:tt)*) => {};
    (@unless access [access $($rest:ident)*] $($call:tt)*) => {};
    (@unless node [node $($rest:ident)*] $($call:tt)*) => {};
    (@unless zero [zero $($rest:ident)*] $($call:tt)*) => {};
    (@unless $method:ident [$other:ident $($rest:ident)*] $($call:tt)*) => {
        $crate::__forwarded!(@unless $method [$($rest)*] $($call)*);
    };
    (@unless $method:ident [] $trait:ident $inner:tt
        { fn($($argument:ident: $type:ty),*) $(-> $result:ty)? }) => {
        fn $method(&self $(, $argument: $type)*) $(-> $result)? {
            $crate::__private::$trait::$method($crate::__forwarded!(self $inner) $(, $argument)*)
        }
    };
    (@unless $method:ident [] $trait:ident $inner:tt { mut fn($argument:ident: $type:ty) }) => {
        fn $method(&mut self, $argument: $type) {
            $crate::__private::$trait::$method(&mut self.$inner, $argument)
        }
    };
    (@unless $method:ident [] $trait:ident $inner:tt
        { unsafe fn($($argument:ident: $type:ty),*) $(-> $result:ty)? }) => {
        unsafe fn $method(&self $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: guaranteed by the caller; blocks and regions are those of the inner one, unchanged.
            unsafe { $crate::__private::$trait::$method($crate::__forwarded!(self $inner) $(, $argument)*) }
        }
    };
    ($this:ident *) => { &**$this };
    ($this:ident $field:tt) => { &$this.$field };
}
