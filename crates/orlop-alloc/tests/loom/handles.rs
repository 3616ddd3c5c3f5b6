//! Blocks make handles of a real allocator while its last handle goes.

use loom::thread;
use orlop_alloc::backing::Null;
use orlop_alloc::engine::Direct;
use orlop_alloc::{AllocatorRef, MemoryBlock, Request};
use orlop_core::Device;

fn shared_block(allocator: &AllocatorRef<Direct<Null>>) -> MemoryBlock {
    allocator.allocate(&Request::new(64)).unwrap().share()
}

/// An allocator itself: one owner of a block asks while the other gives it up and the last handle goes.
#[test]
fn an_owner_asks_while_the_other_and_the_last_handle_go() {
    loom::model(|| {
        let allocator = Direct::new(Null::new(Device::CPU));
        let block = shared_block(&allocator);
        let theirs = block.clone();
        let other = thread::spawn(move || {
            drop(theirs);
            drop(allocator);
        });
        let handle = block.allocator();
        drop(block);
        if let Some(handle) = handle {
            assert_eq!(handle.stats().totals.all.allocations, 1);
        }
        other.join().unwrap();
    });
}
