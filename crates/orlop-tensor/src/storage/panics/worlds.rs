//! The user code that panics, and the storages that call it.

use crate::storage::{Storage, StorageHook, set_storage_hook};
use crate::{Tensor, TensorOptions};
use orlop_alloc::backing::{Backing, Region, System};
use orlop_alloc::engine::Direct;
use orlop_alloc::{
    Access, Allocator, AllocatorRef, Block, Event, Observer, Request,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_context::Context;
use orlop_core::{Alignment, DType, Device, MemoryKind, StreamId};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

thread_local! {
    /// The number of the thread's call that panics next; zero for none.
    pub(super) static FUSE: Cell<usize> = const { Cell::new(0) };
}

/// Counts a call of user code, and panics if it is its turn.
pub(super) fn call() {
    let left = FUSE.get();
    FUSE.set(left.saturating_sub(1));
    if left == 1 {
        // A panic without the message, which is slow under a checker.
        resume_unwind(Box::new("user code"));
    }
}

/// System memory as the memory of some device. It frees regions before it panics, so that nothing leaks.
#[derive(Debug)]
pub(super) struct Panicking(pub(super) System, pub(super) Device);

// SAFETY: regions of the system allocator.
unsafe impl Backing for Panicking {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        call();
        self.0.reserve(bytes, align)
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.release(region) };
        call();
    }

    fn device(&self) -> Device {
        self.1
    }

    fn access(&self) -> Access {
        if self.1.is_cpu() { Access::Host } else { Access::Device }
    }

    fn name(&self) -> &str {
        "panicking"
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        call();
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.zero(ptr, bytes) }
    }
}

struct Watching;

impl Observer for Watching {
    fn observe(&self, _: &Event<'_>) {
        call();
    }
}

#[derive(Debug)]
struct Hook;

impl StorageHook for Hook {
    fn allocate(&self, context: &Context, device: Device, request: &Request) -> orlop_alloc::Result<Block> {
        call();
        context.allocate(device, request)
    }
}

#[derive(Debug)]
struct Ops;

// SAFETY: plain memory operations over the given ranges.
unsafe impl DeviceOps for Ops {
    fn device(&self) -> Device {
        FAR
    }

    unsafe fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        bytes: usize,
        _: StreamId,
    ) -> orlop_alloc::Result<()> {
        call();
        // SAFETY: guaranteed by the caller.
        unsafe { to.ptr.copy_from_nonoverlapping(from.ptr, bytes) };
        Ok(())
    }

    unsafe fn fill(&self, to: DevicePtr, bytes: &[u8], count: usize, _: StreamId) -> orlop_alloc::Result<()> {
        call();
        for (index, &byte) in bytes.iter().cycle().take(bytes.len() * count).enumerate() {
            // SAFETY: inside the range.
            let place = unsafe { to.add(index) };
            // SAFETY: as above.
            unsafe { place.ptr.write(byte) };
        }
        Ok(())
    }

    fn synchronize(&self, _: StreamId) -> orlop_alloc::Result<()> {
        call();
        Ok(())
    }
}

/// The places where storages are made. Statics, because an allocator that lost count of a block is never
/// dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum World {
    /// On the CPU, with a backing that panics.
    Backing,
    /// On the CPU, with an observer that panics too.
    Observed,
    /// On a device whose operations and hook panic.
    Far,
}

pub(super) const FAR: Device = Device::custom(96, 0);

impl World {
    /// Under Miri each takes minutes.
    pub(super) const ALL: &[Self] =
        if cfg!(miri) { &[Self::Observed, Self::Far] } else { &[Self::Backing, Self::Observed, Self::Far] };

    pub(super) fn inside(self, test: impl FnOnce(&TensorOptions<'_>)) {
        static BACKING: OnceLock<AllocatorRef> = OnceLock::new();
        static OBSERVED: OnceLock<AllocatorRef> = OnceLock::new();
        static CONTEXT: OnceLock<Context> = OnceLock::new();
        let new = |device| Direct::new(Panicking(System::new(), device)).into_ref().erase();
        match self {
            Self::Backing => {
                let allocator = BACKING.get_or_init(|| new(Device::CPU));
                test(&TensorOptions::new().allocator(allocator));
            }
            Self::Observed => {
                let allocator = OBSERVED.get_or_init(|| {
                    let allocator = new(Device::CPU);
                    allocator.add_observer(Arc::new(Watching));
                    allocator
                });
                test(&TensorOptions::new().allocator(allocator));
            }
            Self::Far => {
                let context = CONTEXT.get_or_init(|| {
                    let context = Context::new();
                    context.register(FAR, MemoryKind::Default, new(FAR)).unwrap();
                    context.register_ops(FAR, Arc::new(Ops)).unwrap();
                    set_storage_hook(FAR.device_type(), Arc::new(Hook));
                    context
                });
                context.scope(|| test(&TensorOptions::new().device(FAR)));
            }
        }
    }
}

/// The size of a storage, small under Miri.
pub(super) const BYTES: usize = if cfg!(miri) { 12 } else { 100 };
pub(super) const MARK: u8 = 7;

/// Returns a storage filled with a pattern.
pub(super) fn full(options: &TensorOptions<'_>) -> Storage {
    let storage = Storage::new(BYTES, options).unwrap();
    tensor(&storage).fill_(MARK).unwrap();
    storage
}

pub(super) fn tensor(storage: &Storage) -> Tensor {
    Tensor::bind(storage, 0, [storage.nbytes()], DType::U8).unwrap()
}
