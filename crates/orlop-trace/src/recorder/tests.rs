//! The recorder on allocators.

use super::*;
use crate::formats::binary::{EventOrder, read_binary};
use crate::formats::device_number;
use crate::history::{HistoryEvent, TextId};
use orlop_alloc::adaptor::Limit;
use orlop_alloc::backing::System;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Request, Tag};
use orlop_core::StreamId;
use orlop_device::{DeviceAllocator, NullDevice, Policy};

fn watched(recorder: &Recorder) -> AllocatorRef {
    let allocator = Caching::new(System::new()).into_ref().erase();
    allocator.add_observer(recorder.observer());
    allocator
}

/// The events of blocks on the first device of a history.
fn blocks(history: &History) -> Vec<HistoryEvent> {
    let regions = [
        EventAction::RegionReserved,
        EventAction::RegionReleased,
        EventAction::Mapped,
        EventAction::Unmapped,
    ];
    let events = history.devices[0].events.iter();
    events.filter(|event| !regions.contains(&event.action)).copied().collect()
}

fn events(recorder: &Recorder) -> Vec<HistoryEvent> {
    blocks(&recorder.history())
}

#[test]
fn the_lifetime_of_a_block_is_recorded() {
    let recorder = Recorder::new();
    // A device engine: others refuse to record the streams of their uses.
    let device = Device::cuda(0);
    let allocator =
        DeviceAllocator::new(NullDevice::new(device, 1 << 30), Policy::orlop()).into_ref().erase();
    allocator.add_observer(recorder.observer());
    let request =
        Request::new(1000).tag(Tag::new("kv")).kind(MemoryKind::KvCache).stream(StreamId::from_raw(9));
    let block = allocator.allocate(&request).unwrap();
    let address = block.as_ptr().addr().get() as u64;
    block.record_stream(StreamId::from_raw(4)).unwrap();
    drop(block);
    let history = recorder.history();
    assert_eq!(history.devices[0].device, device_number(device));
    let events = blocks(&history);
    let actions: Vec<_> = events.iter().map(|event| (event.action, event.stream.raw())).collect();
    assert_eq!(actions, [(EventAction::Allocate, 9), (EventAction::Use, 4), (EventAction::FreeRequested, 9)]);
    for event in &events {
        assert_eq!((event.address, event.bytes, event.kind), (address, 1000, MemoryKind::KvCache));
        assert_eq!(history.sites.name(event.text), "kv");
        assert!(event.thread > 0);
    }
    assert!(events.is_sorted_by_key(|event| event.time));
    allocator.remove_observer(&recorder.observer());
    drop(allocator.allocate(&Request::new(1)).unwrap());
    assert_eq!(self::events(&recorder).len(), 3);
    assert_eq!(recorder.lost(), 0);
}

#[test]
fn failures_and_annotations_are_recorded() {
    let recorder = Recorder::new();
    let allocator = Limit::new(Direct::new(System::new()).into_ref(), 100).into_ref().erase();
    allocator.add_observer(recorder.observer());
    recorder.annotate("step 1");
    assert!(allocator.allocate(&Request::new(1000).tag(Tag::new("big"))).is_err());
    recorder.annotate_on(Device::cuda(0), "step 1");
    let history = recorder.history();
    let [gpu, host] = &history.devices[..] else { panic!("two devices") };
    let named = |event: &HistoryEvent| (event.action, history.sites.name(event.text).to_owned(), event.bytes);
    assert_eq!(named(&gpu.events[0]), (EventAction::Annotation, "step 1".to_owned(), 0));
    assert_eq!(named(&host.events[0]), (EventAction::Annotation, "step 1".to_owned(), 0));
    assert_eq!(named(&host.events[1]), (EventAction::OutOfMemory, "big".to_owned(), 1000));
}

#[test]
fn the_oldest_are_overwritten_and_counted() {
    let recorder = Recorder::builder().capacity(8).build();
    let allocator = watched(&recorder);
    for bytes in 1..=10 {
        drop(allocator.allocate(&Request::new(bytes)).unwrap());
    }
    let bytes: Vec<_> = events(&recorder).iter().map(|event| event.bytes).collect();
    assert_eq!(bytes, [7, 7, 8, 8, 9, 9, 10, 10]);
    assert_eq!(recorder.lost(), 12);
}

