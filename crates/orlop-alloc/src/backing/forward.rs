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
        $crate::forward_backing!(@each $inner [$($own)*] reserve release reserve_addresses commit_granularity
            commit decommit release_addresses discard region_bytes is_pinned device access name node zero);
    };
    (@each $inner:tt $own:tt $($method:ident)+) => {
        $($crate::forward_backing!(@unless $method $inner $own);)+
    };

    // A method that is in the list of the wrapper's own is left out.
    (@unless reserve $inner:tt [reserve $($rest:ident)*]) => {};
    (@unless release $inner:tt [release $($rest:ident)*]) => {};
    (@unless reserve_addresses $inner:tt [reserve_addresses $($rest:ident)*]) => {};
    (@unless commit_granularity $inner:tt [commit_granularity $($rest:ident)*]) => {};
    (@unless commit $inner:tt [commit $($rest:ident)*]) => {};
    (@unless decommit $inner:tt [decommit $($rest:ident)*]) => {};
    (@unless release_addresses $inner:tt [release_addresses $($rest:ident)*]) => {};
    (@unless discard $inner:tt [discard $($rest:ident)*]) => {};
    (@unless region_bytes $inner:tt [region_bytes $($rest:ident)*]) => {};
    (@unless is_pinned $inner:tt [is_pinned $($rest:ident)*]) => {};
    (@unless device $inner:tt [device $($rest:ident)*]) => {};
    (@unless access $inner:tt [access $($rest:ident)*]) => {};
    (@unless name $inner:tt [name $($rest:ident)*]) => {};
    (@unless node $inner:tt [node $($rest:ident)*]) => {};
    (@unless zero $inner:tt [zero $($rest:ident)*]) => {};
    (@unless $method:ident $inner:tt [$other:ident $($rest:ident)*]) => {
        $crate::forward_backing!(@unless $method $inner [$($rest)*]);
    };
    (@unless $method:ident $inner:tt []) => { $crate::forward_backing!(@method $method $inner); };

    // The backing inside: a field, or the pointee (`*`) of a smart pointer.
    (@inner $this:ident *) => { &**$this };
    (@inner $this:ident $field:tt) => { &$this.$field };
    (@call $method:ident $this:ident $inner:tt $($argument:ident)*) => {
        $crate::backing::Backing::$method($crate::forward_backing!(@inner $this $inner) $(, $argument)*)
    };

    (@method reserve $inner:tt) => {
        fn reserve(
            &self,
            bytes: usize,
            align: $crate::__private::Alignment,
        ) -> ::core::option::Option<$crate::backing::Region> {
            $crate::forward_backing!(@call reserve self $inner bytes align)
        }
    };
    (@method release $inner:tt) => {
        unsafe fn release(&self, region: $crate::backing::Region) {
            // SAFETY: guaranteed by the caller; regions are those of the backing inside.
            unsafe { $crate::forward_backing!(@call release self $inner region) }
        }
    };
    (@method reserve_addresses $inner:tt) => {
        fn reserve_addresses(
            &self,
            capacity: usize,
            align: $crate::__private::Alignment,
        ) -> ::core::option::Option<$crate::backing::Reservation> {
            $crate::forward_backing!(@call reserve_addresses self $inner capacity align)
        }
    };
    (@method commit_granularity $inner:tt) => {
        fn commit_granularity(&self) -> $crate::__private::Alignment {
            $crate::forward_backing!(@call commit_granularity self $inner)
        }
    };
    (@method commit $inner:tt) => {
        unsafe fn commit(&self, of: &$crate::backing::Reservation, from: usize, to: usize) -> bool {
            // SAFETY: guaranteed by the caller; reservations are those of the backing inside.
            unsafe { $crate::forward_backing!(@call commit self $inner of from to) }
        }
    };
    (@method decommit $inner:tt) => {
        unsafe fn decommit(&self, of: &$crate::backing::Reservation, from: usize, to: usize) {
            // SAFETY: guaranteed by the caller; reservations are those of the backing inside.
            unsafe { $crate::forward_backing!(@call decommit self $inner of from to) }
        }
    };
    (@method release_addresses $inner:tt) => {
        unsafe fn release_addresses(&self, reservation: $crate::backing::Reservation, committed: usize) {
            // SAFETY: guaranteed by the caller; reservations are those of the backing inside.
            unsafe { $crate::forward_backing!(@call release_addresses self $inner reservation committed) }
        }
    };
    (@method discard $inner:tt) => {
        unsafe fn discard(&self, ptr: ::core::ptr::NonNull<u8>, bytes: usize) -> usize {
            // SAFETY: guaranteed by the caller; regions are those of the backing inside.
            unsafe { $crate::forward_backing!(@call discard self $inner ptr bytes) }
        }
    };
    (@method region_bytes $inner:tt) => {
        unsafe fn region_bytes(&self, ptr: ::core::ptr::NonNull<u8>) -> ::core::option::Option<usize> {
            // SAFETY: guaranteed by the caller; regions are those of the backing inside.
            unsafe { $crate::forward_backing!(@call region_bytes self $inner ptr) }
        }
    };
    (@method is_pinned $inner:tt) => {
        fn is_pinned(&self) -> bool { $crate::forward_backing!(@call is_pinned self $inner) }
    };
    (@method device $inner:tt) => {
        fn device(&self) -> $crate::__private::Device { $crate::forward_backing!(@call device self $inner) }
    };
    (@method access $inner:tt) => {
        fn access(&self) -> $crate::Access { $crate::forward_backing!(@call access self $inner) }
    };
    (@method name $inner:tt) => {
        fn name(&self) -> &str { $crate::forward_backing!(@call name self $inner) }
    };
    (@method node $inner:tt) => {
        fn node(&self) -> ::core::option::Option<u32> { $crate::forward_backing!(@call node self $inner) }
    };
    (@method zero $inner:tt) => {
        unsafe fn zero(&self, ptr: ::core::ptr::NonNull<u8>, bytes: usize) -> bool {
            // SAFETY: guaranteed by the caller; regions are those of the backing inside.
            unsafe { $crate::forward_backing!(@call zero self $inner ptr bytes) }
        }
    };
}
