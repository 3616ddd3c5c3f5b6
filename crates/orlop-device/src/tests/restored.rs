//! Engines restored from segments, valid ones and others.

use super::{MIB, torch};
use crate::{
    DeviceChunk, DeviceChunkState, DeviceError, DeviceRequest, DeviceSegment, Engine, NullDevice, Policy,
    TorchConf,
};
use orlop_core::{Device, StreamId};

const AT: usize = 1 << 40;

fn engine(conf: &str) -> Engine<NullDevice> {
    super::engine(torch(conf), 8 << 10)
}

fn segment(address: usize, sizes: &[usize], state: DeviceChunkState) -> DeviceSegment {
    let mut at = address;
    let chunks = sizes.iter().map(|&bytes| {
        let chunk = DeviceChunk { address: at, bytes, requested: bytes, state };
        at += bytes;
        chunk
    });
    let chunks = chunks.collect();
    let bytes = at - address;
    let stream = StreamId::default_of(Device::cuda(0));
    DeviceSegment { address, bytes, stream, small: false, expandable: false, pool: (0, 0), chunks }
}

#[test]
fn segments_too_large_to_be_split_are_counted() {
    let mut first = engine("max_split_size_mb:64");
    let block = first.allocate(DeviceRequest::new(100 * MIB, StreamId::default_of(Device::cuda(0)))).unwrap();
    let mut second = engine("max_split_size_mb:64");
    let restored = second.restore(&first.segments()).unwrap();
    assert_eq!(second.stats().oversize_segments.current, 1);
    second.free(restored[&first.address(block)]).unwrap();
    second.empty_cache().unwrap();
    assert_eq!(second.stats().oversize_segments.current, 0);
    assert_eq!((second.backing().used(), second.stats().segment.all.current), (0, 0));
}

#[test]
fn inconsistent_segments_are_refused_and_nothing_is_restored() {
    let good = segment(AT, &[2 * MIB, 4 * MIB], DeviceChunkState::Live);
    let changed = |change: &dyn Fn(&mut DeviceSegment)| {
        let mut bad = segment(AT + 64 * MIB, &[2 * MIB, 4 * MIB], DeviceChunkState::Live);
        change(&mut bad);
        bad
    };
    let bad = [
        changed(&|bad| bad.bytes += 1),
        changed(&|bad| bad.bytes = usize::MAX),
        changed(&|bad| bad.chunks.clear()),
        changed(&|bad| (bad.bytes, bad.chunks) = (0, Vec::new())),
        changed(&|bad| bad.chunks[1].address += 512),
        changed(&|bad| bad.chunks[0].bytes = 0),
        changed(&|bad| bad.chunks[1].bytes = usize::MAX),
        changed(&|bad| bad.chunks[1].requested = usize::MAX / 2),
        // Overlaps with the good one, completely and partly.
        good.clone(),
        segment(AT + 5 * MIB, &[MIB], DeviceChunkState::Free),
        // Addresses at the end of the address space, and more memory than the device has.
        segment(usize::MAX - MIB, &[MIB], DeviceChunkState::Free),
        segment(isize::MAX.unsigned_abs() - MIB, &[MIB], DeviceChunkState::Free),
        segment(2 * AT, &[9 << 30], DeviceChunkState::Free),
        segment(2 * AT, &[8 << 30], DeviceChunkState::Free),
    ];
    for conf in ["", "expandable_segments:True"] {
        for bad in &bad {
            let mut engine = engine(conf);
            for expandable in [false, true] {
                let segments = [good.clone(), bad.clone()].map(|like| DeviceSegment { expandable, ..like });
                let refused = engine.restore(&segments).unwrap_err();
                assert!(matches!(refused, DeviceError::BadSegment { .. }), "{bad:?}: {refused}");
            }
            assert_eq!((engine.backing().used(), engine.segments().len()), (0, 0));
            engine.verify().unwrap();
            // The engine is unchanged.
            assert_eq!(engine.restore(std::slice::from_ref(&good)).unwrap().len(), 2);
            engine.verify().unwrap();
            assert_eq!(engine.restore(&[]).unwrap_err(), DeviceError::NotNew);
        }
    }
}

/// Segments smaller than 2 MiB: after one is released, no new region overlaps its neighbours.
#[test]
fn segments_may_share_a_granule_of_addresses() {
    let device = NullDevice::like_cuda(Device::cuda(0), 8 << 30);
    let mut engine = Engine::new(device, Policy::torch(&TorchConf::default()));
    let segments = [
        segment(AT, &[MIB], DeviceChunkState::Free),
        segment(AT + MIB, &[3 * MIB], DeviceChunkState::Live),
        segment(AT + 4 * MIB, &[MIB / 2], DeviceChunkState::Free),
    ];
    engine.restore(&segments).unwrap();
    engine.empty_cache().unwrap();
    let kept = AT + MIB..AT + 4 * MIB;
    for _ in 0..40 {
        let block =
            engine.allocate(DeviceRequest::new(20 * MIB, StreamId::default_of(Device::cuda(0)))).unwrap();
        let at = engine.address(block);
        assert!(at + engine.size(block) <= kept.start || kept.end <= at);
    }
    engine.verify().unwrap();
}

/// The second segment of one range lies after the first of another.
#[test]
fn interleaved_ranges_do_not_grow_into_each_other() {
    let mut engine = engine("expandable_segments:True");
    let of = |address: usize, stream: u64| DeviceSegment {
        stream: StreamId::from_raw(stream),
        expandable: true,
        ..segment(address, &[20 * MIB], DeviceChunkState::Live)
    };
    let segments = [of(AT, 0), of(AT + 40 * MIB, 1), of(AT + 80 * MIB, 0)];
    engine.restore(&segments).unwrap();
    for _ in 0..4 {
        let block = engine.allocate(DeviceRequest::new(20 * MIB, StreamId::from_raw(1))).unwrap();
        let (start, end) = (engine.address(block), engine.address(block) + engine.size(block));
        let overlaps = |other: &DeviceSegment| start < other.address + other.bytes && other.address < end;
        assert!(!segments.iter().any(overlaps), "{start:#x}");
    }
    engine.verify().unwrap();
}
