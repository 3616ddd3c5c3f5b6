//! Elements with constructors and destructors, in memory of a context.

use super::Context;
use orlop_alloc::{Error, Request, Result, TypedBlock};
use orlop_core::Device;

impl Context {
    /// Allocates an array of `count` elements on the CPU, within the budgets of the request's kind;
    /// `make(index)` constructs them, in ascending order. The request's size is replaced, and its alignment
    /// is raised to that of `T`. If `make` panics, the elements constructed so far are dropped and the block
    /// returns.
    ///
    /// ```
    /// use orlop_alloc::Request;
    /// use orlop_context::Context;
    /// use orlop_core::{Device, MemoryKind};
    ///
    /// let context = Context::new();
    /// let request = Request::new(0).kind(MemoryKind::Persistent);
    /// let tokens = context.allocate_typed(&request, 3, |index| format!("<token {index}>"))?;
    /// assert_eq!(tokens[2], "<token 2>");
    /// assert!(context.stats(Device::CPU).kind(MemoryKind::Persistent).live_bytes >= 72);
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TooManyElements`] if the elements exceed the address space; those of [`Context::allocate`].
    pub fn allocate_typed<T>(
        &self,
        request: &Request,
        count: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<TypedBlock<T>> {
        self.try_allocate_typed(request, count, |index| Ok::<T, Error>(make(index)))
    }

    /// [`Context::allocate_typed`] with a constructor that can fail. At the first error the elements
    /// constructed so far are dropped and the block returns.
    ///
    /// # Errors
    ///
    /// The error of `make`, and those of [`Context::allocate_typed`] converted to `E`.
    pub fn try_allocate_typed<T, E: From<Error>>(
        &self,
        request: &Request,
        count: usize,
        make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<TypedBlock<T>, E> {
        let block = self.allocate(Device::CPU, &TypedBlock::<T>::request_for(request, count)?)?;
        TypedBlock::try_in_block(block, count, make)
    }
}
