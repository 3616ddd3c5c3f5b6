//! Binding a storage to a part of a pool, which it has for itself.
//!
//! Two storages with the same bytes have two borrow states, which do not see each other. So the bytes are
//! registered in the pool as written while the other storage has them: accesses to them through the pool are
//! refused, and accesses to all other bytes are not affected. The registration is the owner of the memory of
//! the bound storage, so it ends with its last user.

use super::Storage;
use super::write_registration::WriteRegistration;
use crate::Tensor;
use crate::borrows::Flags;
use crate::error::{Error, Result, Unresizable};
use orlop_alloc::{Access, Block, Deleter, engine_support::Record};
use orlop_core::Alignment;
use std::ops::Range;

impl Storage {
    /// Binds an unbound storage to these bytes of a pool: every tensor over the storage has them from now on,
    /// and the storage has the pool's memory kind. Nothing is allocated or counted; the pool's memory lives
    /// as long as the storage uses it.
    ///
    /// Meanwhile, the storage has the bytes for itself: accesses to them through the pool fail with
    /// [`Error::Borrowed`], as does whatever changes the pool, unless there are no bytes. They end with
    /// [`unbind`](Storage::unbind), [`clear`](Storage::clear), or the last handle of the storage. On a
    /// device, the host waits for each operation on the bytes, as for foreign memory.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyBound`], [`Error::DeviceMismatch`], [`Error::NotResizable`] for a part of a storage;
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage); [`Error::Borrowed`] if the bytes are used, or bound
    /// to another storage; those of writing to the pool, and [`Error::ForeignProcess`]. Both are unchanged
    /// then.
    pub fn bind_part(&self, pool: &Self, bytes: Range<usize>) -> Result<()> {
        self.check_bindable(pool.device())?;
        pool.check_own_process("binding a part")?;
        let part = pool.slice(bytes)?;
        let block = part.lease()?;
        let mut guard = self.cell.change()?;
        if !self.is_unbound() {
            return Err(Error::AlreadyBound);
        }
        let block = block.share();
        self.cell.set_bytes(block.requested);
        self.cell.set_kind(block.kind);
        self.cell.set_fixed(Some(Unresizable::Part));
        let nothing = guard.replace(block);
        self.cell.borrows.clear(Flags::UNBOUND);
        self.cell.bump();
        drop(guard);
        drop(nothing);
        Ok(())
    }

    /// Returns the bytes of this part as a block that nothing else accesses while it exists.
    fn lease(&self) -> Result<Block> {
        let mut record = None;
        let registration = WriteRegistration::of(&self.cell, |cell| {
            let guard = cell.write_range(self.range())?;
            let (whole, len) = (guard.block(), self.bytes_of(guard.bytes()));
            if len < self.len {
                // The pool has shrunk since the part was made.
                let end_bytes = self.start.saturating_add(self.len);
                return Err(
                    orlop_core::Error::OutOfStorage { end_bytes, storage_bytes: guard.bytes() }.into()
                );
            }
            if whole.access == Access::Host {
                // The part would not know that a device may still use the whole.
                whole.check_host()?;
            }
            // SAFETY: inside the block: `start + len` is at most the bytes in use.
            let ptr = unsafe { whole.ptr.add(self.start) };
            let mut part = Record::new(ptr, len, whole.device, whole.access);
            (part.requested, part.kind, part.tag, part.stream) = (len, whole.kind, whole.tag, whole.stream);
            let of_start = 1usize.checked_shl(self.start.trailing_zeros()).map(Alignment::new);
            part.align = of_start.and_then(Result::ok).map_or(whole.align, |align| align.min(whole.align));
            record = Some(part);
            Ok(guard)
        })?;
        // Set by the closure, which succeeded.
        let record = record.ok_or(Error::Unbound { revoked: None })?;
        // SAFETY: the bytes are valid and initialised while the pool has its block, which is not replaced
        // while a writer is registered, and the registration keeps the pool alive. It is the writer of these
        // bytes, so nothing else accesses them until it is dropped, with the block. Without bytes there is no
        // writer, and any address is valid.
        Ok(unsafe { Block::foreign_part(record, Deleter::from_owner(registration)) })
    }
}

impl Tensor {
    /// Binds an existing tensor, whose storage is unbound, to the bytes of a pool from `byte_offset` on, as
    /// many as its elements need: see [`Storage::bind_part`]. Its clones and views have the same bytes.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::{Error, Storage, Tensor, TensorOptions};
    ///
    /// let pool = Storage::new(4096, &TensorOptions::new())?;
    /// let tensor = Tensor::unbound([16, 16], DType::F32)?;
    /// assert!(matches!(tensor.to_vec::<f32>(), Err(Error::Unbound { .. })));
    /// tensor.bind_in(&pool, 256)?;
    /// tensor.fill_(1.0)?;
    /// assert!(matches!(pool.slice(256..300)?.read(), Err(Error::Borrowed { .. })));
    /// drop(tensor.storage()?.unbind()?);
    /// assert_eq!(pool.read()?[256..260], 1.0f32.to_ne_bytes());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Storage::bind_part`]; [`Error::Misaligned`] if the address is not aligned for the dtype.
    pub fn bind_in(&self, pool: &Storage, byte_offset: usize) -> Result<()> {
        let imp = self.imp()?;
        let bytes = imp.layout.byte_range(imp.dtype.size())?.end;
        let end = orlop_core::bytes::checked_add(byte_offset, bytes)?;
        let address = pool.block()?.address().wrapping_add(pool.start()).wrapping_add(byte_offset);
        let align = imp.dtype.alignment();
        if bytes > 0 && !align.is_aligned(address) {
            return Err(Error::Misaligned { address, align: align.bytes() });
        }
        imp.storage().bind_part(pool, byte_offset..end)
    }
}
