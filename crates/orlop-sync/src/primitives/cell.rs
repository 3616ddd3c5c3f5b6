//! An `UnsafeCell` with loom's interface, so that loom sees each access and its race check applies.

#[cfg(loom)]
pub use loom::cell::{MutPtr, UnsafeCell};

/// `std`'s cell with the interface of loom's.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Runs `f` with a pointer that it may read through while no thread writes.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Returns a pointer that may be written through while its holder has exclusive access.
    #[inline(always)]
    pub fn get_mut(&self) -> MutPtr<T> {
        MutPtr(self.0.get())
    }

    /// Runs `f` with a pointer that it may write through while it has exclusive access.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A pointer to the content of a cell. Loom checks that accesses through it do not overlap with others.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct MutPtr<T>(*mut T);

#[cfg(not(loom))]
impl<T> MutPtr<T> {
    /// Returns a reference to the value.
    ///
    /// # Safety
    ///
    /// The holder has exclusive access for as long as the reference lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "loom's interface; exclusiveness is guaranteed by the caller")]
    pub unsafe fn deref(&self) -> &mut T {
        // SAFETY: guaranteed by the caller; the pointer is to the content of a live cell.
        unsafe { &mut *self.0 }
    }
}
