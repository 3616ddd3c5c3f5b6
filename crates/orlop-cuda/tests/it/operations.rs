//! Copies and fills.

use crate::machine::Machine;
use orlop_alloc::{
    Allocator, Block, Error, Request,
    engine_support::{DeviceOps, DevicePtr, StridedLoops},
};
use orlop_core::{Device, Layout, Shape, StreamId, Strides};
use orlop_cuda::{CudaOps, DeviceStream, PinnedAllocator, caching_allocator};
use orlop_cudasim_control::SimulationConfig;
use std::ptr::NonNull;

fn host(bytes: &mut [u8]) -> DevicePtr {
    DevicePtr::new(NonNull::from(bytes).cast(), Device::CPU)
}

fn far(block: &Block) -> DevicePtr {
    DevicePtr::new(block.as_ptr(), block.device())
}

fn read(ops: &CudaOps, block: &Block, stream: &DeviceStream) -> Vec<u8> {
    let mut bytes = vec![0; block.len()];
    // SAFETY: both have this many bytes, and are kept until the stream was waited for.
    unsafe { ops.copy(host(&mut bytes), far(block), block.len(), stream.id()) }.unwrap();
    ops.synchronize(stream.id()).unwrap();
    bytes
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect()
}

#[test]
fn pageable_memory_is_copied_through_two_buffers() {
    let machine = Machine::new(&SimulationConfig::new());
    let (ops, stream) = (CudaOps::new(&machine.device), machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    for bytes in [1, 1000, 1 << 20, (1 << 20) + 1, 5_000_001] {
        let block = allocator.allocate(&Request::new(bytes).stream(stream.id())).unwrap();
        let (mut source, expected) = (noise(bytes), noise(bytes));
        let from = host(&mut source);
        // SAFETY: both have this many bytes; the source has been read when the call returns.
        unsafe { ops.copy(far(&block), from, bytes, stream.id()) }.unwrap();
        source.fill(0);
        assert!(read(&ops, &block, &stream) == expected, "{bytes}");
    }
    let block = allocator.allocate(&Request::new(4096).stream(stream.id())).unwrap();
    let (mut source, waits) = (noise(4096), machine.counts().waits);
    // SAFETY: as above.
    unsafe { ops.copy(far(&block), host(&mut source), 4096, stream.id()) }.unwrap();
    assert_eq!(machine.counts().waits, waits);
    assert_eq!(machine.races(), []);
}

#[test]
fn a_copy_to_pinned_memory_waits_for_nothing() {
    let machine = Machine::new(&SimulationConfig::new());
    let (ops, stream) = (CudaOps::new(&machine.device), machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let pinned = PinnedAllocator::new(&machine.device).into_ref();
    let block = allocator.allocate(&Request::new(1 << 22).stream(stream.id()).zeroed()).unwrap();
    let mut there = pinned.allocate(&Request::new(1 << 22)).unwrap();
    there.bytes_mut().unwrap().fill(1);
    let waits = machine.counts().waits;
    let to = DevicePtr::new(there.as_ptr(), Device::CPU);
    // SAFETY: both have this many bytes, and are kept until the stream was waited for.
    unsafe { ops.copy(to, far(&block), 1 << 22, stream.id()) }.unwrap();
    assert_eq!(machine.counts().waits, waits);
    ops.synchronize(stream.id()).unwrap();
    assert!(there.bytes().unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn fills_of_every_length() {
    let machine = Machine::new(&SimulationConfig::new());
    let (ops, stream) = (CudaOps::new(&machine.device), machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    for (pattern, count, offset) in [
        (&[7][..], 1000, 3),
        (&[1, 2], 500, 2),
        (&[1, 2], 500, 1),
        (&[1, 2, 3], 333, 0),
        (&[1, 2, 3, 4], 250, 4),
        (&[1, 2, 3, 4, 5, 6, 7, 8], 125, 8),
        (&[9; 16], 60, 0),
        (&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], 60, 16),
        (&[], 10, 0),
        (&[5], 0, 0),
    ] {
        let block = allocator.allocate(&Request::new(1100).stream(stream.id()).zeroed()).unwrap();
        let mut expected = vec![0; 1100];
        let filled = pattern.repeat(count);
        expected[offset..offset + filled.len()].copy_from_slice(&filled);
        // SAFETY: inside the block.
        let to = unsafe { block.device_ptr().add(offset) };
        // SAFETY: inside the block, which only this stream uses.
        unsafe { ops.fill(to, pattern, count, stream.id()) }.unwrap();
        assert!(read(&ops, &block, &stream) == expected, "{pattern:?} {count} {offset}");
    }
}

#[test]
fn strided_copies_agree_with_loops_over_elements() {
    let machine = Machine::new(&SimulationConfig::new());
    let (ops, stream) = (CudaOps::new(&machine.device), machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let pinned = PinnedAllocator::new(&machine.device).into_ref();
    let layout = |sizes: &[usize], strides: &[usize]| {
        Layout::new(Shape::new(sizes).unwrap(), Strides::new(strides).unwrap(), 0).unwrap()
    };
    let layouts = [
        layout(&[2, 4, 5, 3], &[60, 15, 3, 1]),
        layout(&[2, 4, 5, 3], &[150, 30, 5, 1]),
        layout(&[2, 4, 5, 3], &[1, 2, 8, 40]),
        layout(&[2, 4, 5, 3], &[200, 3, 40, 1]),
        layout(&[2, 4, 5, 3], &[0, 3, 12, 1]),
    ];
    const ITEM: usize = 4;
    let offsets =
        |layout: &Layout| -> Vec<usize> {
            let strides: Vec<usize> = layout.strides().iter().copied().collect();
            let mut all = Vec::new();
            for a in 0..2 {
                for b in 0..4 {
                    for c in 0..5 {
                        all.extend((0..3).map(|d| {
                            (a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]) * ITEM
                        }));
                    }
                }
            }
            all
        };
    let source = noise(2400);
    let request = Request::new(2400).stream(stream.id());
    let from_far = allocator.allocate(&request).unwrap();
    // SAFETY: both have this many bytes.
    unsafe { ops.copy(far(&from_far), host(&mut source.clone()), 2400, stream.id()) }.unwrap();
    let mut from_pinned = pinned.allocate(&Request::new(2400)).unwrap();
    from_pinned.bytes_mut().unwrap().copy_from_slice(&source);
    let mut from_host = source.clone();
    for to in &layouts[..4] {
        for from in &layouts {
            for origin in [far(&from_far), DevicePtr::kept(from_pinned.as_ptr()), host(&mut from_host)] {
                let block = allocator.allocate(&request.zeroed()).unwrap();
                let mut expected = vec![0; 2400];
                for (to, from) in offsets(to).into_iter().zip(offsets(from)) {
                    expected[to..to + ITEM].copy_from_slice(&source[from..from + ITEM]);
                }
                StridedLoops::with((to, ITEM), Some((from, ITEM)), |loops| {
                    // SAFETY: the layouts are inside the blocks.
                    unsafe { ops.copy_strided(far(&block), origin, ITEM, loops, stream.id()) }
                })
                .unwrap()
                .unwrap();
                assert!(read(&ops, &block, &stream) == expected, "{to:?} {from:?} {origin:?}");
            }
        }
    }
    assert_eq!(machine.races(), []);
}

#[test]
fn what_is_not_supported_is_refused() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]));
    let ops = CudaOps::new(&machine.device);
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(100)).unwrap();
    let other = DevicePtr::new(block.as_ptr(), Device::cuda(1));
    // SAFETY: refused before anything is accessed.
    let refused = unsafe { ops.copy(other, far(&block), 100, StreamId::HOST) };
    assert!(matches!(refused, Err(Error::NoCopyPath { .. })));
    // SAFETY: as above.
    let refused = unsafe { ops.copy(far(&block), far(&block), 1, StreamId::from_raw(u64::MAX >> 1)) };
    let error = refused.unwrap_err();
    assert!(matches!(error.backend_error(), Some(orlop_cuda::CudaError::UnknownStream { .. })));
}

