//! What ours promises beyond PyTorch's rules.

use crate::{
    DeviceAllocator, DeviceBlock, DeviceRequest, Engine, Growth, NullDevice, Policy, StreamFilter, TorchConf,
};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::{Device, StreamId};
use std::sync::{Arc, Mutex};

const MIB: usize = 1 << 20;

fn engine(policy: Policy, mib: u64) -> Engine<NullDevice> {
    Engine::new(NullDevice::new(Device::cuda(0), mib << 20), policy)
}

fn on(mib: usize, stream: u64) -> DeviceRequest {
    DeviceRequest::new(mib * MIB, StreamId::new(stream))
}

fn torch() -> Policy {
    Policy::torch(&TorchConf::default())
}

/// A block that another stream uses comes back, and its memory is asked for at once: PyTorch's allocator
/// waits, gives whole regions back, does not look again and fails.
#[test]
fn a_block_that_waiting_makes_free_is_found() {
    let pending = |policy: Policy| {
        let mut engine = engine(policy, 20);
        let kept = engine.allocate(on(5, 0)).unwrap();
        let used = engine.allocate(on(12, 0)).or_else(|_| engine.allocate(on(9, 0))).unwrap();
        engine.record_stream(used, StreamId::new(1)).unwrap();
        engine.backing().set_events_done(false);
        engine.free(used).unwrap();
        let again = engine.allocate(on(9, 0));
        engine.verify().unwrap();
        let _ = kept;
        again.is_ok()
    };
    assert!(!pending(torch()), "PyTorch's");
    assert!(pending(Policy::orlop()));
    assert!(pending(Policy::orlop_without_pages()));
}

#[test]
fn memory_of_another_stream_is_taken_and_the_stream_that_takes_it_waits() {
    for (policy, fits) in [(torch(), false), (Policy::orlop(), true), (Policy::orlop_without_pages(), true)] {
        let mut engine = engine(policy, 40);
        let first = engine.allocate(on(30, 1)).unwrap();
        let kept = engine.allocate(on(2, 1)).ok();
        engine.free(first).unwrap();
        let second = engine.allocate(on(30, 2)).is_ok();
        let waited = engine.backing().waits() > 0;
        // PyTorch's gives the region back to the device and gains it again.
        assert!(second);
        assert_eq!(waited, fits);
        let _ = kept;
        engine.verify().unwrap();
    }
}

#[test]
fn free_pages_are_moved_together() {
    let mut engine = engine(Policy::orlop(), 400);
    let blocks: Vec<DeviceBlock> = (0..40).map(|_| engine.allocate(on(10, 0)).unwrap()).collect();
    for block in blocks.iter().skip(1).step_by(2) {
        engine.free(*block).unwrap();
    }
    // 200 MiB are free, in twenty pieces.
    let whole = engine.allocate(on(198, 0)).unwrap();
    engine.verify().unwrap();
    assert_eq!(engine.size(whole), 198 * MIB);
    assert_eq!(engine.backing().used(), 400 << 20);
    assert!(engine.stats().remapped_bytes >= 190 << 20);

    let mut torch = Engine::new(NullDevice::new(Device::cuda(0), 400 << 20), torch());
    let blocks: Vec<DeviceBlock> = (0..40).map(|_| torch.allocate(on(9, 0)).unwrap()).collect();
    for block in blocks.iter().skip(1).step_by(2) {
        torch.free(*block).unwrap();
    }
    assert!(torch.allocate(on(100, 0)).is_err());
}

#[test]
fn at_most_one_event_is_asked_about_however_many_streams_are_pending() {
    let mut engine = engine(Policy::orlop(), 4000);
    for stream in 1..=32 {
        let block = engine.allocate(on(2, 0)).unwrap();
        engine.record_stream(block, StreamId::new(stream)).unwrap();
        engine.backing().set_events_done(false);
        engine.free(block).unwrap();
    }
    for done in [false, true] {
        engine.backing().set_events_done(done);
        for _ in 0..100 {
            let before = engine.backing().queries();
            let block = engine.allocate(on(1, 0)).unwrap();
            assert!(engine.backing().queries() - before <= 1);
            engine.free(block).unwrap();
        }
    }
    let stats = engine.stats();
    assert_eq!(stats.active.all.current, stats.allocation.all.current, "all are back");
}

