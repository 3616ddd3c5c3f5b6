//! [`forward_backing!`](crate::forward_backing): the methods of [`Backing`](super::Backing) that a wrapper
//! leaves to the backing inside; and what it shares with `forward!` of orlop-alloc.

/// Implements every method of [`Backing`](crate::backing::Backing) that a wrapper does not implement itself
/// as a call to the field `$inner`.
///
/// The methods after `except` are left out: those that the wrapper implements, and those whose default it
/// keeps. A wrapper that changes regions in `reserve` must not forward `commit`, which would bypass it:
/// without `reserve_addresses`, the default of which refuses, engines call neither. A method that the trait
/// gains later is forwarded by every wrapper.
///
/// ```
/// use orlop_core::Alignment;
/// use orlop_host::backing::{Backing, Region, System};
/// use orlop_host::forward_backing;
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
/// let backing = Small(System::new());
/// assert!(backing.reserve(2 << 20, Alignment::PLANNED).is_none());
/// let region = backing.reserve(1 << 20, Alignment::PLANNED).ok_or("no memory")?;
/// // SAFETY: reserved above, and not in use.
/// unsafe { backing.release(region) };
/// # Ok::<(), &str>(())
/// ```
#[macro_export]
macro_rules! forward_backing {
    ($inner:tt) => { $crate::forward_backing!($inner; except); };
    ($inner:tt; except $($own:ident),* $(,)?) => {
        $crate::__forwarded!(@each ($crate::backing::Backing) $inner [$($own)*]
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
            access { fn() -> $crate::backing::Access }
            name { fn() -> &str }
            node { fn() -> ::core::option::Option<u32> }
            zero { unsafe fn(ptr: ::core::ptr::NonNull<u8>, bytes: usize) -> bool }
        );
    };
}

/// Implements each method of the table that is not in the list of the wrapper's own, as a call to the
/// allocator or backing inside: a field, or (`*`) the pointee of a smart pointer.
#[doc(hidden)]
#[macro_export]
macro_rules! __forwarded {
    (@each $trait:tt $inner:tt $own:tt $($method:ident { $($signature:tt)* })+) => {
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
    (@unless wraps [wraps $($rest:ident)*] $($call:tt)*) => {};
    (@unless watch_regions [watch_regions $($rest:ident)*] $($call:tt)*) => {};
    (@unless on_shared [on_shared $($rest:ident)*] $($call:tt)*) => {};
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
    (@unless $method:ident [] ($($trait:tt)*) $inner:tt
        { fn($($argument:ident: $type:ty),*) $(-> $result:ty)? }) => {
        fn $method(&self $(, $argument: $type)*) $(-> $result)? {
            $($trait)*::$method($crate::__forwarded!(self $inner) $(, $argument)*)
        }
    };
    (@unless $method:ident [] ($($trait:tt)*) $inner:tt { mut fn($argument:ident: $type:ty) }) => {
        fn $method(&mut self, $argument: $type) {
            $($trait)*::$method(&mut self.$inner, $argument)
        }
    };
    (@unless $method:ident [] ($($trait:tt)*) $inner:tt
        { unsafe fn($($argument:ident: $type:ty),*) $(-> $result:ty)? }) => {
        unsafe fn $method(&self $(, $argument: $type)*) $(-> $result)? {
            // SAFETY: guaranteed by the caller; blocks and regions are those of the inner one, unchanged.
            unsafe { $($trait)*::$method($crate::__forwarded!(self $inner) $(, $argument)*) }
        }
    };
    ($this:ident *) => { &**$this };
    ($this:ident $field:tt) => { &$this.$field };
}
