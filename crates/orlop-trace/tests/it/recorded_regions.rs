//! Recordings of orlop's allocators have their regions, so that the reserved bytes of the allocator are
//! known.

use orlop_alloc::backing::{Mmap, System};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::{Allocator as _, AllocatorRef, Block, Request, Tag};
use orlop_core::{Device, StreamId};
use orlop_device::{DeviceAllocator, DeviceChunkState, NullDevice, Policy, TorchConf};
use orlop_trace::formats::binary::{BinaryWriter, EventOrder};
use orlop_trace::formats::snapshot::write_pickle;
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, History, Segment, SegmentBlock, Timeline,
};
use orlop_trace::recorder::Recorder;
use std::collections::BTreeMap;

const MIB: usize = 1 << 20;

fn device(policy: Policy) -> AllocatorRef {
    DeviceAllocator::new(NullDevice::new(Device::cuda(0), 256 << 20), policy).into_ref().erase()
}

fn torch(conf: &str) -> AllocatorRef {
    device(Policy::torch(&TorchConf::known(conf).0))
}

fn allocators() -> Vec<AllocatorRef> {
    vec![
        torch(""),
        torch("expandable_segments:True"),
        torch("max_split_size_mb:20,garbage_collection_threshold:0.6,per_process_memory_fraction:0.8"),
        device(Policy::orlop()),
        Caching::new(Mmap::new()).into_ref().erase(),
        Caching::builder(System::new()).limit(128 * MIB).build().into_ref().erase(),
        Bfc::builder(System::new()).limit(128 * MIB).build().into_ref().erase(),
    ]
}

/// A pseudo-random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap_or_default() % most
    }
}

/// A program whose requests fail sometimes. Returns the blocks that it keeps.
fn run(allocator: &AllocatorRef, seed: u64, steps: usize) -> Vec<Block> {
    let (mut dice, mut blocks) = (Dice(seed), Vec::new());
    for step in 0..steps {
        let most = if dice.below(6) == 0 { 40 * MIB } else { MIB / 8 };
        let stream = |dice: &mut Dice| StreamId::from_raw(dice.below(3) as u64);
        let request = Request::new(1 + dice.below(most)).stream(stream(&mut dice)).tag(Tag::new("run"));
        if let Ok(block) = allocator.allocate(&request) {
            if dice.below(4) == 0 {
                // The engine without streams refuses.
                let _recorded = block.record_stream(stream(&mut dice));
            }
            blocks.push(block);
        }
        while blocks.len() > dice.below(20) {
            drop(blocks.swap_remove(dice.below(blocks.len())));
        }
        if step % 61 == 60 {
            allocator.trim(0);
        }
    }
    blocks
}

fn watched(allocator: &AllocatorRef) -> Recorder {
    let recorder = Recorder::new();
    allocator.add_observer(recorder.observer());
    recorder
}

fn only(history: &History) -> &DeviceHistory {
    let [device] = &history.devices[..] else { panic!("one device: {}", history.devices.len()) };
    device
}

/// Walks through a recording and checks that live blocks are inside of reserved regions. Returns the reserved
/// bytes at the end, and their peak.
fn walk(device: &DeviceHistory) -> (u64, u64) {
    let mut held: BTreeMap<u64, u64> = device.start.iter().map(|held| (held.address, held.bytes)).collect();
    let holds = |held: &BTreeMap<u64, u64>, from: u64, to: u64| {
        let mut covered = to;
        while covered > from {
            match held.range(..covered).next_back() {
                Some((&start, &bytes)) if start + bytes >= covered => covered = start,
                _ => return false,
            }
        }
        true
    };
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut most = 0;
    for (place, event) in device.events.iter().enumerate() {
        let (from, to) = (event.address, event.address + event.bytes);
        match event.action {
            EventAction::Allocate => {
                assert!(holds(&held, from, to), "event {place}: a block where nothing is held");
                assert_eq!(live.insert(from, event.bytes), None);
            }
            EventAction::FreeRequested => assert_eq!(live.remove(&from), Some(event.bytes)),
            EventAction::RegionReserved | EventAction::Mapped => {
                assert!(held.range(..to).next_back().is_none_or(|(start, bytes)| start + bytes <= from));
                held.insert(from, event.bytes);
            }
            EventAction::RegionReleased | EventAction::Unmapped => {
                assert!(holds(&held, from, to), "event {place}: what was never held goes");
                let over = live.range(..to).next_back().is_none_or(|(start, bytes)| start + bytes <= from);
                assert!(over, "event {place}: a block lives in what goes");
                while let Some((start, bytes)) =
                    held.range(..to).next_back().map(|(s, b)| (*s, *b)).filter(|(s, b)| s + b > from)
                {
                    held.remove(&start);
                    if start < from {
                        held.insert(start, from - start);
                    }
                    if start + bytes > to {
                        held.insert(to, start + bytes - to);
                    }
                }
            }
            _ => {}
        }
        most = most.max(held.values().sum());
    }
    (held.values().sum(), most)
}

