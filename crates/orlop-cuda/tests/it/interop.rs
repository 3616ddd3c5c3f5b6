//! orlop's memory in launches of cudarc, and memory of other code as blocks.

use crate::machine::Machine;
use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use orlop_alloc::{
    Allocator, Block, Deleter, Error, Request,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_core::Device;
use orlop_cuda::{
    BlockSlice, CudaDevice, CudaError, CudaOps, DeviceStream, KernelPointer, PinnedAllocator,
    caching_allocator,
};
use orlop_cudasim_control::{KernelAccess, KernelCall, KernelMemory, SimulationConfig};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PTX: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry orlop_fill(.param .u64 to, .param .u32 count, .param .u32 value) { ret; }
";

/// Returns a kernel that writes `count` words.
fn fill_kernel(machine: &Machine) -> CudaFunction {
    let bytes = |call: &KernelCall| usize::try_from(call.half_word(1)).unwrap() * 4;
    let accesses = move |call: &KernelCall| vec![KernelAccess::write(call.address(0), bytes(call))];
    let run = move |call: &KernelCall, memory: &mut KernelMemory| {
        let word = call.half_word(2).to_ne_bytes();
        memory.write(call.address(0), &word.repeat(bytes(call) / 4));
    };
    machine.register_kernel("orlop_fill", (accesses, run)).unwrap();
    let module = machine.device.context().load_module(Ptx::from_src(PTX)).unwrap();
    module.load_function("orlop_fill").unwrap()
}

fn launch(kernel: &CudaFunction, stream: &DeviceStream, to: KernelPointer<u32>, count: u32, value: u32) {
    let mut launch = stream.cudarc().launch_builder(kernel);
    launch.arg(&to).arg(&count).arg(&value);
    // SAFETY: the arguments are those of the kernel, which writes `count` words of a block.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }.unwrap();
}

fn words(ops: &CudaOps, block: &Block, stream: &DeviceStream) -> Vec<u32> {
    let mut bytes = vec![0; block.len()];
    let to = DevicePtr::new(NonNull::from(bytes.as_mut_slice()).cast(), Device::CPU);
    // SAFETY: both have this many bytes, and are kept until the stream was waited for.
    unsafe { ops.copy(to, DevicePtr::new(block.as_ptr(), block.device()), block.len(), stream.id()) }
        .unwrap();
    ops.synchronize(stream.id()).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

fn cuda_error(error: &Error) -> Option<&CudaError> {
    error.backend_error()
}

#[test]
fn a_launch_uses_a_block_and_its_memory_is_reused_after_it() {
    let machine = Machine::new(&SimulationConfig::new());
    let kernel = fill_kernel(&machine);
    let [one, two] = [0, 1].map(|_| machine.device.create_stream().unwrap());
    let (ops, allocator) = (CudaOps::new(&machine.device), caching_allocator(&machine.device).unwrap());
    let allocator = allocator.into_ref();
    let request = Request::new(4000).stream(one.id());
    for value in 1..50 {
        let block = allocator.allocate(&request).unwrap();
        launch(&kernel, &one, KernelPointer::of(&block, &one).unwrap(), 1000, 0);
        assert!(block.stream_uses().next().is_none(), "its own stream is no other one");
        // Another stream is ordered after the first one, and recorded.
        launch(&kernel, &two, KernelPointer::of(&block, &two).unwrap(), 1000, value);
        assert!(block.stream_uses().eq([two.id()]));
        if value % 10 == 0 {
            assert_eq!(words(&ops, &block, &two), [value; 1000]);
        }
        drop(block);
        let next = allocator.allocate(&request).unwrap();
        launch(&kernel, &one, KernelPointer::of(&next, &one).unwrap(), 1000, 0);
    }
    assert_eq!(machine.races(), []);
    allocator.verify().unwrap();
}

#[test]
fn a_pointer_into_a_shared_block_stays_inside() {
    let machine = Machine::new(&SimulationConfig::new());
    let kernel = fill_kernel(&machine);
    let stream = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(4096).stream(stream.id()).zeroed()).unwrap();
    let (start, shared) = (block.as_ptr().as_ptr().addr(), block.share());
    let half = KernelPointer::within(&shared, 2048, &stream).unwrap();
    assert_eq!(half.address(), start as u64 + 2048);
    launch(&kernel, &stream, half, 512, 7);
    stream.synchronize().unwrap();
    let expected = [[0_u8; 2048], *[7_u32.to_ne_bytes(); 512].as_flattened().as_array().unwrap()].concat();
    assert!(machine.read(start, 4096).unwrap() == expected);
    let outside = KernelPointer::<u32>::within(&shared, 1 << 30, &stream).unwrap_err();
    assert!(matches!(cuda_error(&outside), Some(CudaError::NotOnDevice { .. })), "{outside}");
    let overflow = KernelPointer::<u32>::within(&shared, usize::MAX, &stream).unwrap_err();
    assert!(matches!(cuda_error(&overflow), Some(CudaError::NotOnDevice { .. })), "{overflow}");
}

#[test]
fn memory_of_another_device_is_refused() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]));
    let second = CudaDevice::new(1).unwrap();
    let stream = machine.device.create_stream().unwrap();
    let mut far = caching_allocator(&second).unwrap().into_ref().allocate(&Request::new(1000)).unwrap();
    let host = PinnedAllocator::new(&machine.device).into_ref().allocate(&Request::new(1000)).unwrap();
    for block in [&far, &host] {
        let refused = KernelPointer::<u8>::of(block, &stream).unwrap_err();
        assert!(matches!(cuda_error(&refused), Some(CudaError::NotOnDevice { .. })), "{refused}");
    }
    let refused = BlockSlice::<u8>::of(&mut far, &stream).map(|_| ()).unwrap_err();
    assert!(matches!(cuda_error(&refused), Some(CudaError::NotOnDevice { .. })), "{refused}");
    let slice = second.create_stream().unwrap().cudarc().alloc_zeros::<u8>(100).unwrap();
    let refused = machine.device.block_of_slice(slice).map(|_| ()).unwrap_err();
    assert!(matches!(cuda_error(&refused), Some(CudaError::OtherContext { .. })), "{refused}");
}

