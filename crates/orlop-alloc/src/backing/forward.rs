//! [`forward_backing!`](crate::forward_backing): the methods of [`Backing`](super::Backing) that a wrapper
//! leaves to the backing inside.

/// Implements every method of [`Backing`](crate::backing::Backing) that a wrapper does not implement itself
/// as a call to the field `$inner`.
///
/// The methods after `except` are left out: those that the wrapper implements, and those whose default it
/// keeps. A wrapper that changes regions in `reserve` must not forward `commit`, which would bypass it:
/// without `reserve_addresses`, the default of which refuses, engines call neither. A method that the trait
/// gains later is forwarded by every wrapper.
///
/// ```
/// use orlop_alloc::backing::{Backing, Region, System};
/// use orlop_alloc::engine::Direct;
/// use orlop_alloc::{Allocator, Request, forward_backing};
/// use orlop_core::Alignment;
///
/// /// Refuses regions of more than 1 MiB.
/// #[derive(Debug)]
/// struct Small<B>(B);
///
/// // SAFETY: regions are the inner backing's, unchanged.
/// unsafe impl<B: Backing> Backing for Small<B> {
///     fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
///         if bytes <= 1 << 20 { self.0.reserve(bytes, align) } else { None }
///     }
///
///     forward_backing!(0; except reserve, reserve_addresses);
/// }
///
/// let allocator = Direct::new(Small(System::new())).into_ref();
/// assert!(allocator.allocate(&Request::new(1 << 20)).is_ok());
/// assert!(allocator.allocate(&Request::new(2 << 20)).is_err());
/// ```
#[macro_export]
macro_rules! forward_backing {
    ($inner:tt) => { $crate::forward_backing!($inner; except); };
    ($inner:tt; except $($own:ident),* $(,)?) => {
        $crate::__forwarded!(@each Backing $inner [$($own)*]
            reserve {
                fn(bytes: usize, align: $crate::__private::Alignment)
                    -> ::core::option::Option<$crate::backing::Region>
            }
            release { unsafe fn(region: $crate::backing::Region) }
            reserve_addresses {
                fn(capacity: usize, align: $crate::__private::Alignment)
                    -> ::core::option::Option<$crate::backing::Reservation>
            }
            commit_granularity { fn() -> $crate::__private::Alignment }
            commit { unsafe fn(of: &$crate::backing::Reservation, from: usize, to: usize) -> bool }
            decommit { unsafe fn(of: &$crate::backing::Reservation, from: usize, to: usize) }
            release_addresses { unsafe fn(of: $crate::backing::Reservation, committed: usize) }
            discard { unsafe fn(ptr: ::core::ptr::NonNull<u8>, bytes: usize) -> usize }
            region_bytes { unsafe fn(ptr: ::core::ptr::NonNull<u8>) -> ::core::option::Option<usize> }
            is_pinned { fn() -> bool }
            device { fn() -> $crate::__private::Device }
            access { fn() -> $crate::Access }
            name { fn() -> &str }
            node { fn() -> ::core::option::Option<u32> }
            zero { unsafe fn(ptr: ::core::ptr::NonNull<u8>, bytes: usize) -> bool }
        );
    };
}
