//! Blocks create handles of an allocator while its last handle is dropped.

use loom::thread;
use orlop_alloc::backing::Null;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, MemoryBlock, Request};
use orlop_core::Device;

fn shared_block(allocator: &AllocatorRef<Direct<Null>>) -> MemoryBlock {
    allocator.allocate(&Request::new(64)).unwrap().share()
}

/// One owner of a block creates a handle while the other owner drops the block and the last handle is
/// dropped.
#[test]
fn an_owner_asks_while_the_other_and_the_last_handle_go() {
    loom::model(|| {
        let allocator = Direct::new(Null::new(Device::CPU)).into_ref();
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
