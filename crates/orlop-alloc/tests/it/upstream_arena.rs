//! Arenas over allocators of devices, and the alignment of device memory.

use orlop_alloc::engine::{Arena, Direct, Reset, UpstreamArena};
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, Request, backing::Null, backing::System};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use orlop_testkit::QueuedDevice;

const NEAR: Device = Device::custom(11, 0);

fn stream(number: u64) -> StreamId {
    StreamId::from_raw(number)
}

fn block<A: ?Sized + Allocator>(allocator: &AllocatorRef<A>, stream: StreamId) -> Block {
    allocator.allocate(&Request::new(1000).stream(stream)).expect("memory")
}

fn arena() -> (QueuedDevice, AllocatorRef, AllocatorRef<UpstreamArena>) {
    let device = QueuedDevice::new(NEAR, 64 << 20);
    let upstream = device.allocator();
    let arena = UpstreamArena::new(upstream.clone(), 1 << 20).into_ref();
    (device, upstream, arena)
}

#[test]
fn a_rewind_reuses_what_one_stream_used_and_nothing_waits() {
    let (device, upstream, arena) = arena();
    let mut addresses = Vec::new();
    for _ in 0..3 {
        let (mut first, second) = (block(&arena, stream(1)), block(&arena, stream(1)));
        first.zero_by(&device, stream(1)).unwrap();
        addresses.push([&first, &second].map(Block::as_ptr));
        assert!(matches!(arena.reset(), Err(Error::ArenaInUse { live: 2 })));
        drop((first, second));
        arena.reset().unwrap();
    }
    assert_eq!((addresses[0], addresses[1]), (addresses[1], addresses[2]));
    assert_eq!((device.calls().waits, device.calls().synchronizations), (0, 0));
    assert_eq!(upstream.stats().totals.kinds[MemoryKind::Workspace.index()].live_bytes, 1 << 20);
}

#[test]
fn what_another_stream_used_is_not_reused_before_it_is_done() {
    let (device, _upstream, arena) = arena();
    let mut first = block(&arena, stream(1));
    first.zero_by(&device, stream(2)).unwrap();
    assert_eq!(device.calls().waits, 1, "for the arena's stream");
    let used = first.as_ptr();
    drop(first);
    arena.reset().unwrap();
    let second = block(&arena, stream(1));
    assert_ne!(second.as_ptr(), used, "the second stream has not run");
    assert_eq!(device.calls().synchronizations, 0);
    drop(second);
}

#[test]
fn streams_have_segments_of_their_own() {
    let (device, _upstream, arena) = arena();
    let blocks = [1, 2, 1, 2].map(|number| block(&arena, stream(number)));
    assert_eq!(blocks.each_ref().map(Block::stream), [1, 2, 1, 2].map(stream));
    let [a, b, c, d] = blocks.each_ref().map(|block| block.as_ptr().as_ptr().addr());
    assert_eq!((c - a, d - b, arena.usage().regions), (1024, 1024, 2));
    let mut blocks = blocks;
    blocks.iter_mut().zip([1, 2, 1, 2]).for_each(|(block, own)| block.zero_by(&device, stream(own)).unwrap());
    assert_eq!(device.calls().waits, 0);
    assert_eq!(block(&arena, StreamId::HOST).stream(), StreamId::default_of(NEAR));
}

#[test]
fn live_blocks_keep_their_memory_and_the_arena() {
    let (device, upstream, arena) = arena();
    let (mut kept, host) = (block(&arena, stream(1)), Direct::new(System::new()).into_ref());
    kept.zero_by(&device, stream(1)).unwrap();
    assert_eq!(arena.renew(), Reset::Renewed { live: 1 });
    let next = block(&arena, stream(1));
    assert_ne!(next.as_ptr(), kept.as_ptr());
    assert_eq!(arena.usage().regions, 2);
    drop((next, arena));
    let mut bytes = host.allocate(&Request::new(1000)).unwrap();
    bytes.copy_by(&device, &kept, stream(1)).unwrap();
    assert_eq!(bytes.bytes().unwrap(), [0; 1000]);
    drop(kept);
    assert_eq!(upstream.stats().live(), 0);
}