fn sum(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| segment.bytes).sum()
}

#[test]
fn blocks_lie_in_regions_and_the_sums_are_the_allocators() {
    for allocator in allocators() {
        let recorder = watched(&allocator);
        let kept = run(&allocator, 3, 600);
        let history = recorder.history();
        let device = only(&history);
        let (stats, name) = (allocator.stats(), allocator.name());
        assert_eq!(recorder.lost(), 0);
        assert_eq!(walk(device), (stats.usage.reserved, stats.usage.peak_reserved), "{name}");

        let timeline = Timeline::with_settings(device, history.settings.as_deref());
        assert_eq!(sum(&timeline.after(device.events.len())), stats.usage.reserved, "{name}");
        assert_eq!(timeline.ignored_events(), 0, "{name}");
        let segments = timeline.after(device.events.len());
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let live: Vec<&SegmentBlock> = blocks.filter(|block| block.state == BlockState::Live).collect();
        let requested: u64 = live.iter().map(|block| block.requested).sum();
        assert_eq!(requested, stats.totals.all.requested_bytes, "{name}");
        assert_eq!(live.len(), kept.len(), "{name}");
    }
}

#[test]
fn segments_are_the_engines_own() {
    let engine = DeviceAllocator::new(
        NullDevice::new(Device::cuda(0), 256 << 20),
        Policy::torch(&TorchConf::default()),
    );
    let engine = engine.into_ref();
    let allocator = engine.clone().erase();
    let recorder = watched(&allocator);
    let _kept = run(&allocator, 5, 300);
    let history = recorder.history();
    let device = only(&history);
    let segments = Timeline::new(device).after(device.events.len());
    let own = engine.with_engine(|engine| engine.segments());
    let fields = |segment: &Segment| (segment.address, segment.bytes, segment.stream, segment.small);
    let told: Vec<_> = segments.iter().map(fields).collect();
    // In a recording 0 is the default stream of the device.
    let recorded = |stream: StreamId| if stream.is_default() { StreamId::from_raw(0) } else { stream };
    let held = own.iter().map(|own| (own.address as u64, own.bytes as u64, recorded(own.stream), own.small));
    assert_eq!(told, held.collect::<Vec<_>>());
    let live = |block: &&SegmentBlock| block.state == BlockState::Live;
    let blocks: Vec<_> =
        segments.iter().flat_map(|s| &s.blocks).filter(live).map(|b| (b.address, b.bytes)).collect();
    let pieces = own.iter().flat_map(|own| &own.chunks);
    let pieces = pieces.filter(|piece| piece.state == DeviceChunkState::Live);
    assert_eq!(blocks, pieces.map(|piece| (piece.address as u64, piece.bytes as u64)).collect::<Vec<_>>());
}

#[test]
fn a_snapshot_of_a_recording_has_its_segments() {
    for (allocator, conf) in
        [(torch(""), ""), (torch("expandable_segments:True"), "expandable_segments:True")]
    {
        let recorder = watched(&allocator);
        let kept = run(&allocator, 9, 300);
        let mut history = recorder.history();
        history.settings = Some(conf.to_owned());
        let mut pickle = Vec::new();
        write_pickle(&history, &mut pickle).unwrap();
        let read = History::parse(&pickle[..]).unwrap();
        let device = only(&read);
        assert_eq!(sum(&device.end), allocator.usage().reserved);
        let blocks = device.end.iter().flat_map(|segment| &segment.blocks);
        assert_eq!(blocks.filter(|block| block.state == BlockState::Live).count(), kept.len());
        // Undoing all events leaves no inconsistency.
        assert_eq!((read.warnings.len(), device.start.len()), (0, 0), "{:?}", read.warnings.first());
    }
}

#[test]
fn a_late_recording_has_the_existing_regions() {
    for allocator in allocators() {
        let before = run(&allocator, 1, 100);
        let recorder = watched(&allocator);
        drop(before);
        let _kept = run(&allocator, 2, 100);
        let history = recorder.history();
        let device = only(&history);
        let last = Timeline::new(device).after(device.events.len());
        assert_eq!(sum(&last), allocator.usage().reserved, "{}", allocator.name());
    }
}

#[test]
fn regions_are_known_after_their_events_were_overwritten() {
    for allocator in allocators() {
        let recorder = Recorder::builder().capacity(16).build();
        allocator.add_observer(recorder.observer());
        let _kept = run(&allocator, 4, 400);
        let history = recorder.history();
        assert!(recorder.lost() > 0);
        let device = only(&history);
        let last = Timeline::new(device).after(device.events.len());
        assert_eq!(sum(&last), allocator.usage().reserved, "{}", allocator.name());
    }
}

