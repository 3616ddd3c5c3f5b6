//! The order of work when cudarc's functions use orlop's memory, and orlop that of cudarc: no program of safe
//! code has a race.

use crate::machine::Machine;
use cudarc::driver::CudaSlice;
use orlop_alloc::{Allocator, Block, Request};
use orlop_cuda::{
    BlockSlice, BlockView, CudaError, CudaOps, DeviceStream, DriverAllocator, KernelPointer,
    caching_allocator,
};
use orlop_cudasim_control::SimulationConfig;

const BYTES: usize = 1 << 20;

/// A machine whose copies take long.
fn slow() -> Machine {
    Machine::new(&SimulationConfig::new().bytes_per_microsecond(100))
}

fn two_streams(machine: &Machine) -> [DeviceStream; 2] {
    [0, 1].map(|_| machine.device.create_stream().unwrap())
}

fn block_for(machine: &Machine, stream: &DeviceStream) -> Block {
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    allocator.allocate(&Request::new(BYTES).stream(stream.id()).zeroed()).unwrap()
}

fn zeros(stream: &DeviceStream) -> CudaSlice<u8> {
    stream.cudarc().alloc_zeros::<u8>(BYTES).unwrap()
}

#[test]
fn a_slice_waits_for_every_stream_that_used_the_block_before() {
    let machine = slow();
    let [one, two] = two_streams(&machine);
    let (mut block, mut out, source) = (block_for(&machine, &one), block_for(&machine, &two), zeros(&one));
    machine.device.context().synchronize().unwrap();
    let write = |block: &mut Block| {
        let mut slice = BlockSlice::<u8>::of(block, &one).unwrap();
        one.cudarc().memcpy_dtod(&source, &mut slice).unwrap();
    };
    for _ in 0..3 {
        // The other stream reads; the own one writes after it.
        let read = BlockView::<u8>::of(&block, &two).unwrap();
        let mut to = BlockSlice::<u8>::of(&mut out, &two).unwrap();
        two.cudarc().memcpy_dtod(&read, &mut to).unwrap();
        write(&mut block);
        assert_eq!(machine.races(), []);
    }
}

#[test]
fn a_pointer_waits_for_every_stream_that_used_the_block_before() {
    let machine = slow();
    let [one, two] = two_streams(&machine);
    let block = block_for(&machine, &one);
    for _ in 0..3 {
        for stream in [&two, &one] {
            KernelPointer::<u8>::of(&block, stream).unwrap();
            machine.write(stream, &block);
        }
    }
    assert_eq!(machine.races(), []);
}

/// The stream of a slice lives as long as the slice: the block waits for work by its id.
#[test]
fn a_slice_keeps_its_stream() {
    let machine = slow();
    let [one, two] = two_streams(&machine);
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let request = Request::new(BYTES).stream(one.id());
    let (mut block, source) = (allocator.allocate(&request).unwrap(), zeros(&two));
    machine.device.context().synchronize().unwrap();
    let stream = two.cudarc().clone();
    let mut slice = BlockSlice::<u8>::of(&mut block, &two).unwrap();
    drop(two);
    stream.memcpy_dtod(&source, &mut slice).unwrap();
    drop(block);
    let next = allocator.allocate(&request).unwrap();
    machine.write(&one, &next);
    assert_eq!(machine.races(), []);
}

#[test]
fn parts_of_a_slice_are_inside() {
    let machine = slow();
    let [one, _] = two_streams(&machine);
    let mut block = block_for(&machine, &one);
    let mut slice = BlockSlice::<u32>::of(&mut block, &one).unwrap();
    one.cudarc().memcpy_htod(&[1, 2, 3], &mut slice.slice_mut(5..8).unwrap()).unwrap();
    let mut back = [0; 4];
    one.cudarc().memcpy_dtoh(&slice.slice(4..8).unwrap(), &mut back).unwrap();
    one.synchronize().unwrap();
    assert_eq!(back, [0, 1, 2, 3]);
    let count = BYTES / 4;
    let reversed = std::ops::Range { start: 3, end: 2 };
    for range in [reversed, 0..count + 1, usize::MAX - 1..usize::MAX, count + 1..count + 1] {
        assert!(slice.slice(range.clone()).is_none() && slice.slice_mut(range).is_none());
    }
    assert!(slice.slice(count..count).is_some());
    // Both inputs of a call are parts of one shared block.
    let shared = block.share();
    let [a, b] = [5..6, 7..8].map(|range| BlockView::<u32>::within(&shared, range, &one).unwrap());
    let read = |view: &BlockView<'_, u32>| one.cudarc().clone_dtoh(view).unwrap();
    assert_eq!((read(&a), read(&b)), (vec![1], vec![3]));
    for range in [0..count + 1, usize::MAX - 1..usize::MAX] {
        let refused = BlockView::<u32>::within(&shared, range, &one).map(|_| ()).unwrap_err();
        assert!(matches!(refused.backend_error(), Some(CudaError::NotOnDevice { .. })), "{refused}");
    }
}