#[test]
fn a_drain_writes_what_is_new() {
    let recorder = Recorder::builder().capacity(4).build();
    let allocator = watched(&recorder);
    let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly).unwrap();
    let mut all = DrainReport::default();
    for bytes in 1..=7 {
        drop(allocator.allocate(&Request::new(bytes).tag(Tag::new("drained"))).unwrap());
        if bytes < 5 {
            let drained = recorder.drain(&mut file).unwrap();
            all.events += drained.events;
            assert_eq!(drained.lost, 0);
        }
    }
    let last = recorder.drain(&mut file).unwrap();
    // A region was reserved before the first block.
    assert_eq!((all.events, last), (9, DrainReport { events: 4, lost: 2, own: 0 }));
    assert_eq!(recorder.lost(), 2);
    let history = read_binary(&file.finish().unwrap()[..]).unwrap();
    assert_eq!(history.devices[0].events.len(), 13);
    let events = blocks(&history);
    let bytes: Vec<_> = events.iter().map(|event| event.bytes).collect();
    assert_eq!(bytes, [1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 7, 7]);
    assert!(events.iter().all(|event| history.sites.name(event.text) == "drained"));
}

#[test]
fn threads_are_merged_in_order() {
    let recorder = Recorder::new();
    let allocator = watched(&recorder);
    let (threads, each) = if cfg!(miri) { (3, 5) } else { (40, 200) };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for bytes in 1..=each {
                    drop(allocator.allocate(&Request::new(bytes)).unwrap());
                }
            });
        }
    });
    assert_eq!(recorder.lost(), 0);
    let events = events(&recorder);
    assert_eq!(events.len(), threads * each * 2);
    assert!(events.is_sorted_by_key(|event| event.time));
    // The events of each thread are in order.
    let mut by_thread: std::collections::HashMap<u32, Vec<u64>> = std::collections::HashMap::new();
    for event in &events {
        by_thread.entry(event.thread).or_default().push(event.bytes);
    }
    assert_eq!(by_thread.len(), threads);
    let expected: Vec<u64> = (1..=each as u64).flat_map(|bytes| [bytes, bytes]).collect();
    assert!(by_thread.values().all(|bytes| *bytes == expected));
}

#[test]
fn the_recorders_own_memory_is_not_recorded() {
    let recorder = Recorder::new();
    let allocator = watched(&recorder);
    drop(allocator.allocate(&Request::new(1)).unwrap());
    let busy = RecordingGuard::begin();
    drop(allocator.allocate(&Request::new(2)).unwrap());
    recorder.annotate("within");
    drop(busy);
    // A region and a block are recorded. The annotation is lost; the other block is the recorder's own.
    assert_eq!((events(&recorder).len(), recorder.lost()), (2, 1));
    let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly).unwrap();
    assert_eq!(recorder.drain(&mut file).unwrap(), DrainReport { events: 3, lost: 0, own: 2 });
    assert_eq!(recorder.drain(&mut file).unwrap(), DrainReport::default());
}

#[test]
fn a_file_does_not_claim_its_own_blocks_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.orlop");
    let recording = Recorder::to_file(&path).unwrap();
    let allocator = watched(recording.recorder());
    let busy = RecordingGuard::begin();
    drop(allocator.allocate(&Request::new(1)).unwrap());
    drop(busy);
    drop(allocator.allocate(&Request::new(2)).unwrap());
    assert_eq!(recording.finish().unwrap(), DrainReport { events: 3, lost: 0, own: 2 });
    assert_eq!(History::read(&path).unwrap().warnings, []);
}

/// Such as a region that is reserved for a ring: other blocks will be in it, too.
#[test]
fn regions_that_are_delivered_while_recording_are_known() {
    let recorder = Recorder::new();
    let allocator = Direct::new(System::new()).into_ref().erase();
    allocator.add_observer(recorder.observer());
    let busy = RecordingGuard::begin();
    let block = allocator.allocate(&Request::new(100)).unwrap();
    drop(busy);
    let events = recorder.history().devices.remove(0).events;
    assert_eq!(events.iter().map(|event| event.action).collect::<Vec<_>>(), [EventAction::RegionReserved]);
    let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly).unwrap();
    let busy = RecordingGuard::begin();
    drop(block);
    drop(busy);
    assert_eq!(recorder.drain(&mut file).unwrap(), DrainReport { events: 2, lost: 0, own: 2 });
    assert_eq!(recorder.lost(), 0);
}

#[test]
fn annotations_without_text_have_none() {
    let recorder = Recorder::new();
    recorder.annotate("");
    assert_eq!(events(&recorder)[0].text, TextId::NONE);
}

/// A ring, 48 bytes per event, is allocated at the first event of its thread: its size has a bound.
#[test]
fn a_huge_capacity_is_bounded() {
    for capacity in [usize::MAX, (1 << 63) + 1, 1 << 62, MAX_CAPACITY + 1] {
        let recorder = Recorder::builder().capacity(capacity).build();
        assert_eq!(format!("{:?}", recorder.inner.rings), "Rings { capacity: 16777216, made: 0 }");
    }
    let recorder = Recorder::builder().capacity(3).build();
    (0..6).for_each(|step| recorder.annotate(&format!("step {step}")));
    assert_eq!((events(&recorder).len(), recorder.lost()), (4, 2));
}
