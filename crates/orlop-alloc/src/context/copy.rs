//! Copies, fills and zeros through the device that can do them.

use super::Context;
use crate::{Access, Block, DeviceOps, DevicePtr, Error, HostOps, Result};
use orlop_core::{Device, StreamId};
use std::sync::Arc;

impl Context {
    /// Says who copies, fills and zeroes memory of `device`.
    pub fn register_ops(&self, device: Device, ops: Arc<dyn DeviceOps>) {
        self.inner.routes.get_or_new(device).ops.set(Some(ops));
    }

    /// Who does so. The CPU always has somebody.
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceOps`].
    pub fn ops(&self, device: Device) -> Result<Arc<dyn DeviceOps>> {
        let registered = self.inner.routes.get(device).and_then(|routes| routes.ops.get().cloned());
        match registered {
            Some(ops) => Ok(ops),
            None if device.is_cpu() => Ok(Arc::new(HostOps)),
            None => Err(Error::NoDeviceOps { device }),
        }
    }

    /// Copies one block's bytes to another, which must hold as many (P4). Between devices the side that is
    /// not the CPU does it, on `stream`; the copy is done when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`], [`Error::NoDeviceOps`], [`Error::NoCopyPath`], the backend's own.
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
        // other shared until the stream has been waited for below.
        unsafe { ops.copy(place(to), place(from), from.len(), stream) }?;
        ops.synchronize(stream)
    }

    /// Writes zeros over a block's bytes, on `stream`; done when this returns (M5).
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceOps`], the backend's own.
    pub fn zero(&self, block: &mut Block, stream: StreamId) -> Result<()> {
        check_reachable(block)?;
        let ops = self.ops(block.device())?;
        // SAFETY: the block's own bytes, borrowed exclusively until the stream has been waited for below.
        unsafe { ops.zero(block.as_ptr(), block.len(), stream) }?;
        ops.synchronize(stream)
    }

    /// A new block on `device` with the same bytes, kind, alignment and tag.
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

/// A block of address space has no bytes, and one on the CPU must be the processor's to touch.
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