#[test]
fn many_marks_of_one_stream_take_few_questions() {
    let mut engine = engine(Policy::orlop(), 40_000);
    engine.backing().set_events_done(false);
    for _ in 0..1000 {
        let block = engine.allocate(on(2, 0)).unwrap();
        engine.record_stream(block, StreamId::new(1)).unwrap();
        engine.free(block).unwrap();
    }
    engine.backing().set_events_done(true);
    for _ in 0..12 {
        let block = engine.allocate(DeviceRequest::new(512, StreamId::DEFAULT)).unwrap();
        engine.free(block).unwrap();
    }
    assert_eq!(engine.stats().active.all.current, 0);
}

#[test]
fn what_lives_long_is_kept_apart() {
    let mut engine = engine(Policy::orlop(), 1000);
    let long = |mib| DeviceRequest { long_lived: true, ..on(mib, 0) };
    let weight = engine.allocate(long(4)).unwrap();
    let short = engine.allocate(on(4, 0)).unwrap();
    let other = engine.allocate(long(4)).unwrap();
    assert_eq!(engine.address(other) - engine.address(weight), 4 * MIB);
    engine.free(short).unwrap();
    engine.verify().unwrap();
}

#[test]
fn what_is_kept_for_the_long_lived_serves_others_before_they_fail() {
    let mut engine = engine(Policy::orlop_without_pages(), 20);
    let long = DeviceRequest { long_lived: true, ..on(9, 0) };
    let blocks = [engine.allocate(long).unwrap(), engine.allocate(long).unwrap()];
    engine.free(blocks[0]).unwrap();
    let short = engine.allocate(on(8, 0)).unwrap();
    engine.free(short).unwrap();
    engine.free(blocks[1]).unwrap();
    engine.verify().unwrap();
}

/// The second engine gets what the first shows, and both are asked the same from there on.
#[test]
fn a_restored_engine_goes_on_where_the_other_was() {
    let expandable = Policy::torch(&"expandable_segments:True".parse::<TorchConf>().unwrap());
    // A range grows on where it was; new regions have addresses that nobody can foresee, so none is needed.
    let asked: [(Policy, &[usize]); 2] = [(torch(), &[1, 25, 2, 9]), (expandable, &[1, 25, 2, 9, 50, 1, 33])];
    for (policy, sizes_after) in asked {
        let mut first = engine(policy.clone(), 1000);
        let sizes = [3, 1, 7, 30, 2, 25, 1, 40];
        let blocks: Vec<DeviceBlock> = sizes.map(|mib| first.allocate(on(mib, 0)).unwrap()).into();
        let private = (7, 1);
        first.begin_allocate_to_pool(private, StreamFilter::All).unwrap();
        let captured = first.allocate(on(5, 0)).unwrap();
        first.end_allocate_to_pool(private).unwrap();
        for freed in [1, 3, 5] {
            first.free(blocks[freed]).unwrap();
        }
        let mut second = engine(policy, 1000);
        let restored = second.restore(&first.segments()).unwrap();
        assert_eq!(restored.len(), 6);
        second.verify().unwrap();
        assert_eq!(second.segments(), first.segments());
        assert!(restored.contains_key(&first.address(captured)));
        for &mib in sizes_after {
            let (a, b) = (first.allocate(on(mib, 0)).unwrap(), second.allocate(on(mib, 0)).unwrap());
            assert_eq!(first.address(a), second.address(b), "{mib}");
            second.verify().unwrap();
        }
    }
}

/// What one stream took from another it gives back as its own: the other waits before it has it again.
#[test]
fn memory_that_was_taken_comes_back_as_the_taker_s() {
    let mut engine = engine(Policy::orlop(), 40);
    let first = engine.allocate(on(30, 1)).unwrap();
    engine.free(first).unwrap();
    let taken = engine.allocate(on(30, 2)).unwrap();
    assert_eq!(engine.backing().waits(), 1);
    engine.free(taken).unwrap();
    let again = engine.allocate(on(30, 1)).unwrap();
    assert_eq!(engine.backing().waits(), 2, "stream 1 waits for stream 2");
    engine.free(again).unwrap();
    engine.verify().unwrap();
}

#[test]
fn the_whole_of_the_memory_is_no_limit() {
    let mut engine = engine(torch(), 100);
    engine.set_memory_fraction(0.5);
    assert!(engine.allocate(on(60, 0)).is_err());
    engine.set_memory_fraction(1.0);
    let block = engine.allocate(on(60, 0)).unwrap();
    engine.set_memory_fraction(0.0);
    assert!(engine.allocate(on(20, 0)).is_err());
    engine.free(block).unwrap();
}

