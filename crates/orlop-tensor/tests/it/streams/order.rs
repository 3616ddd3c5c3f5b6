//! The order of streams: when memory is reused, and what waits for which stream.

use super::{FAR, OWN, far, numbers, side, vec_of, with_device};
use orlop_alloc::{Allocator as _, Request};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::Tensor;
use orlop_testkit::QueuedDevice;
use orlop_testkit::fake_device::FakeDeviceBacking;
use std::sync::Arc;

#[test]
fn what_a_stream_still_reads_is_not_reused() {
    with_device(|device, context| {
        let other = side();
        let source = numbers(1000).to_device(FAR).unwrap();
        let copy = context.on_stream(FAR, other, || source.duplicate().unwrap());
        drop(source);
        // On the stream of the source, which could reuse its memory at once but for the recorded use.
        let next: Vec<_> = (0..4).map(|_| Tensor::full([1000], -1, far(DType::I32)).unwrap()).collect();
        device.advance(OWN);
        assert_eq!(device.calls().synchronizations, 0);
        assert_eq!(context.on_stream(FAR, other, || vec_of(&copy)), (0..1000).collect::<Vec<_>>());
        assert!(next.iter().all(|next| vec_of(next) == [-1; 1000]));
    });
}

#[test]
fn a_stream_reuses_its_own_memory_in_order() {
    with_device(|device, _| {
        let source = numbers(1000).to_device(FAR).unwrap();
        let copy = source.duplicate().unwrap();
        drop(source);
        let next = Tensor::full([1000], -1, far(DType::I32)).unwrap();
        assert_eq!((vec_of(&copy), vec_of(&next)), ((0..1000).collect::<Vec<_>>(), vec![-1; 1000]));
        assert_eq!(device.calls().waits, 0, "one stream needs no event");
    });
}

#[test]
fn reading_waits_for_its_stream_only() {
    with_device(|device, context| {
        let (busy, here) = (side(), numbers(10));
        let there = here.to_device(FAR).unwrap();
        let kept = context.on_stream(FAR, busy, || Tensor::full([10], 1, far(DType::I32)).unwrap());
        let (pending, waits) = (device.pending(busy), device.calls().synchronizations);
        let back = there.to_device(Device::CPU).unwrap();
        assert_eq!((device.pending(busy), device.calls().synchronizations), (pending, waits + 1));
        assert!(pending > 0 && kept.is_defined());
        assert_eq!(back.as_slice::<i32>().unwrap()[..], here.as_slice::<i32>().unwrap()[..]);
    });
}

/// The first use of memory by another stream than its own comes after what that was doing with it.
#[test]
fn another_stream_comes_after_the_earlier_use_of_the_memory() {
    with_device(|device, context| {
        let other = side();
        let old = numbers(1000).to_device(FAR).unwrap();
        let address = old.storage().unwrap().block().unwrap().address();
        let copy = old.duplicate().unwrap();
        drop(old);
        let new = Tensor::empty([1000], far(DType::I32)).unwrap();
        assert_eq!(new.storage().unwrap().block().unwrap().address(), address);
        context.on_stream(FAR, other, || new.fill_(5).unwrap());
        device.advance(other);
        assert_eq!(vec_of(&copy), (0..1000).collect::<Vec<_>>());
        // Once: from then on, the caller orders the streams.
        assert_eq!(device.calls().waits, 1);
        context.on_stream(FAR, other, || new.fill_(6).unwrap());
        assert_eq!(device.calls().waits, 1);
        assert_eq!(context.on_stream(FAR, other, || vec_of(&new)), [6; 1000]);
    });
}

#[test]
fn zeros_are_written_by_the_stream_of_the_request() {
    with_device(|device, context| {
        let other = side();
        let full = Tensor::full([1000], 9, far(DType::I32)).unwrap();
        drop(full);
        let zeros = Tensor::zeros([1000], far(DType::I32)).unwrap();
        assert_eq!((device.pending(OWN), device.calls().synchronizations), (2, 0));
        assert_eq!(vec_of(&zeros), [0; 1000]);
        let zeros = context.on_stream(FAR, other, || Tensor::zeros([1000], far(DType::I32)).unwrap());
        assert!(device.pending(OWN) == 0 && device.pending(other) > 0);
        assert_eq!(context.on_stream(FAR, other, || vec_of(&zeros)), [0; 1000]);
        let mut block = context.allocate(FAR, &Request::new(4000)).unwrap();
        context.zero(&mut block, OWN).unwrap();
        assert_eq!((device.pending(OWN), device.calls().synchronizations), (1, 2));
    });
}

#[test]
fn lazy_copies_and_growth_do_not_wait() {
    with_device(|device, _| {
        let first = numbers(100).to_device(FAR).unwrap();
        let second = first.lazy_clone().unwrap();
        second.fill_(4).unwrap();
        let mut third = first.clone();
        third.resize_([100_000]).unwrap();
        third.narrow(0, 100, 100).unwrap().fill_(3).unwrap();
        assert_eq!(device.calls().synchronizations, 0);
        let expected: Vec<_> = (0..100).chain([3; 100]).collect();
        assert_eq!((vec_of(&third.narrow(0, 0, 200).unwrap()), vec_of(&second)), (expected, vec![4; 100]));
    });
}

#[test]
fn blocks_of_contexts_are_copied_without_a_wait() {
    with_device(|device, context| {
        let mut here = context.allocate(Device::CPU, &Request::new(1000)).unwrap();
        here.bytes_mut().unwrap().fill(3);
        let there = context.duplicate(&here, FAR, OWN).unwrap();
        here.bytes_mut().unwrap().fill(4);
        let other = side();
        let copy = context.duplicate(&there, FAR, other).unwrap();
        drop(there);
        let mut next = context.allocate(FAR, &Request::new(1000)).unwrap();
        context.zero(&mut next, OWN).unwrap();
        assert_eq!(device.calls().synchronizations, 0);
        device.advance(OWN);
        context.copy(&mut here, &copy, other).unwrap();
        assert_eq!((here.bytes().unwrap(), device.calls().synchronizations), (&[3; 1000][..], 1));
    });
}

/// An allocator that reuses memory at once cannot keep it for a stream.
#[test]
fn other_allocators_are_waited_for() {
    let device = QueuedDevice::new(FakeDeviceBacking::DEVICE, 1 << 20);
    let context = Context::new();
    let direct = orlop_alloc::engine::Direct::new(FakeDeviceBacking::new());
    context.register(FakeDeviceBacking::DEVICE, MemoryKind::Default, direct.into_ref()).unwrap();
    context.register_ops(FakeDeviceBacking::DEVICE, Arc::new(device.clone())).unwrap();
    context.scope(|| {
        let there = numbers(100).to_device(FakeDeviceBacking::DEVICE).unwrap();
        assert_eq!(device.calls().synchronizations, 1);
        there.fill_(1).unwrap();
        assert_eq!(device.calls().synchronizations, 2);
        let copy = there.duplicate().unwrap();
        drop(there);
        assert_eq!((vec_of(&copy), device.calls().synchronizations), (vec![1; 100], 4));
    });
}
