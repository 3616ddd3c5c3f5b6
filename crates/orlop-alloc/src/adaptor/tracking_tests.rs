//! Tests of the tracking adaptor.

use super::*;
use crate::backing::{Null, System};
use crate::engine::Direct;
use crate::{Allocator, AllocatorRef, Block};
use orlop_core::Device;

fn tracked() -> AllocatorRef<Tracking<Direct<System>>> {
    Tracking::new(Direct::new(System::new())).into_ref()
}

#[test]
fn adds_sizes_ids_and_a_high_water_mark() {
    let allocator = tracked();
    assert!(allocator.has_tracked_sizes() && !allocator.inner().has_tracked_sizes());
    let block = allocator.allocate(&Request::new(100).kind(MemoryKind::KvCache)).unwrap();
    let found = allocator.find(block.as_ptr().as_ptr().addr()).unwrap();
    assert_eq!((found.requested, found.granted, found.id), (100, block.capacity(), block.id()));
    assert_eq!(found.kind, MemoryKind::KvCache);
    let second = allocator.allocate(&Request::new(50)).unwrap();
    let mark = (block.capacity() + second.capacity()) as u64;
    drop((block, second));
    assert_eq!((allocator.live_bytes(), allocator.high_water_mark()), (0, mark));
    allocator.reset_peaks();
    assert_eq!(allocator.high_water_mark(), 0);
}

#[test]
fn gives_a_raw_deleter_to_an_engine_without() {
    let allocator = tracked();
    assert!(!allocator.inner().has_raw_deleter());
    let ptr = allocator.allocate(&Request::new(100)).unwrap().into_raw_ptr().unwrap();
    // SAFETY: given away just now and freed once.
    unsafe { allocator.free(ptr, Some(100)) }.unwrap();
    assert_eq!((allocator.live_bytes(), allocator.stats().live()), (0, 0));
    // SAFETY: the tracker knows that it is gone and refuses before upstream is asked.
    let again = unsafe { allocator.free(ptr, Some(100)) };
    assert!(matches!(again, Err(Error::DoubleFree { .. })), "{again:?}");
    // SAFETY: refused before the address is read.
    let foreign = unsafe { allocator.free(NonNull::from(&mut 0u8), None) };
    assert!(matches!(foreign, Err(Error::ForeignPointer { .. })), "{foreign:?}");
    assert_eq!(allocator.stats().refused_frees, 2);
}

#[test]
fn refuses_what_upstream_must_not_see() {
    let tracking = Tracking::new(Direct::new(System::new()));
    let elsewhere = Direct::new(System::new());
    let foreign = elsewhere.allocate(&Request::new(100)).unwrap();
    let record = foreign.record();
    // SAFETY: breaks the promise on purpose: the tracker must refuse before upstream is asked.
    let refused = unsafe { tracking.deallocate(foreign) };
    assert!(matches!(refused, Err(Error::ForeignPointer { .. })), "{refused:?}");
    // SAFETY: the refused call has let go of it.
    let own = unsafe { RawBlock::from_record(record) };
    // SAFETY: back to its own engine, once.
    unsafe { elsewhere.deallocate(own) }.unwrap();
    assert_eq!((tracking.usage().reserved, elsewhere.usage().reserved), (0, 0));
}

#[test]
fn names_what_is_alive_by_tag() {
    let allocator = tracked();
    let (kv, act) = (Tag::new("tracking test kv"), Tag::new("tracking test act"));
    let keep: Vec<Block> = [(kv, 4096), (act, 1024), (kv, 4096)]
        .map(|(tag, bytes)| allocator.allocate(&Request::new(bytes).tag(tag)).unwrap())
        .into();
    let live = allocator.live();
    assert_eq!(live.iter().map(|block| block.tag).collect::<Vec<_>>(), [kv, act, kv]);
    let mut report = OutOfMemory::new(crate::Refusal::Injected, "test", Device::CPU, &Request::new(1));
    allocator.describe(&mut report);
    let granted = (live[0].granted + live[2].granted) as u64;
    assert_eq!(report.by_tag.first(), Some(&(kv, granted)));
    drop(keep);
    assert!(allocator.live().is_empty());
}

#[test]
fn works_where_memory_cannot_be_touched_and_from_many_threads() {
    let allocator = Tracking::new(Direct::new(Null::new(Device::cuda(0))).into_ref().erase()).into_ref();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut kept = Vec::new();
                let rounds = if cfg!(miri) { 5 } else { 500 };
                for round in 0..rounds {
                    kept.push(allocator.allocate(&Request::new(1 + round * 7)).unwrap());
                    if round % 3 == 0 {
                        drop(kept.swap_remove(kept.len() / 2));
                    }
                }
            });
        }
    });
    assert_eq!((allocator.live_bytes(), allocator.live().len()), (0, 0));
    assert!(allocator.high_water_mark() > 0);
}
