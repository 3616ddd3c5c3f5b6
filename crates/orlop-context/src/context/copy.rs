//! Copies and fills of blocks, by the operations of their device.

use super::Context;
use orlop_alloc::{
    Block, Error, Result,
    engine_support::{DeviceOps, HostOps},
};
use orlop_core::{Device, StreamId};
use std::sync::Arc;

impl Context {
    /// Registers the operations that copy, fill and cast memory of `device`.
    ///
    /// # Errors
    ///
    /// [`Error::WrongOperations`] if they are another device's, such as the host's for a device that it can
    /// access: the host's operations are not ordered by streams.
    pub fn register_ops(&self, device: Device, ops: Arc<dyn DeviceOps>) -> Result<()> {
        ops.check_on(device)?;
        self.inner.routes.get_or_new(device).ops.set(Some(ops));
        Ok(())
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
    /// side that is not the CPU are used, on `stream`. Bytes in host memory are there when this returns, and
    /// a source in host memory has been read; otherwise the host does not wait ([`Block::copy_by`]).
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`], [`Error::NoDeviceOps`], [`Error::NoCopyPath`], and errors of the backend.
    pub fn copy(&self, to: &mut Block, from: &Block, stream: StreamId) -> Result<()> {
        let worker = if to.device().is_cpu() { from.device() } else { to.device() };
        let ops = self.ops(worker)?;
        to.copy_by(&*ops, from, stream)
    }

    /// Zeroes a block's bytes on `stream`. The host waits as for [`Context::copy`].
    ///
    /// # Errors
    ///
    /// [`Error::NoDeviceOps`], and errors of the backend.
    pub fn zero(&self, block: &mut Block, stream: StreamId) -> Result<()> {
        block.zero_by(&*self.ops(block.device())?, stream)
    }

    /// Allocates a block on `device` with the same bytes, kind, alignment and tag.
    ///
    /// # Errors
    ///
    /// Those of [`Context::allocate`] and [`Context::copy`].
    pub fn duplicate(&self, block: &Block, device: Device, stream: StreamId) -> Result<Block> {
        let request = orlop_alloc::Request::new(block.len())
            .align(block.align())
            .kind(block.kind())
            .tag(block.tag())
            .stream(stream);
        let mut copy = self.allocate(device, &request)?;
        self.copy(&mut copy, block, stream)?;
        Ok(copy)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use orlop_alloc::Request;

    #[test]
    fn copies_and_zeroes_on_the_host() {
        let context = Context::new();
        let mut block = context.allocate(Device::CPU, &Request::new(1000)).unwrap();
        block.bytes_mut().unwrap().fill(3);
        let mut copy = context.duplicate(&block, Device::CPU, StreamId::HOST).unwrap();
        assert_eq!(copy.bytes().unwrap(), block.bytes().unwrap());
        context.zero(&mut copy, StreamId::HOST).unwrap();
        assert!(copy.bytes().unwrap().iter().all(|&byte| byte == 0));
        let mut other = context.allocate(Device::CPU, &Request::new(999)).unwrap();
        let error = context.copy(&mut other, &block, StreamId::HOST).unwrap_err();
        assert!(matches!(error, Error::SizeMismatch { source_bytes: 1000, destination_bytes: 999 }));
    }
}