#[test]
fn zeroed_device_memory_is_zero_and_returns_by_itself() {
    let (device, upstream, arena) = arena();
    let host = Direct::new(System::new()).into_ref();
    for _ in 0..3 {
        let _other = block(&arena, stream(1));
        let zeroed = arena.allocate(&Request::new(1000).zeroed().stream(stream(1))).unwrap();
        let mut bytes = host.allocate(&Request::new(1000)).unwrap();
        bytes.copy_by(&device, &zeroed, stream(1)).unwrap();
        assert_eq!(bytes.bytes().unwrap(), [0; 1000]);
        drop(zeroed);
        assert_eq!(upstream.stats().live(), 1 << 20);
        arena.verify().unwrap();
    }
}

#[test]
fn an_arena_settles_on_one_segment_within_its_limit() {
    let upstream = Direct::new(System::new()).into_ref().erase();
    let arena = UpstreamArena::new(upstream.clone(), 4096).with_limit(64 << 10).into_ref();
    for _ in 0..4 {
        let blocks: Vec<_> = (0..20).map(|_| block(&arena, StreamId::HOST)).collect();
        drop(blocks);
        arena.reset().unwrap();
    }
    assert_eq!((arena.usage().regions, arena.used()), (1, 0));
    let refused = arena.allocate(&Request::new(1 << 20).kind(MemoryKind::KvCache)).unwrap_err();
    let Error::OutOfMemory(report) = refused else { panic!("{refused}") };
    assert_eq!((report.kind, report.requested), (MemoryKind::KvCache, 1 << 20), "as requested");
    arena.verify().unwrap();
    arena.trim(0);
    assert_eq!((upstream.stats().live(), arena.usage().reserved), (0, 0));
}

#[test]
fn sizes_are_found_slowly() {
    let (_device, _upstream, arena) = arena();
    let mut blocks: Vec<_> = (1..20).map(|bytes| arena.allocate(&Request::new(bytes * 7)).unwrap()).collect();
    assert!(blocks[18].grow_in_place(500));
    for block in &blocks {
        // SAFETY: a live block begins there.
        let size = unsafe { arena.allocated_size_slow(block.as_ptr()) };
        assert_eq!(size, Some(block.capacity()));
    }
}

#[test]
fn device_memory_is_aligned_to_256_bytes() {
    let (device, upstream, arena) = arena();
    let null = Direct::new(Null::new(Device::cuda(0))).into_ref().erase();
    let in_null = Arena::new(Null::new(Device::cuda(0)), 1 << 20).into_ref().erase();
    for allocator in [upstream, arena.clone().erase(), null, in_null.clone()] {
        for bytes in [0, 1, 100] {
            let block = allocator.allocate(&Request::new(bytes)).unwrap();
            assert!(block.align() == Alignment::PLANNED, "{} {bytes}", allocator.name());
            assert!(block.align().is_aligned(block.as_ptr().as_ptr().addr()));
        }
        let explicit = allocator.allocate(&Request::new(100).align(Alignment::CPU)).unwrap();
        assert_eq!(explicit.align(), Alignment::CPU);
    }
    drop(device);
    // Past the first allocations, when an arena's thread has a lease.
    let addresses: Vec<_> =
        (0..40).map(|_| in_null.allocate(&Request::new(8)).unwrap().as_ptr().as_ptr().addr()).collect();
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] == 256), "{addresses:?}");
    let host = Arena::new(System::new(), 1 << 20).into_ref();
    let [first, second] = [(); 2].map(|()| host.allocate(&Request::new(8)).unwrap());
    assert_eq!(second.as_ptr().as_ptr().addr() - first.as_ptr().as_ptr().addr(), 64);
    assert_eq!(first.align(), Alignment::CPU);
}

#[test]
fn a_segment_that_is_refused_was_never_reserved() {
    let (_device, _upstream, arena) = arena();
    drop(block(&arena, stream(1)));
    let peak = arena.usage().peak_reserved;
    assert!(arena.allocate(&Request::new(1 << 30).stream(stream(1))).is_err());
    assert_eq!(arena.usage().peak_reserved, peak);
}
