//! Recordings of real allocators: the analysis yields the allocator's own figures.

use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_core::Device;
use orlop_device::{DeviceAllocator, NullDevice, Policy, TorchConf};
use orlop_lab::analyze::{SiteNaming, SnapshotInfo};
use orlop_trace::recorder::Recorder;

const MIB: usize = 1 << 20;

fn watched() -> (AllocatorRef, Recorder) {
    let device = NullDevice::new(Device::cuda(0), 256 << 20);
    let allocator = DeviceAllocator::new(device, Policy::torch(&TorchConf::default())).into_ref().erase();
    let recorder = Recorder::new();
    allocator.add_observer(recorder.observer());
    (allocator, recorder)
}

#[test]
fn the_figures_are_the_allocators() {
    let (allocator, recorder) = watched();
    let mut kept = Vec::new();
    for turn in 1..200 {
        kept.push(allocator.allocate(&Request::new(turn * 7919 % (3 * MIB) + 1)).unwrap());
        if turn % 3 != 0 {
            drop(kept.swap_remove(turn * 31 % kept.len()));
        }
    }
    let (history, stats) = (recorder.history(), allocator.stats());
    let info = SnapshotInfo::of(&history, SiteNaming::default()).devices.remove(0);
    assert_eq!(info.peak_reserved, Some(stats.usage.peak_reserved));
    let segments = info.end.segments.unwrap();
    assert_eq!(segments.bytes.reserved, stats.usage.reserved);
    assert_eq!(segments.bytes.requested, stats.totals.all.requested_bytes);
    assert_eq!(info.end.live.blocks, kept.len() as u64);
}

#[test]
fn a_failure_has_what_the_device_had_left() {
    let (allocator, recorder) = watched();
    let _kept = allocator.allocate(&Request::new(100 * MIB)).unwrap();
    assert!(allocator.allocate(&Request::new(200 * MIB)).is_err());
    let info = SnapshotInfo::of(&recorder.history(), SiteNaming::default());
    let failure = &info.devices[0].out_of_memory[0];
    assert_eq!((failure.device_free, failure.memory()), ((156 * MIB) as u64, Some((256 * MIB) as u64)));
}
