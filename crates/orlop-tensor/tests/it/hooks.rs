//! Storage hooks of backends, and checks of the blocks that they return.
//!
//! They use device types of their own, and the CPU's only on devices that no other test uses: hooks are
//! global to the process.

use orlop_alloc::{Access, Block, Deleter, Request, engine_support::Record};
use orlop_context::Context;
use orlop_core::{Alignment, DType, Device, MemoryKind};
use orlop_tensor::{Error, HookFault, Storage, StorageHook, Tensor, TensorOptions};
use std::ptr::NonNull;
use std::sync::Arc;

/// Returns a block for a request changed by the function.
struct FaultyHook<F>(F);

impl<F> std::fmt::Debug for FaultyHook<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultyHook")
    }
}

impl<F: Fn(Device, Request) -> Block + Send + Sync> StorageHook for FaultyHook<F> {
    fn allocate(&self, _: &Context, device: Device, request: &Request) -> orlop_alloc::Result<Block> {
        Ok((self.0)(device, *request))
    }
}

/// Returns a block of a device that does not exist, in host memory.
fn block(device: Device, bytes: usize, kind: MemoryKind, offset: usize) -> Block {
    let memory = Context::new().allocate(Device::CPU, &Request::new(bytes + offset + 1)).expect("memory");
    let ptr = NonNull::new(memory.as_ptr().as_ptr().wrapping_add(offset)).expect("inside a block");
    let mut record = Record::new(ptr, bytes, device, Access::Host);
    (record.requested, record.kind) = (bytes, kind);
    // SAFETY: inside the block that the deleter owns, which nothing else uses.
    unsafe { Block::foreign(record, Deleter::from_owner(memory)) }
}

fn refused(number: u8, fault: impl Fn(Device, Request) -> Block + Send + Sync + 'static) -> HookFault {
    let device = Device::custom(number, 0);
    orlop_tensor::set_storage_hook(device.device_type(), Arc::new(FaultyHook(fault)));
    let options = TensorOptions::new().device(device).kind(MemoryKind::Workspace);
    let result = Tensor::zeros([1 << 20], options);
    let Err(Error::StorageHook { device: named, fault }) = result else { panic!("taken: {result:?}") };
    assert_eq!(named, device);
    orlop_tensor::clear_storage_hook(device.device_type());
    fault
}

#[test]
fn lies_about_blocks_are_typed_errors() {
    let kind = MemoryKind::Workspace;
    let bytes = 4 << 20;
    assert_eq!(
        refused(90, move |device, _| block(device, 1, kind, 0)),
        HookFault::Bytes { expected: bytes, actual: 1 }
    );
    let elsewhere = refused(91, move |_, request| block(Device::CPU, request.bytes, kind, 0));
    assert_eq!(elsewhere, HookFault::Device { actual: Device::CPU });
    let other = refused(92, |device, request| block(device, request.bytes, MemoryKind::KvCache, 0));
    assert_eq!(other, HookFault::Kind { expected: kind, actual: MemoryKind::KvCache });
    let odd = refused(93, move |device, request| block(device, request.bytes, kind, 1));
    assert!(matches!(odd, HookFault::Misaligned { align, .. } if align == Alignment::PLANNED.bytes()));
}

/// A faulty block is also detected when a storage grows or is copied: nothing is copied past its end.
#[test]
fn lies_about_later_blocks_change_nothing() {
    let device = Device::custom(94, 0);
    let honest_below = |device, request: Request| {
        let bytes = if request.bytes < 1000 { request.bytes } else { 1 };
        let mut found = block(device, bytes, request.kind, 0);
        // The first length whose end has the requested alignment.
        let mut offset = 0;
        while !request.align.is_aligned(found.as_ptr().as_ptr().addr()) {
            offset += 64;
            found = block(device, bytes, request.kind, offset);
        }
        found
    };
    orlop_tensor::set_storage_hook(device.device_type(), Arc::new(FaultyHook(honest_below)));
    let tensor = Tensor::empty([16], TensorOptions::from(DType::U8).device(device)).unwrap();
    assert_eq!(tensor.storage().unwrap().device(), device);
    let unbound = Storage::unbound(&TensorOptions::new().device(device)).unwrap();
    assert!(matches!(unbound.bind(5000), Err(Error::StorageHook { .. })) && unbound.is_unbound());
    unbound.bind(50).unwrap();
    orlop_tensor::clear_storage_hook(device.device_type());
}

/// Zeroed memory is zero, whatever a hook returns, or the request fails.
#[test]
fn zeroed_memory_of_a_hook_is_zeroed() {
    let device = Device::custom(95, 0);
    let zeros = |access| {
        let hook = FaultyHook(move |device, request: Request| {
            let mut memory = Context::new().allocate(Device::CPU, &request).expect("memory");
            memory.bytes_mut().expect("host memory").fill(0xaa);
            let mut record = Record::new(memory.as_ptr(), memory.capacity(), device, access);
            (record.requested, record.align) = (memory.len(), memory.align());
            // SAFETY: the block that the deleter owns, which nothing else uses.
            unsafe { Block::foreign(record, Deleter::from_owner(memory)) }
        });
        orlop_tensor::set_storage_hook(device.device_type(), Arc::new(hook));
        let zeros = Tensor::zeros([100], TensorOptions::from(DType::Bool).device(device));
        orlop_tensor::clear_storage_hook(device.device_type());
        zeros
    };
    let tensor = zeros(Access::Host).unwrap();
    assert!(tensor.storage().unwrap().read().unwrap().iter().all(|&byte| byte == 0));
    // The host cannot write it, and the device has no operations.
    assert!(matches!(zeros(Access::Device), Err(Error::Alloc(_))));
}
