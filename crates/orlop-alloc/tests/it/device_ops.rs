//! Operations are tied to the device of the memory, and streams to its order.

use orlop_alloc::{
    Allocator, Block, CopyRange, Error, PendingCopy, Request, Result,
    backing::System,
    engine_support::{DeviceOps, HostOps},
};
use orlop_alloc::{AllocatorRef, engine::Direct};
use orlop_context::Context;
use orlop_core::{Device, StreamId};
use orlop_testkit::QueuedDevice;
use orlop_testkit::fake_device::FakeDeviceBacking;
use std::sync::Arc;

const NEAR: Device = Device::custom(11, 0);
const OTHER: Device = Device::custom(12, 0);

fn stream(number: u64) -> StreamId {
    StreamId::from_raw(number)
}

fn block(allocator: &AllocatorRef, stream: StreamId) -> Block {
    allocator.allocate(&Request::new(100).stream(stream)).expect("memory")
}

fn is_refused(result: Result<()>, on: Device, by: Device) -> bool {
    matches!(result, Err(Error::WrongOperations { operations, device }) if (device, operations) == (on, by))
}

#[test]
fn another_devices_operations_are_refused() {
    let [near, other] = [NEAR, OTHER].map(|device| QueuedDevice::new(device, 64 << 20));
    let [on_near, on_other] = [&near, &other].map(|device| block(&device.allocator(), stream(1)));
    let mut host = Direct::new(System::new()).into_ref().allocate(&Request::new(100)).unwrap();
    let (mut on_near, mut on_other) = (on_near, on_other);
    let one = stream(1);
    for (ops, by) in [(&HostOps as &dyn DeviceOps, Device::CPU), (&other, OTHER)] {
        assert!(is_refused(on_near.zero_by(ops, one), NEAR, by));
        assert!(is_refused(on_near.copy_by(ops, &host, one), NEAR, by));
        assert!(is_refused(host.copy_by(ops, &on_near, one), NEAR, by));
        assert!(is_refused(on_near.acquire_for(ops, stream(2)).map(drop), NEAR, by));
    }
    assert!(is_refused(host.zero_by(&near, one), Device::CPU, NEAR));
    assert!(is_refused(on_other.copy_by(&HostOps, &on_near, one), OTHER, Device::CPU));
    let shared = on_near.share();
    assert!(is_refused(shared.acquire_for(&HostOps, stream(2)).map(drop), NEAR, Device::CPU));
    assert_eq!(shared.stream_uses().count(), 0);
    let (near_calls, other_calls) = (near.calls(), other.calls());
    assert_eq!((near_calls.fills + near_calls.copies, other_calls.fills + other_calls.copies), (0, 0));
}

/// A device whose memory the host can access is one, too: its work is ordered by streams.
#[test]
fn the_hosts_operations_are_refused_on_mapped_memory() {
    let allocator = Direct::new(FakeDeviceBacking::new()).into_ref().erase();
    let mut mapped = block(&allocator, StreamId::HOST);
    let device = mapped.device();
    assert!(is_refused(mapped.zero_by(&HostOps, StreamId::HOST), device, Device::CPU));
}

#[test]
fn operations_are_registered_for_their_device_only() {
    let context = Context::new();
    let refused = context.register_ops(NEAR, Arc::new(HostOps));
    assert!(is_refused(refused, NEAR, Device::CPU));
    assert!(matches!(context.ops(NEAR), Err(Error::NoDeviceOps { device: NEAR })));
    let refused = context.register_ops(Device::CPU, Arc::new(QueuedDevice::new(NEAR, 1 << 20)));
    assert!(is_refused(refused, Device::CPU, NEAR));
    assert_eq!(context.ops(Device::CPU).unwrap().device(), Device::CPU);
    context.register_ops(NEAR, Arc::new(QueuedDevice::new(NEAR, 1 << 20))).unwrap();
    assert_eq!(context.ops(NEAR).unwrap().device(), NEAR);
}

/// Host memory that streams use is ordered by them, and the host's operations cannot wait for a stream.
#[test]
fn the_host_does_not_order_pinned_memory() {
    let pinned = QueuedDevice::new(Device::CPU, 64 << 20);
    let block = block(&pinned.allocator(), stream(1));
    let refused = block.acquire_for(&HostOps, stream(2));
    assert!(matches!(refused, Err(Error::StreamsNotHonoured { stream: of, .. }) if of == stream(1)));
    let near = QueuedDevice::new(NEAR, 1 << 20);
    assert!(block.acquire_for(&near, stream(2)).unwrap());
    assert_eq!(near.calls().waits, 1);
}