#[test]
fn a_slice_of_cudarc_brings_its_stream_and_its_pending_work() {
    let machine = slow();
    let [one, two] = two_streams(&machine);
    let ops = CudaOps::new(&machine.device);
    let slice = zeros(&one);
    let block = machine.device.block_of_slice(slice).unwrap();
    assert_eq!(block.stream(), one.id(), "the stream that created the slice is known");
    let mut copy = block_for(&machine, &two);
    copy.copy_by(&ops, &block, two.id()).unwrap();
    assert!(block.stream_uses().eq([two.id()]));
    // Freed in the order of its stream, after the copy.
    drop(block);
    let _next = zeros(&one);
    assert_eq!(machine.races(), []);
    // Written on a stream other than its own, before it becomes a block.
    let mut slice = zeros(&one);
    two.cudarc().memcpy_htod(&[1_u8; BYTES], &mut slice).unwrap();
    let mut block = machine.device.block_of_slice(slice).unwrap();
    let mut used = BlockSlice::<u8>::of(&mut block, &one).unwrap();
    assert_eq!(one.cudarc().clone_dtoh(&used.slice(0..2).unwrap()).unwrap(), [1, 1]);
    two.cudarc().memset_zeros(&mut used).unwrap();
    drop(block);
    one.synchronize().unwrap();
    two.synchronize().unwrap();
    assert_eq!(machine.races(), []);
    drop((copy, _next));
}

#[test]
fn a_slice_that_was_a_block_is_freed_once() {
    let machine = slow();
    let [one, _] = two_streams(&machine);
    let block = machine.device.block_of_slice(zeros(&one)).unwrap();
    assert!(block.allocator().is_none(), "its allocator has one block");
    assert!(machine.used_memory(0) >= BYTES as u64);
    let shared = block.share();
    drop(shared.clone());
    drop(shared);
    one.synchronize().unwrap();
    assert_eq!((machine.used_memory(0), machine.races()), (0, vec![]));
}

/// One id would stand for another stream in each thread.
#[test]
fn the_per_thread_default_stream_is_refused() {
    let machine = slow();
    let stream = machine.device.context().per_thread_stream();
    let refused = |result: Result<DeviceStream, CudaError>| {
        assert!(matches!(result, Err(CudaError::PerThreadStream { .. })), "{result:?}");
    };
    // SAFETY: the stream always exists.
    refused(unsafe { machine.device.borrow_stream(stream.cu_stream()) });
    refused(machine.device.adopt_stream(stream));
}

#[test]
fn a_stream_of_cudarc_keeps_its_id_while_it_is_known() {
    let machine = slow();
    let [one, two] = two_streams(&machine);
    let again = machine.device.adopt_stream(one.cudarc().clone()).unwrap();
    assert_eq!(again.id(), one.id());
    assert_ne!(again.id(), two.id());
    let (id, stream) = (one.id(), one.cudarc().clone());
    drop((one, again));
    let later = machine.device.adopt_stream(stream).unwrap();
    assert_ne!(later.id(), id, "ids are never used again");
}

/// While a context has one stream, cudarc notes no uses of its slices: it waits before it creates another
/// one.
#[test]
fn the_first_stream_waits_for_what_cudarc_did_not_note() {
    let machine = slow();
    let context = machine.device.context().clone();
    assert!(!context.is_in_multi_stream_mode());
    let slice = context.default_stream().alloc_zeros::<u8>(4 * BYTES).unwrap();
    let _first = machine.device.create_stream().unwrap();
    let other = context.new_stream().unwrap();
    let _host = other.clone_dtoh(&slice).unwrap();
    assert_eq!(machine.races(), []);
}

/// A driver's default stream has one handle on all devices.
#[test]
fn default_streams_of_two_devices_are_two() {
    let config = SimulationConfig::new().devices([1 << 30, 1 << 30]).peer_access(true);
    let machine = Machine::new(&config.bytes_per_microsecond(100));
    let far = orlop_cuda::CudaDevice::new(1).unwrap();
    let own = machine.device.adopt_stream(machine.device.context().default_stream()).unwrap();
    // Memory that a copy of another device reaches.
    let allocator = DriverAllocator::direct(&machine.device).into_ref();
    let mut block = allocator.allocate(&Request::new(BYTES).stream(own.id())).unwrap();
    let mut slice = BlockSlice::<u8>::of(&mut block, &own).unwrap();
    own.cudarc().memcpy_htod(&[1_u8; BYTES], &mut slice).unwrap();
    let mut back = vec![0_u8; BYTES];
    far.context().default_stream().memcpy_dtoh(&slice, &mut back).unwrap();
    far.context().synchronize().unwrap();
    assert_eq!(machine.races(), []);
}

/// While a context has one stream, cudarc notes no uses of its slices.
#[test]
fn a_slice_is_a_block_after_the_last_other_stream_is_gone() {
    let machine = slow();
    let ops = CudaOps::new(&machine.device);
    let default = machine.device.context().default_stream();
    let [one, two] = two_streams(&machine);
    let mut slice = default.alloc_zeros::<u8>(BYTES).unwrap();
    one.cudarc().memcpy_htod(&[1_u8; BYTES], &mut slice).unwrap();
    let mut copy = block_for(&machine, &two);
    drop((one, two));
    let block = machine.device.block_of_slice(slice).unwrap();
    copy.copy_by(&ops, &block, machine.device.default_stream()).unwrap();
    drop(block);
    assert_eq!(machine.races(), []);
}
