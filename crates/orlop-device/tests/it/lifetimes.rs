//! The end of a device allocator: whichever goes last, a handle or a block, and on whichever thread.

use orlop_alloc::{AllocatorRef, Block, Request};
use orlop_core::Device;
use orlop_device::{DeviceAllocator, NullDevice, Policy};
use std::thread;

fn allocator() -> AllocatorRef {
    let device = NullDevice::new(Device::cuda(0), 256 << 20);
    DeviceAllocator::new(device, Policy::orlop()).into_ref().erase()
}

fn block(allocator: &AllocatorRef) -> Block {
    allocator.allocate(&Request::new(100)).expect("the device has memory")
}

#[test]
fn the_last_handle_and_the_last_block_go_at_once() {
    for _ in 0..50 {
        let allocator = allocator();
        let block = block(&allocator);
        let other = thread::spawn(move || drop(block));
        drop(allocator);
        other.join().expect("a block goes without a panic");
    }
}

#[test]
fn blocks_outlive_the_last_handle() {
    let allocator = allocator();
    let mine = [block(&allocator), block(&allocator)];
    let theirs = thread::spawn({
        let allocator = allocator.clone();
        move || block(&allocator)
    });
    let theirs = theirs.join().expect("the device has memory");
    drop(allocator);
    drop((mine, theirs));
}