/// More copies at once than one buffer serves: none is freed while the device reads it, also where frees do
/// not wait.
#[test]
fn buffers_of_copies_at_once_are_kept() {
    let machine = Machine::new(&SimulationConfig::new().bytes_per_microsecond(10).memory(1 << 30));
    let ops = CudaOps::new(&machine.device);
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let barrier = std::sync::Barrier::new(12);
    let streams: Vec<_> = (0..12).map(|_| machine.device.create_stream().unwrap()).collect();
    std::thread::scope(|scope| {
        for stream in &streams {
            let (ops, allocator, barrier) = (&ops, &allocator, &barrier);
            scope.spawn(move || {
                let bytes = 3 << 20;
                let to = allocator.allocate(&Request::new(bytes).stream(stream.id())).unwrap();
                let host = vec![7_u8; bytes];
                for _ in 0..3 {
                    barrier.wait();
                    let from = DevicePtr::new(NonNull::from(host.as_slice()).cast(), Device::CPU);
                    let place = DevicePtr::new(to.as_ptr(), to.device());
                    // SAFETY: both have these bytes, and the source is read when it returns.
                    unsafe { ops.copy(place, from, bytes, stream.id()) }.unwrap();
                }
            });
        }
    });
    let allocated = machine.counts().pinned;
    assert!(ops.staging().kept > 0 && allocated >= ops.staging().kept);
    drop(ops);
    machine.device.context().synchronize().unwrap();
    assert_eq!(machine.races(), []);
}