#[test]
fn a_region_is_recorded_once() {
    let allocator = torch("");
    let recorder = watched(&allocator);
    let kept = allocator.allocate(&Request::new(MIB)).unwrap();
    allocator.add_observer(recorder.observer());
    drop(kept);
    allocator.trim(0);
    drop(allocator);
    let history = recorder.history();
    let actions: Vec<_> = only(&history).events.iter().map(|event| event.action).collect();
    let lives = [
        EventAction::RegionReserved,
        EventAction::Allocate,
        EventAction::FreeRequested,
        EventAction::RegionReleased,
    ];
    assert_eq!(actions, lives);
}

#[test]
fn a_drained_file_has_the_regions_too() {
    let allocator = device(Policy::orlop());
    let recorder = Recorder::builder().capacity(256).build();
    allocator.add_observer(recorder.observer());
    let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly).unwrap();
    let mut kept = Vec::new();
    for seed in 0..20 {
        kept = run(&allocator, seed, 20);
        assert_eq!(recorder.drain(&mut file).unwrap().lost, 0);
    }
    let history = History::parse(&file.finish().unwrap()[..]).unwrap();
    assert_eq!(walk(only(&history)).0, allocator.usage().reserved);
    drop(kept);
}

#[test]
fn a_file_has_the_regions_that_were_overwritten_before_it_was_drained_to() {
    for allocator in allocators() {
        let recorder = Recorder::builder().capacity(16).build();
        allocator.add_observer(recorder.observer());
        let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly).unwrap();
        let mut kept = Vec::new();
        for seed in 0..3 {
            kept.push(run(&allocator, seed, 200));
            assert!(recorder.drain(&mut file).unwrap().lost > 0);
        }
        let history = History::parse(&file.finish().unwrap()[..]).unwrap();
        let device = only(&history);
        let last = Timeline::new(device).after(device.events.len());
        assert_eq!(sum(&last), allocator.usage().reserved, "{}", allocator.name());
    }
}

#[test]
fn size_classes_are_known_after_pages_were_overwritten() {
    let engine = DeviceAllocator::new(
        NullDevice::new(Device::cuda(0), 256 << 20),
        Policy::torch(&TorchConf::known("expandable_segments:True").0),
    );
    let engine = engine.into_ref();
    let allocator = engine.clone().erase();
    let recorder = Recorder::builder().capacity(1).build();
    allocator.add_observer(recorder.observer());
    let _kept: Vec<_> = (0..40).map(|_| allocator.allocate(&Request::new(MIB)).unwrap()).collect();
    let _large = allocator.allocate(&Request::new(30 * MIB)).unwrap();
    let history = recorder.history();
    let device = only(&history);
    let own = engine.with_engine(|engine| engine.segments());
    assert_eq!(
        Timeline::new(device)
            .after(device.events.len())
            .iter()
            .map(|s| (s.bytes, s.small))
            .collect::<Vec<_>>(),
        own.iter().map(|own| (own.bytes as u64, own.small)).collect::<Vec<_>>()
    );
}

#[test]
fn a_failure_is_recorded_with_the_free_device_memory() {
    let allocator = torch("");
    let recorder = watched(&allocator);
    let stream = StreamId::from_raw(7);
    let kept = allocator.allocate(&Request::new(100 * MIB).stream(stream)).unwrap();
    let cached = allocator.allocate(&Request::new(50 * MIB)).unwrap();
    kept.record_stream(StreamId::from_raw(8)).unwrap();
    drop(cached);
    assert!(allocator.allocate(&Request::new(200 * MIB)).is_err());
    drop(kept);
    let history = recorder.history();
    let device = only(&history);
    let told: Vec<_> =
        device.events.iter().map(|event| (event.action, event.stream.raw(), event.bytes)).collect();
    let mib = |bytes: usize| (bytes * MIB) as u64;
    let expected = [
        (EventAction::RegionReserved, 7, mib(100)),
        (EventAction::Allocate, 7, mib(100)),
        (EventAction::RegionReserved, 0, mib(50)),
        (EventAction::Allocate, 0, mib(50)),
        (EventAction::FreeRequested, 0, mib(50)),
        // Cached memory is released first, which is not enough.
        (EventAction::RegionReleased, 0, mib(50)),
        (EventAction::OutOfMemory, 0, mib(200)),
        (EventAction::Use, 8, mib(100)),
        (EventAction::FreeRequested, 7, mib(100)),
    ];
    assert_eq!(told, expected);
    assert_eq!(device.events[6].address, mib(156), "what the device had left");
}

#[test]
fn threads_agree_on_the_order() {
    let allocators = [
        torch("expandable_segments:True"),
        device(Policy::orlop()),
        Caching::new(Mmap::new()).into_ref().erase(),
    ];
    for allocator in allocators {
        let recorder = watched(&allocator);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let allocator = &allocator;
                scope.spawn(move || drop(run(allocator, seed, 200)));
            }
        });
        let history = recorder.history();
        assert_eq!(walk(only(&history)).0, allocator.usage().reserved, "{}", allocator.name());
    }
}