#[test]
fn a_block_is_a_slice_of_cudarc() {
    let machine = Machine::new(&SimulationConfig::new());
    let [one, two] = [0, 1].map(|_| machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let mut block = allocator.allocate(&Request::new(4002).stream(one.id())).unwrap();
    let values: Vec<u32> = (0..1000).collect();
    let mut slice = BlockSlice::<u32>::of(&mut block, &two).unwrap();
    two.cudarc().memcpy_htod(&values, &mut slice).unwrap();
    // On a stream that nothing else knows of: ordered by the slice.
    let mut back = vec![0_u32; 1000];
    one.cudarc().memcpy_dtoh(&slice, &mut back).unwrap();
    one.synchronize().unwrap();
    assert_eq!(back, values);
    assert!(block.stream_uses().eq([two.id()]));
    drop(block);
    let next = allocator.allocate(&Request::new(4002).stream(one.id())).unwrap();
    machine.write(&one, &next);
    assert_eq!(machine.races(), []);
}

#[test]
fn a_slice_of_cudarc_is_a_block() {
    let machine = Machine::new(&SimulationConfig::new());
    let ops = CudaOps::new(&machine.device);
    let stream = machine.device.create_stream().unwrap();
    let slice = stream.cudarc().clone_htod(&[5_u32, 6, 7]).unwrap();
    let block = machine.device.block_of_slice(slice).unwrap();
    assert_eq!((block.device(), block.len()), (machine.device.device(), 12));
    stream.synchronize().unwrap();
    assert_eq!(words(&ops, &block, &stream), [5, 6, 7]);
    assert!(block.bytes().is_err(), "the host cannot read it");
    assert!(machine.used_memory(0) > 0);
    drop(block);
    stream.synchronize().unwrap();
    assert_eq!(machine.used_memory(0), 0);
    assert_eq!(machine.races(), []);
}

#[test]
fn foreign_memory_is_checked_and_given_back_once() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let slice = stream.cudarc().alloc_zeros::<u8>(4096).unwrap();
    stream.synchronize().unwrap();
    let address = machine.live_allocations()[0].address;
    let freed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&freed);
    let deleter = Deleter::from_closure(move |_| {
        assert!(!flag.swap(true, Ordering::Relaxed));
        drop(slice);
    });
    // SAFETY: the slice's memory, until the deleter drops it.
    let block = unsafe { machine.device.foreign_block(address, 4096, deleter) }.unwrap();
    assert_eq!(block.as_ptr().as_ptr().addr() as u64, address);
    assert!(!freed.load(Ordering::Relaxed));
    drop(block);
    assert!(freed.load(Ordering::Relaxed));

    let mut host = [0_u8; 64];
    for address in [host.as_mut_ptr().addr() as u64, 0, u64::MAX] {
        let (ran, deleter) = deleter_that_notes();
        // SAFETY: it is refused.
        let refused = unsafe { machine.device.foreign_block(address, 64, deleter) }.map(|_| ()).unwrap_err();
        assert!(matches!(cuda_error(&refused), Some(CudaError::NotOnDevice { .. })), "{refused}");
        assert!(ran.load(Ordering::Relaxed), "nothing is leaked");
    }
}

fn deleter_that_notes() -> (Arc<AtomicBool>, Deleter) {
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    (ran, Deleter::from_closure(move |_| flag.store(true, Ordering::Relaxed)))
}
