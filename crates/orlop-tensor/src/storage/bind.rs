//! Binding a storage to memory of the caller, in place, and unbinding it.

use super::memory::Origin;
use super::{Storage, adopted};
use crate::borrows::Flags;
use crate::error::{Error, Result, Unresizable};
use orlop_alloc::Block;
use orlop_core::Device;
use std::sync::Arc;

/// A block that a storage did not accept, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("the storage cannot be bound to the block")]
pub struct BindError {
    /// The block.
    pub block: Block,
    /// The reason.
    pub source: Error,
}

impl BindError {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.source.is_out_of_memory()
    }
}

/// Flags of memory that is not given away: see [`Storage::unbind`].
const KEPT: Flags = Flags::IMMUTABLE.and(Flags::NO_ACCESS).and(Flags::NO_WRITES).and(Flags::FOREIGN_PROCESS);

impl Storage {
    /// Binds an unbound storage to this memory: every tensor over the storage has these bytes from now on.
    /// All bytes of the block are in use, and the storage has its memory kind. It can be resized if the block
    /// has an allocator; foreign memory is counted in the current context, which is the storage's then.
    ///
    /// ```
    /// use orlop_alloc::Request;
    /// use orlop_context::Context;
    /// use orlop_core::{DType, Device};
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::full([64], 1.0, DType::F32)?;
    /// let view = tensor.narrow(0, 0, 2)?;
    /// let first = tensor.storage()?.unbind()?;
    /// assert!(view.to_vec::<f32>().is_err());
    ///
    /// let second = Context::new().allocate(Device::CPU, &Request::new(256).zeroed())?;
    /// tensor.storage()?.bind_block(second)?;
    /// assert_eq!(view.to_vec::<f32>()?, [0.0, 0.0]);
    /// tensor.storage()?.unbind()?;
    /// tensor.storage()?.bind_block(first)?;
    /// assert_eq!(view.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BindError`] with the block and [`Error::AlreadyBound`], [`Error::DeviceMismatch`],
    /// [`Error::Borrowed`], or [`Error::NotResizable`] for a part of a storage.
    pub fn bind_block(&self, block: Block) -> Result<(), BindError> {
        if let Err(source) = self.check_bindable(block.device()) {
            return Err(BindError { block, source });
        }
        // Counting it runs user code, so it comes before the guard.
        let has_allocator = block.has_allocator();
        let (block, context) = adopted(block);
        let mut guard = match self.cell.change() {
            Ok(guard) if self.is_unbound() => guard,
            Ok(_) => return Err(BindError { block, source: Error::AlreadyBound }),
            Err(source) => return Err(BindError { block, source }),
        };
        let bytes = block.len();
        let former = guard.install(block.share(), bytes, None);
        self.cell.set_context(context);
        self.cell.set_fixed((!has_allocator).then_some(Unresizable::Foreign));
        self.cell.borrows.clear(Flags::UNBOUND);
        drop(guard);
        drop(former);
        Ok(())
    }

    /// Takes the memory out of the storage, which is unbound then: every access through tensors over it fails
    /// with [`Error::Unbound`], until [`bind`](Storage::bind) gives it memory of the same allocator, or
    /// [`bind_block`](Storage::bind_block) this or other memory.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`]; [`Error::Unbound`]; [`Error::MemoryInUse`] if the block has other owners;
    /// [`Error::NotResizable`] for a part of a storage and for planned memory; [`Error::ReadOnly`],
    /// [`Error::AccessRefused`] and [`Error::ForeignProcess`] if a block, which gives full access to its
    /// memory, would bypass a restriction.
    pub fn unbind(&self) -> Result<Block> {
        self.check_whole()?;
        self.check_own_process("unbinding")?;
        let mut guard = self.cell.change()?;
        self.cell.check_not_planned()?;
        let flags = self.cell.borrows.flags();
        match flags {
            _ if flags.has(Flags::UNBOUND) => return Err(self.cell.unbound()),
            _ if flags.has(Flags::NO_ACCESS) => return Err(Error::AccessRefused { reason: None }),
            _ if flags.has(KEPT) => return Err(Error::ReadOnly { reason: None }),
            _ => {}
        }
        let origin = Origin::of_block(guard.block());
        // Memory without an allocator does not change where later memory comes from.
        let origin = if origin.is_chosen() { Some(Arc::new(origin)) } else { self.cell.origin() };
        let block = guard.take_block().ok_or(Error::MemoryInUse)?;
        self.cell.set_fixed(None);
        self.cell.borrows.clear(Flags::COPY_ON_WRITE.and(Flags::ESCAPED).and(Flags::WARNS));
        self.cell.borrows.set(Flags::UNBOUND);
        self.cell.bump();
        let former = (self.cell.replace_origin(origin), self.cell.replace_revoked(None));
        drop(guard);
        drop(former);
        Ok(block)
    }

    /// Fails unless memory of a device can be bound to this storage.
    pub(super) fn check_bindable(&self, device: Device) -> Result<()> {
        self.check_whole()?;
        self.check_device(device)?;
        if self.is_unbound() { Ok(()) } else { Err(Error::AlreadyBound) }
    }
}
