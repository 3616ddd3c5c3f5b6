//! [`Peer`]: a second device, whose kernels use the memory of the first one, and copies between them.

use super::Tested;
use super::program::{OwnStream, UsedBlock, Worker, increment};
use orlop_alloc::{AllocatorRef, Request};
use orlop_cuda::{CudaDevice, CudaOps, KernelPointer};

/// A device with access to the memory of the first one, and an allocator of its own memory.
pub(super) struct Peer {
    pub(super) device: CudaDevice,
    pub(super) ops: CudaOps,
    pub(super) allocator: AllocatorRef,
}

impl Peer {
    /// Opens the second device. Each of both may use the other's memory.
    pub(super) fn new(first: &CudaDevice, of_first: &Tested, make: impl Fn(&CudaDevice) -> Tested) -> Self {
        let device = CudaDevice::new(1).unwrap();
        device.enable_peer_access(first).unwrap();
        first.enable_peer_access(&device).unwrap();
        let own = make(&device);
        for (pool, accessor) in [(&of_first.pool, &device), (&own.pool, first)] {
            pool.iter().for_each(|pool| pool.allow(accessor).unwrap());
        }
        Self { ops: CudaOps::new(&device), allocator: own.allocator, device }
    }

    pub(super) fn new_stream(&self) -> OwnStream {
        OwnStream::new(self.device.create_stream().unwrap())
    }
}

impl<'a> Worker<'a> {
    fn peer(&self) -> Option<(&'a Peer, OwnStream)> {
        self.program.peer.as_ref().zip(self.peer_stream.clone())
    }

    /// A kernel of the second device writes a block of the first one.
    pub(super) fn peer_kernel(&mut self, used: &mut UsedBlock) {
        let Some((peer, far)) = self.peer() else { return };
        far.wait_for(used.last().id());
        if used.block.device().is_cpu() {
            assert!(used.block.acquire_for(&peer.ops, far.id()).unwrap());
        } else {
            let pointer = KernelPointer::<u8>::of(&used.block, &far.stream).unwrap();
            assert_eq!(pointer.address() as usize, used.block.as_ptr().as_ptr().addr());
        }
        used.use_on(&far);
        self.write_all(&peer.device, &far.stream, &used.block);
        increment(&self.program.counts.peer_kernels);
    }

    /// Copies a block of the first device to the second one, and back when a kernel has changed it there.
    pub(super) fn peer_copy(&mut self, used: &mut UsedBlock, stream: &OwnStream) {
        let Some((peer, far)) = self.peer().filter(|_| !used.block.device().is_cpu()) else { return };
        let request = Request::new(used.block.len()).stream(far.id());
        let Ok(mut there) = peer.allocator.allocate(&request) else { return };
        far.wait_for(used.last().id());
        there.copy_by(&peer.ops, &used.block, far.id()).unwrap();
        used.use_on(&far);
        increment(&self.program.counts.peer_copies);
        if self.random.one_in(2) {
            self.write_all(&peer.device, &far.stream, &there);
            self.order(used, stream);
            stream.wait_for(far.id());
            // By the operations of either device.
            used.block.copy_by(&self.program.ops, &there, stream.id()).unwrap();
        }
    }
}
