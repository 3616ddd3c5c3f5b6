//! Allocators that are registered, and those that are passed with a request: each byte counts once.

use super::{KIND, arena, budgeted, context, limited, request, silent};
use orlop_alloc::backing::System;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::engine::{Direct, ThreadArenas};
use orlop_alloc::{Access, Allocator, Block, Error, Request, engine_support::Record};
use orlop_context::Source;
use orlop_core::{Device, MemoryKind};
use std::ptr::NonNull;

#[test]
fn an_explicit_arena_counts_until_its_last_block_is_dropped() {
    let context = context();
    let arena = arena();
    let block = context.allocate_from(&arena, &request(5000)).unwrap();
    let direct = arena.allocate(&request(1000)).unwrap();
    let map = context.memory_map();
    assert_eq!((map.live(KIND), map.live_from(Source::Explicit)), (6000, 6000));
    assert!(map.reserved() >= 1 << 16 && map.cached() > 0);
    assert!(arena.is_unique(), "the context keeps no handle");
    drop(arena);
    // Its blocks keep it alive, and it is counted.
    assert_eq!(context.stats(Device::CPU).kind(KIND).live_bytes, 6000);
    drop((block, direct));
    assert_eq!((context.memory_map().allocators.len(), context.stats(Device::CPU).usage.reserved), (0, 0));
}

#[test]
fn each_byte_counts_once() {
    // Registered and explicit; explicit with an adaptor over it; registered for two kinds; an adaptor over a
    // registered one.
    let context = context();
    let engine = Bfc::new(System::new()).into_ref().erase();
    context.register(Device::CPU, MemoryKind::Default, engine.clone()).unwrap();
    context.register(Device::CPU, KIND, engine.clone()).unwrap();
    let over = limited(&engine);
    let arena = arena();
    let over_arena = limited(&arena);
    let blocks: Vec<Block> = [&engine, &over, &arena, &over_arena]
        .into_iter()
        .map(|allocator| context.allocate_from(allocator, &request(1024)).unwrap())
        .collect();
    assert_eq!((context.stats(Device::CPU).live(), context.memory_map().live(KIND)), (4096, 4096));
    drop(blocks);
    assert_eq!(context.memory_map().total(), 0);
}

#[test]
fn a_former_allocator_still_counts() {
    let context = context();
    context.register(Device::CPU, KIND, Direct::new(System::new()).into_ref()).unwrap();
    let block = context.allocate(Device::CPU, &request(1 << 16)).unwrap();
    context.register(Device::CPU, KIND, Direct::new(System::new()).into_ref()).unwrap();
    assert_eq!(context.stats(Device::CPU).kind(KIND).live_bytes, block.capacity() as u64);
}

#[test]
fn arenas_of_threads_are_one_workspace() {
    let context = budgeted(20_000);
    let arenas = ThreadArenas::new(System::new(), 1 << 16).into_ref();
    context.register(Device::CPU, KIND, arenas.clone()).unwrap();
    let mine = context.allocate(Device::CPU, &request(6000)).unwrap();
    let theirs = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let blocks = [6000, 6000].map(|bytes| context.allocate(Device::CPU, &request(bytes)).unwrap());
            assert!(matches!(arenas.reset(), Err(Error::ArenaInUse { live: 2 })));
            assert_eq!(arenas.used(), 12_016);
            blocks
        });
        other.join().unwrap()
    });
    assert_eq!((arenas.arenas(), arenas.used(), context.memory_map().live(KIND)), (2, 6000, 18_000));
    assert!(context.allocate(Device::CPU, &request(6000)).is_err(), "one budget for all threads");
    // Freed on another thread.
    drop(theirs);
    drop(mine);
    arenas.reset().unwrap();
    assert_eq!((arenas.used(), context.memory_map().live(KIND)), (0, 0));
    let reserved = arenas.stats().usage.reserved;
    assert_eq!((arenas.trim(0), arenas.stats().usage.reserved), (reserved, 0));
}

#[test]
fn a_missing_allocator_is_named_by_its_kind() {
    let context = context();
    let error = context.allocate(Device::cuda(3), &Request::new(64).kind(MemoryKind::KvCache)).unwrap_err();
    assert!(matches!(error, Error::NoAllocator { kind: MemoryKind::KvCache, .. }), "{error}");
    assert!(error.to_string().contains("kv_cache"), "{error}");
    // External memory does not create a device that serves requests.
    let record = Record::new(NonNull::dangling(), 64, Device::cuda(3), Access::Device);
    // SAFETY: no other pointer to it is used.
    let block = context.adopt(unsafe { Block::borrowed(record) });
    assert_eq!(context.stats(Device::cuda(3)).live(), 64);
    assert!(context.allocate(Device::cuda(3), &Request::new(64)).is_err());
    drop(block);
}

#[test]
fn statistics_show_what_they_lack() {
    let (plain, silent) = (Direct::new(System::new()).into_ref().erase(), silent());
    drop(plain.allocate(&request(100)).unwrap());
    let table = plain.stats().to_string();
    assert!(!table.contains("statistics") && !table.contains("pinned"), "{table}");
    let pinned = Request::new(100).kind(MemoryKind::HostPinned);
    drop([plain.allocate(&pinned).unwrap(), silent.allocate(&pinned).unwrap()]);
    let [plain_table, silent_table] = [&plain, &silent].map(|allocator| allocator.stats().to_string());
    let unpinned = format!("{} memory is not pinned", MemoryKind::HostPinned);
    assert!(plain_table.contains(&unpinned) && !plain_table.contains("statistics"), "{plain_table}");
    assert!(
        silent_table.contains(&unpinned) && silent_table.contains("statistics are off"),
        "{silent_table}"
    );
    // The same holds for sums.
    let context = context();
    context.register(Device::CPU, MemoryKind::HostPinned, silent).unwrap();
    let sum = context.stats(Device::CPU);
    assert!(sum.totals.uncounted && sum.has_unpinned);
}