#[test]
fn a_recorded_stream_has_not_waited() {
    let device = QueuedDevice::new(NEAR, 64 << 20);
    let allocator = device.allocator();
    let (mut written, source) = (block(&allocator, stream(1)), block(&allocator, stream(1)));
    written.record_stream(stream(2)).unwrap();
    source.record_stream(stream(2)).unwrap();
    assert_eq!(device.calls().waits, 0);
    // Both blocks: their memory may be in use on their own stream.
    written.copy_by(&device, &source, stream(2)).unwrap();
    assert_eq!(device.calls().waits, 2);
    written.record_stream(stream(2)).unwrap();
    written.zero_by(&device, stream(2)).unwrap();
    assert_eq!(device.calls().waits, 3, "the own stream may have written since");
    assert_eq!(written.stream_uses().collect::<Vec<_>>(), [stream(2)]);
    written.zero_by(&device, stream(3)).unwrap();
    assert_eq!(device.calls().waits, 5, "for the own stream and the second");
    written.zero_by(&device, stream(1)).unwrap();
    assert_eq!(device.calls().waits, 7, "for both others");
    // Guards that order the streams themselves wait once.
    assert!(written.acquire_for(&device, stream(3)).unwrap());
    assert_eq!(device.calls().waits, 7);
}

#[test]
fn a_part_orders_streams_as_its_whole() {
    let device = QueuedDevice::new(NEAR, 64 << 20);
    let whole = block(&device.allocator(), stream(1)).share();
    whole.record_stream(stream(2)).unwrap();
    // SAFETY: inside of the block, which nothing else uses.
    let mut part = unsafe { whole.part(0, 50) };
    part.record_stream(stream(2)).unwrap();
    part.zero_by(&device, stream(2)).unwrap();
    assert_eq!(device.calls().waits, 1);
    drop(part);
    assert!(whole.acquire_for(&device, stream(2)).unwrap());
    assert_eq!(device.calls().waits, 2, "the use of a part does not order the rest");
}

/// Memory of a device is handed out again while the work of its former block is queued on its stream.
#[test]
fn a_pending_copy_follows_what_its_memory_was_used_for() {
    let device = QueuedDevice::new(NEAR, 64 << 20);
    let allocator = device.allocator();
    let host = |byte| {
        let host = Direct::new(System::new()).into_ref();
        host.allocate_copy(&Request::new(0), &[byte; 100]).unwrap()
    };
    let mut source = block(&allocator, stream(2));
    source.copy_by(&device, &host(7), stream(2)).unwrap();
    let mut former = block(&allocator, stream(1));
    former.copy_by(&device, &host(1), stream(1)).unwrap();
    let address = former.as_ptr();
    drop(former);
    let target = block(&allocator, stream(1));
    assert!(target.as_ptr() == address && device.pending(stream(1)) > 0);
    let mut copy = PendingCopy::new(target, Arc::new(device.clone()), stream(2));
    copy.copy_ranges(&source, &[CopyRange { to: 0, from: 0, bytes: 100 }]).unwrap();
    let target = copy.wait().unwrap();
    device.advance(stream(1));
    let mut read = host(0);
    read.copy_by(&device, &target, stream(2)).unwrap();
    assert_eq!(read.bytes().unwrap(), [7; 100]);
}

/// A copy, and the status of one, wait for its own work and not for what its stream was given later; after a
/// further copy they wait for that, too.
#[test]
fn a_pending_copy_is_waited_for_without_later_work() {
    let device = QueuedDevice::new(NEAR, 64 << 20);
    let allocator = device.allocator();
    let host = |byte| {
        let host = Direct::new(System::new()).into_ref();
        host.allocate_copy(&Request::new(0), &[byte; 100]).unwrap()
    };
    let (mut source, mut later) = (block(&allocator, stream(1)), block(&allocator, stream(1)));
    source.copy_by(&device, &host(7), stream(1)).unwrap();
    let mut copy = PendingCopy::new(host(0), Arc::new(device.clone()), stream(1));
    let status = copy.status();
    for end in [50, 100] {
        copy.copy_ranges(&source, &[CopyRange { to: end - 50, from: 0, bytes: 50 }]).unwrap();
        later.copy_by(&device, &host(1), stream(1)).unwrap();
        assert!(!status.is_done());
        if end == 50 {
            status.wait().unwrap();
            assert!(status.is_done());
        }
    }
    assert_eq!(copy.wait().unwrap().bytes().unwrap(), [7; 100]);
    assert!(status.is_done());
    assert_eq!(device.pending(stream(1)), 1, "the work after the copy has not run");
}
