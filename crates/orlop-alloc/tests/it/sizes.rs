//! The size of a block by its pointer, also in engines that do not track sizes.

use orlop_alloc::adaptor::{Limit, Tracking};
use orlop_alloc::backing::{HugePages, Mmap, System};
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Reset, ThreadArenas};
use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{Alignment, Device, MemoryKind};
use std::collections::VecDeque;

fn size_of_block(allocator: &AllocatorRef, block: &orlop_alloc::Block) -> Option<usize> {
    // SAFETY: the block is live and of this allocator.
    unsafe { allocator.allocated_size_slow(block.as_ptr()) }
}

#[test]
fn engines_know_the_size_of_a_live_block() {
    let registry = Registry::with_builtin();
    for name in ["caching", "bfc", "pool", "pow2", "direct", "system", "arena"] {
        let allocator = registry.make(name, &AllocatorConfig::new()).unwrap();
        let mut blocks = Vec::new();
        for bytes in [1, 64, 1000, 5000, 1 << 20, 3 << 20] {
            for align in [Alignment::ONE, Alignment::CPU, Alignment::PLANNED, Alignment::new(4096).unwrap()] {
                blocks.push(allocator.allocate(&Request::new(bytes).align(align)).unwrap());
            }
        }
        // Some of the later blocks reuse memory.
        blocks.truncate(10);
        blocks.extend((0..10).map(|_| allocator.allocate(&Request::new(1000)).unwrap()));
        for block in &blocks {
            assert_eq!(size_of_block(&allocator, block), Some(block.capacity()), "{name}: {block:?}");
        }
    }
}

/// Blocks of a lease, of the lock, of retired segments, grown ones, and those of other threads.
#[test]
fn arenas_know_the_size_of_a_live_block() {
    let arena = Arena::new(System::new(), 1 << 14).into_ref();
    let mut blocks: Vec<_> = (1..=300).map(|bytes| arena.allocate(&Request::new(bytes)).unwrap()).collect();
    assert!(blocks.last_mut().unwrap().grow_in_place(400));
    let erased = arena.clone().erase();
    let check = |blocks: &[orlop_alloc::Block]| {
        for block in blocks {
            assert_eq!(size_of_block(&erased, block), Some(block.capacity()), "{block:?}");
        }
    };
    check(&blocks);
    assert!(arena.usage().metadata >= 300 * size_of::<[usize; 2]>() as u64);
    assert_eq!(arena.renew(), Reset::Renewed { live: 300 });
    blocks.extend((1..=300).map(|bytes| arena.allocate(&Request::new(bytes * 2)).unwrap()));
    check(&blocks);
    let gone = blocks[0].as_ptr();
    drop(blocks);
    arena.reset().unwrap();
    // SAFETY: the arena only compares the address.
    assert_eq!(unsafe { erased.allocated_size_slow(gone) }, None);
    arena.verify().unwrap();

    let arenas = ThreadArenas::new(System::new(), 1 << 14).into_ref().erase();
    let allocate =
        || -> Vec<_> { (1..200).map(|n| arenas.allocate(&Request::new(n * 3)).unwrap()).collect() };
    let mut blocks = allocate();
    blocks.extend(std::thread::scope(|scope| scope.spawn(allocate).join().unwrap()));
    for block in &blocks {
        assert_eq!(size_of_block(&arenas, block), Some(block.capacity()), "{block:?}");
    }
}

/// The caching engine serves a periodic workload from a plan, which places blocks itself.
#[test]
fn blocks_of_a_plan_have_sizes_too() {
    let allocator = Caching::new(Mmap::new().huge_pages(HugePages::Never)).into_ref().erase();
    // A period of layers with a few live blocks at a time, which is learned after about 50.
    let layers: Vec<usize> = (0..6)
        .flat_map(|layer| [80, 300, 40, 120, 300, 16].map(|pages| (pages + layer) * 4096 - 100))
        .collect();
    for _ in 0..70 {
        let mut live = VecDeque::new();
        for &bytes in &layers {
            let block = allocator.allocate(&Request::new(bytes)).unwrap();
            assert_eq!(size_of_block(&allocator, &block), Some(block.capacity()), "{block:?}");
            live.push_back(block);
            if live.len() > 2 {
                live.pop_front();
            }
        }
    }
}

#[test]
fn adaptors_and_budgets_pass_the_question_on() {
    let registry = Registry::with_builtin();
    let limited = registry.make("pow2", &AllocatorConfig::new().limit(1 << 20)).unwrap();
    let block = limited.allocate(&Request::new(100)).unwrap();
    assert_eq!(size_of_block(&limited, &block), Some(128));
    let arena = registry.make("arena", &AllocatorConfig::new()).unwrap();
    let tracked = Limit::new(Tracking::new(arena), 1 << 20).into_ref().erase();
    let block = tracked.allocate(&Request::new(100)).unwrap();
    assert_eq!(size_of_block(&tracked, &block), Some(block.capacity()));
    let context = Context::with(Device::CPU, AllocatorConfig::new().named("pool"));
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(1 << 20)).unwrap();
    let allocator = context.allocator(Device::CPU, MemoryKind::KvCache).unwrap();
    let block = allocator.allocate(&Request::new(100).kind(MemoryKind::KvCache)).unwrap();
    assert_eq!(size_of_block(&allocator, &block), Some(128));
}
