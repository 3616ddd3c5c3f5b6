//! Streams: which uses of a block count.

use crate::{DeviceAllocator, NullDevice, Policy};
use orlop_alloc::{Allocator, Request};
use orlop_core::{Device, StreamId};

/// Returns an allocator over 64 MiB of a device's addresses.
fn allocator_of(device: Device) -> orlop_alloc::AllocatorRef<DeviceAllocator<NullDevice>> {
    DeviceAllocator::new(NullDevice::new(device, 64 << 20), Policy::orlop()).into_ref()
}

#[test]
fn a_devices_default_stream_is_another_stream_than_the_hosts() {
    // Host memory, for example pinned, that a copy on the default stream of a device reads.
    let allocator = allocator_of(Device::CPU);
    let copying = StreamId::default_of(Device::cuda(0));
    let block = allocator.allocate(&Request::new(1000)).unwrap();
    let address = block.as_ptr();
    assert_eq!(block.stream(), StreamId::HOST);
    block.record_stream(copying).unwrap();
    assert!(block.stream_uses().eq([copying]));

    allocator.with_engine(|engine| engine.backing().set_events_done(false));
    drop(block);
    let during = allocator.allocate(&Request::new(1000)).unwrap();
    assert_ne!(during.as_ptr(), address, "the copy may still read it");
    drop(during);
    allocator.with_engine(|engine| engine.backing().set_events_done(true));
    let both = [1, 2].map(|_| allocator.allocate(&Request::new(1000)).unwrap());
    assert!(both.iter().any(|block| block.as_ptr() == address), "the copy is done");
}

#[test]
fn default_streams_of_two_devices_are_two_streams() {
    let allocator = allocator_of(Device::cuda(0));
    let block = allocator.allocate(&Request::new(1000)).unwrap();
    let (own, peer) = (StreamId::default_of(Device::cuda(0)), StreamId::default_of(Device::cuda(1)));
    assert_eq!(block.stream(), own, "a request that names no stream is for the device's default stream");
    block.record_stream(own).unwrap();
    assert!(block.stream_uses().next().is_none());
    block.record_stream(peer).unwrap();
    assert!(block.stream_uses().eq([peer]));
}
