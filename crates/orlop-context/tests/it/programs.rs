//! Random programs over everything that a context counts: between operations, the memory map equals the live
//! blocks.

use super::accounts::external::foreign;
use orlop_alloc::backing::{Mmap, System};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2, ThreadArenas};
use orlop_alloc::{Allocator as _, AllocatorRef, Block, Request, Tag};
use orlop_context::Context;
use orlop_context::{AllocatorConfig, Budget, MemoryMap};
use orlop_core::{Device, MemoryKind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

const KINDS: [MemoryKind; 4] =
    [MemoryKind::Default, MemoryKind::Persistent, MemoryKind::Workspace, MemoryKind::KvCache];

/// A pseudo-random number generator (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("it can be done") % below
    }
}

fn engine(dice: &mut Dice) -> AllocatorRef {
    match dice.roll(6) {
        0 => Caching::new(Mmap::new()).into_ref().erase(),
        1 => Bfc::new(System::new()).into_ref().erase(),
        2 => Pool::new(System::new()).into_ref().erase(),
        3 => Pow2::new(System::new()).into_ref().erase(),
        4 => ThreadArenas::new(System::new(), 1 << 16).into_ref().erase(),
        _ => Direct::new(System::new()).into_ref().erase(),
    }
}

fn check(map: &MemoryMap, blocks: &[Block], seed: u64) {
    for kind in MemoryKind::ALL {
        let of_kind = || blocks.iter().filter(|block| block.kind() == kind);
        let live: usize = of_kind().map(Block::capacity).sum();
        let requested: usize = of_kind().map(Block::len).sum();
        assert_eq!(
            (map.live(kind), map.requested(kind)),
            (live as u64, requested as u64),
            "{kind}, seed {seed}\n{map}"
        );
    }
    for one in &map.allocators {
        assert_eq!(
            one.live + one.cached + one.deferred,
            one.reserved,
            "{}, seed {seed}\n{map}",
            one.allocator
        );
    }
}

fn program(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let gone = Arc::new(AtomicUsize::new(0));
    let mut arenas: Vec<AllocatorRef> = Vec::new();
    let mut blocks: Vec<Block> = Vec::new();
    let steps = if cfg!(miri) { 40 } else { 300 };
    for step in 0..steps {
        let kind = KINDS[dice.roll(KINDS.len())];
        let request = Request::new(1 + dice.roll(20_000)).kind(kind);
        let request = if dice.roll(2) == 0 { request.tag(Tag::new("programs")) } else { request };
        match dice.roll(16) {
            0..=3 => blocks.extend(context.allocate(Device::CPU, &request).ok()),
            4 if arenas.len() < 4 => arenas.push(Arena::new(System::new(), 1 << 16).into_ref().erase()),
            5..=6 if !arenas.is_empty() => {
                let arena = &arenas[dice.roll(arenas.len())];
                blocks.extend(context.allocate_from(arena, &request).ok());
            }
            7 if !arenas.is_empty() => drop(arenas.swap_remove(dice.roll(arenas.len()))),
            8 => blocks.push(context.adopt(foreign(request.bytes, kind, &gone))),
            9 => blocks.push(context.adopt_mapped(foreign(request.bytes, kind, &gone))),
            10 if step % 5 == 0 => {
                context.register(Device::CPU, kind, engine(&mut dice)).expect("it can be done");
            }
            11 if step % 7 == 0 => {
                let budget = Budget::hard(dice.roll(200_000) as u64);
                context.set_budget(Device::CPU, kind, budget).expect("it can be done");
            }
            12 => {
                context.trim(Device::CPU);
            }
            13 => std::thread::scope(|scope| {
                // Blocks from another thread, and some of this thread's go there.
                let moved = blocks.split_off(blocks.len() / 2);
                let work = || {
                    drop(moved);
                    context.allocate(Device::CPU, &request).ok()
                };
                blocks.extend(scope.spawn(work).join().expect("it can be done"));
            }),
            14 if !blocks.is_empty() => {
                let index = dice.roll(blocks.len());
                let block = blocks.swap_remove(index);
                let (bytes, address) = (block.len(), block.as_ptr());
                let mut block = block.share();
                let grown = context.grow_in_place(&mut block, bytes + dice.roll(5000));
                assert!(block.ptr == address && (grown || block.requested == bytes));
                blocks.push(block.try_into_block().expect("it can be done"));
            }
            _ if !blocks.is_empty() => drop(blocks.swap_remove(dice.roll(blocks.len()))),
            _ => {}
        }
        check(&context.memory_map(), &blocks, seed);
    }
    for kind in KINDS {
        context.allocator(Device::CPU, kind).expect("it can be done").verify().expect("it can be done");
    }
    // The remaining blocks are freed in any order.
    if dice.roll(2) == 0 {
        drop(context);
        drop(arenas);
    } else {
        blocks.clear();
        assert_eq!(context.memory_map().total(), 0);
    }
}

#[test]
fn the_memory_map_is_what_lives() {
    (1..=if cfg!(miri) { 1 } else { 20 }).for_each(program);
}
