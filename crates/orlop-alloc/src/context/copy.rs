//! Copies and fills of blocks, by the operations of their device.

use super::Context;
use crate::{Access, Block, DeviceOps, DevicePtr, Error, HostOps, Result};
use orlop_core::{Device, StreamId};
use std::sync::Arc;

impl Context {
    /// Registers the operations that copy, fill and zero memory of `device`.
    pub fn register_ops(&self, device: Device, ops: Arc<dyn DeviceOps>) {
        self.inner.routes.get_or_new(device).ops.set(Some(ops));
    }

    /// Returns the operations of `device`. The CPU always has some.
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceOps`] if none are registered.
    pub fn ops(&self, device: Device) -> Result<Arc<dyn DeviceOps>> {
        let registered = self.inner.routes.get(device).and_then(|routes| routes.ops.get().cloned());
        match registered {
            Some(ops) => Ok(ops),
            None if device.is_cpu() => Ok(Arc::new(HostOps)),
            None => Err(Error::NoDeviceOps { device }),
        }
    }

    /// Copies the bytes of one block to another of the same length. Between devices the operations of the
    /// side that is not the CPU are used, on `stream`; the copy is complete when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`], [`Error::NoDeviceOps`], [`Error::NoCopyPath`], and errors of the backend.
    pub fn copy(&self, to: &mut Block, from: &Block, stream: StreamId) -> Result<()> {
        if to.len() != from.len() {
            return Err(Error::SizeMismatch { source_bytes: from.len(), destination_bytes: to.len() });
        }
        check_reachable(to)?;
        check_reachable(from)?;
        let worker = if to.device().is_cpu() { from.device() } else { to.device() };
        let ops = self.ops(worker)?;
        let place = |block: &Block| DevicePtr { ptr: block.as_ptr(), device: block.device() };
        // SAFETY: two different blocks of `len` bytes each: valid, disjoint, one borrowed exclusively and the
        // other shared until the stream was synchronized below.
        unsafe { ops.copy(place(to), place(from), from.len(), stream) }?;
        ops.synchronize(stream)
    }

    /// Zeroes a block's bytes on `stream`; complete when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceOps`], and errors of the backend.
    pub fn zero(&self, block: &mut Block, stream: StreamId) -> Result<()> {
        check_reachable(block)?;
        let ops = self.ops(block.device())?;
        // SAFETY: the block's own bytes, borrowed exclusively until the stream was synchronized below.
        unsafe { ops.zero(block.as_ptr(), block.len(), stream) }?;
        ops.synchronize(stream)
    }

    /// Allocates a block on `device` with the same bytes, kind, alignment and tag.
    ///
    /// # Errors
    ///
    /// Those of [`Context::allocate`] and [`Context::copy`].
    pub fn duplicate(&self, block: &Block, device: Device, stream: StreamId) -> Result<Block> {
        let request = crate::Request::new(block.len())
            .align(block.align())
            .kind(block.kind())
            .tag(block.tag())
            .stream(stream);
        let mut copy = self.allocate(device, &request)?;
        self.copy(&mut copy, block, stream)?;
        Ok(copy)
    }
}

/// Returns an error for a block without accessible bytes: bare address space, or device memory on the CPU.
fn check_reachable(block: &Block) -> Result<()> {
    match block.access() {
        Access::Host => Ok(()),
        Access::Device if !block.device().is_cpu() => Ok(()),
        Access::Device | Access::None => Err(Error::NotHostAccessible { device: block.device() }),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Request;

    #[test]
    fn copies_and_zeroes_on_the_host() {
        let context = Context::new();
        let mut block = context.allocate(Device::CPU, &Request::new(1000)).unwrap();
        block.bytes_mut().unwrap().fill(3);
        let mut copy = context.duplicate(&block, Device::CPU, StreamId::DEFAULT).unwrap();
        assert_eq!(copy.bytes().unwrap(), block.bytes().unwrap());
        context.zero(&mut copy, StreamId::DEFAULT).unwrap();
        assert!(copy.bytes().unwrap().iter().all(|&byte| byte == 0));
        let mut other = context.allocate(Device::CPU, &Request::new(999)).unwrap();
        let error = context.copy(&mut other, &block, StreamId::DEFAULT).unwrap_err();
        assert!(matches!(error, Error::SizeMismatch { source_bytes: 1000, destination_bytes: 999 }));
    }
}