/// Fields of policies are anybody's: whatever they say, blocks have the bytes that were asked for and lie
/// apart.
#[test]
fn a_policy_that_makes_no_sense_is_put_right() {
    let all = [torch(), Policy::orlop(), Policy::orlop_without_pages()];
    let mut policies = Vec::new();
    for policy in all {
        policies.push(Policy { small_limit: 4 * MIB, ..policy.clone() });
        policies.push(Policy { large_region: MIB, ..policy.clone() });
        policies.push(Policy { large_region: 0, small_limit: 0, ..policy.clone() });
        policies.push(Policy { granule: 100, ..policy.clone() });
        policies.push(Policy { granule: 0, ..policy.clone() });
        policies.push(Policy { granule: usize::MAX, ..policy.clone() });
        policies.push(Policy { growth: Growth::Pages { small: 0, large: 3 * MIB + 1 }, ..policy });
    }
    for policy in policies {
        let mut engine = engine(policy.clone(), 200);
        let mut live = Vec::new();
        for bytes in [1, 700, 3 * MIB, 5 * MIB, 9 * MIB, 11 * MIB, 3 * MIB, 100] {
            let block = engine.allocate(DeviceRequest::new(bytes, StreamId::DEFAULT)).unwrap();
            assert!(engine.size(block) >= bytes, "{policy:?}");
            live.push((engine.address(block), engine.size(block), block));
            engine.verify().unwrap();
        }
        live.sort_unstable_by_key(|&(address, ..)| address);
        assert!(live.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{policy:?}");
        assert!(live.iter().all(|&(address, ..)| address % engine.policy().granule == 0), "{policy:?}");
        for (.., block) in live {
            engine.free(block).unwrap();
        }
        engine.verify().unwrap();
    }
}

#[test]
fn a_request_for_more_than_there_is_leaves_nothing_behind() {
    let mut engine = engine(Policy::orlop(), 100);
    let blocks: Vec<_> = (0..9).map(|_| engine.allocate(on(10, 0)).unwrap()).collect();
    for block in blocks {
        engine.free(block).unwrap();
    }
    let (regions, moved) = (engine.region_count(), engine.stats().remapped_bytes);
    for mib in [101, 1000, 60 << 20] {
        assert!(engine.allocate(on(mib, 0)).is_err());
        engine.verify().unwrap();
    }
    assert!(engine.region_count() <= regions);
    assert_eq!(engine.stats().remapped_bytes, moved);
}

/// Who is asked for memory gives back blocks of the allocator that asks.
#[test]
fn pressure_frees_blocks_of_the_same_allocator() {
    let device = NullDevice::new(Device::cuda(0), 64 << 20);
    let allocator = DeviceAllocator::new(device, Policy::orlop()).into_ref();
    let cache: Arc<Mutex<Vec<Block>>> = Arc::default();
    for _ in 0..6 {
        cache.lock().unwrap().push(allocator.allocate(&Request::new(10 * MIB)).unwrap());
    }
    let held = Arc::downgrade(&cache);
    allocator.on_pressure(move || held.upgrade().is_some_and(|held| held.lock().unwrap().pop().is_some()));
    // One is not enough for the second: it is asked for once, and fails then.
    let first = allocator.allocate(&Request::new(14 * MIB)).unwrap();
    assert_eq!(cache.lock().unwrap().len(), 5);
    assert!(allocator.allocate(&Request::new(30 * MIB)).is_err());
    assert_eq!(cache.lock().unwrap().len(), 4);
    drop(first);
    allocator.verify().unwrap();
}

/// It would wait for itself.
#[test]
fn an_allocator_that_is_looked_at_refuses_requests() {
    let new = || DeviceAllocator::new(NullDevice::new(Device::cuda(0), 1 << 30), torch()).into_ref();
    let (first, second) = (new(), new());
    let allocate = |allocator: &AllocatorRef<DeviceAllocator<NullDevice>>| {
        allocator.allocate(&Request::new(1000)).map(drop).is_ok()
    };
    // Another one may be.
    assert!(first.with_engine(|_| allocate(&second)));
    assert!(!first.with_engine(|_| second.with_engine(|_| allocate(&first))));
    assert!(allocate(&first) && allocate(&second));
}
