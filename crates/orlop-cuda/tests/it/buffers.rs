//! Owned buffers as operands of a call that has cuBLAS's shape, and tensors as arguments of a kernel.

use crate::machine::Machine;
use cudarc::driver::{CudaFunction, DevicePtr, DevicePtrMut, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_context::Context;
use orlop_core::Device;
use orlop_cuda::{
    CudaError, CudaMemory, DeviceBuffer, DeviceStream, KernelValue, PinnedAllocator, caching_allocator,
    install,
};
use orlop_cudasim_control::{KernelAccess, KernelCall, KernelMemory, SimulationConfig};
use orlop_device::DeviceAllocator;
use orlop_tensor::{PackedAccessor, Tensor};

const PTX: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry orlop_gemm(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }
.visible .entry orlop_sum(.param .align 8 .b8 from[24], .param .u64 to) { ret; }
";

const N: usize = 16;

fn floats(memory: &mut KernelMemory, address: usize, count: usize) -> Vec<f32> {
    let bytes = memory.read(address, 4 * count);
    bytes.chunks_exact(4).map(|word| f32::from_ne_bytes(word.try_into().unwrap())).collect()
}

fn product(a: &[f32], b: &[f32]) -> Vec<f32> {
    let at = |row: usize, column: usize| (0..N).map(|k| a[row * N + k] * b[k * N + column]).sum();
    (0..N * N).map(|index| at(index / N, index % N)).collect()
}

/// Returns a kernel that multiplies two square matrices.
fn gemm_kernel(machine: &Machine) -> CudaFunction {
    let bytes = |call: &KernelCall| usize::try_from(call.half_word(3)).unwrap().pow(2) * 4;
    let accesses = move |call: &KernelCall| {
        let [a, b] = [0, 1].map(|input| KernelAccess::read(call.address(input), bytes(call)));
        vec![a, b, KernelAccess::write(call.address(2), bytes(call))]
    };
    let run = move |call: &KernelCall, memory: &mut KernelMemory| {
        let [a, b] = [0, 1].map(|input| floats(memory, call.address(input), bytes(call) / 4));
        let result: Vec<u8> = product(&a, &b).into_iter().flat_map(f32::to_ne_bytes).collect();
        memory.write(call.address(2), &result);
    };
    machine.register_kernel("orlop_gemm", (accesses, run)).unwrap();
    let module = machine.device.context().load_module(Ptx::from_src(PTX)).unwrap();
    module.load_function("orlop_gemm").unwrap()
}

/// Calls the kernel with operands as cuBLAS's `gemm` of cudarc takes them.
fn gemm<A: DevicePtr<f32>, B: DevicePtr<f32>, C: DevicePtrMut<f32>>(
    (kernel, stream): (&CudaFunction, &DeviceStream),
    (a, b): (&A, &B),
    c: &mut C,
) {
    let stream = stream.cudarc();
    assert!(a.len() >= N * N && b.len() >= N * N && c.len() >= N * N);
    let (a, _a) = a.device_ptr(stream);
    let (b, _b) = b.device_ptr(stream);
    let (c, _c) = c.device_ptr_mut(stream);
    let n = u32::try_from(N).unwrap();
    let mut launch = stream.launch_builder(kernel);
    launch.arg(&a).arg(&b).arg(&c).arg(&n);
    // SAFETY: the arguments are those of the kernel, which accesses that many elements.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n * n)) }.unwrap();
}

struct Program {
    kernel: CudaFunction,
    one: DeviceStream,
    two: DeviceStream,
    allocator: AllocatorRef<DeviceAllocator<CudaMemory>>,
    /// Dropped last: the next test has the driver then.
    machine: Machine,
}

fn program() -> Program {
    let machine = Machine::new(&SimulationConfig::new());
    let [one, two] = [(); 2].map(|()| machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    Program { kernel: gemm_kernel(&machine), one, two, allocator, machine }
}

fn matrix(start: f32) -> Vec<f32> {
    (0..N * N).map(|index| start + (index % 7) as f32).collect()
}

#[test]
fn both_inputs_of_a_call_are_parts_of_one_buffer() {
    let Program { kernel, one, allocator, machine, .. } = &program();
    let (left, right) = (matrix(1.0), matrix(-2.0));
    let both = DeviceBuffer::from_slice(allocator, one, &[&left[..], &right].concat()).unwrap();
    let mut result = DeviceBuffer::<f32>::new(allocator, one, N * N).unwrap();
    // Borrowed views.
    let [a, b] = [0..N * N, N * N..2 * N * N].map(|range| both.view(range).unwrap().unwrap());
    gemm((kernel, one), (&a, &b), &mut result);
    assert_eq!(result.to_vec().unwrap(), product(&left, &right));
    // Owned ones, and a part of the result.
    let both = both.share();
    let [a, b] = [N * N..2 * N * N, 0..N * N].map(|range| both.slice(range).unwrap());
    gemm((kernel, one), (&a, &b), &mut result.view_mut(0..N * N).unwrap().unwrap());
    assert_eq!(result.to_vec().unwrap(), product(&right, &left));
    gemm((kernel, one), (&a, &a), &mut result);
    assert_eq!(result.to_vec().unwrap(), product(&right, &right));
    assert_eq!(a.to_vec().unwrap(), right);
    // Ranges that are not inside, and owners.
    let reversed = std::ops::Range { start: 3, end: 2 };
    for range in [reversed, 0..N * N + 1, usize::MAX..usize::MAX] {
        assert!(a.slice(range.clone()).is_none() && result.view(range.clone()).unwrap().is_none());
        assert!(result.view_mut(range).unwrap().is_none());
    }
    let both = both.try_unshare().unwrap_err();
    drop((a, b));
    assert_eq!(both.try_unshare().unwrap().len(), 2 * N * N);
    assert_eq!(machine.races(), []);
}

/// Streams wait for each other on the device, at each use; the host waits for nothing.
#[test]
fn a_buffer_is_used_on_several_streams() {
    let Program { kernel, one, two, allocator, machine } = &program();
    let input = DeviceBuffer::from_slice(allocator, one, &matrix(1.0)).unwrap().share();
    let mut middle = DeviceBuffer::<f32>::new(allocator, one, N * N).unwrap();
    let mut last = DeviceBuffer::<f32>::new(allocator, two, N * N).unwrap();
    let before = machine.counts().waits;
    for _ in 0..4 {
        gemm((kernel, one), (&input, &input), &mut middle);
        gemm((kernel, two), (&middle, &input.on(two)), &mut last);
        gemm((kernel, two), (&input, &last), &mut middle);
    }
    assert!(middle.block().stream_uses().eq([two.id()]));
    drop(middle);
    let mut next = DeviceBuffer::<f32>::zeroed(allocator, one, N * N).unwrap();
    gemm((kernel, one), (&input, &input), &mut next);
    assert_eq!((machine.counts().waits, machine.races()), (before, vec![]));
    drop((next, last, input));
    allocator.trim(0);
    assert_eq!(allocator.usage().reserved, 0, "all of it is free after the work");
}

/// A stream of cudarc that is not known here is waited for by the host.
#[test]
fn a_buffer_is_used_on_a_stream_that_is_not_known() {
    let Program { one, allocator, machine, .. } = &program();
    let mut buffer = DeviceBuffer::<u32>::zeroed(allocator, one, 1000).unwrap();
    let stranger = machine.device.context().new_stream().unwrap();
    stranger.memcpy_htod(&[5_u32; 1000], &mut buffer).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [5; 1000]);
    stranger.memset_zeros(&mut buffer).unwrap();
    drop(buffer);
    let next = DeviceBuffer::<u32>::zeroed(allocator, one, 1000).unwrap();
    assert_eq!(next.to_vec().unwrap(), [0; 1000]);
    assert_eq!(machine.races(), []);
}

#[test]
fn what_is_no_memory_of_the_device_is_refused() {
    let Program { one, allocator, machine, .. } = &program();
    let host = PinnedAllocator::new(&machine.device).into_ref();
    let refused = DeviceBuffer::<u8>::new(&host, one, 100).unwrap_err();
    assert!(matches!(refused.backend_error(), Some(CudaError::NotOnDevice { .. })), "{refused}");
    let block = host.allocate(&Request::new(100)).unwrap();
    let (block, _refused) = DeviceBuffer::<u8>::of(block, one).unwrap_err();
    assert_eq!(block.len(), 100, "it comes back");
    assert!(DeviceBuffer::<u64>::new(allocator, one, usize::MAX).unwrap_err().is_out_of_memory());
    let empty = DeviceBuffer::<u64>::new(allocator, one, 0).unwrap();
    assert!(empty.is_empty() && empty.to_vec().unwrap().is_empty());
    let odd = DeviceBuffer::<u64>::of(allocator.allocate(&Request::new(20).stream(one.id())).unwrap(), one);
    assert_eq!(odd.unwrap().len(), 2, "whole elements");
}

/// A packed accessor is an argument of a launch; the kernel is ordered after the other users of the tensor.
#[test]
fn a_kernel_gets_a_tensor_as_a_packed_accessor() {
    let Program { one, two, machine, kernel: _kernel, .. } = &program();
    type Packed = PackedAccessor<f32, 2, i32>;
    let parsed = |call: &KernelCall| bytemuck::pod_read_unaligned::<Packed>(&call.arguments[0]);
    let accesses = move |call: &KernelCall| {
        let from: Packed = parsed(call);
        let elements =
            (0..2).flat_map(|row| (0..3).map(move |column| from.address_of([row, column]).unwrap()));
        let reads = elements.map(|address| KernelAccess::read(usize::try_from(address).unwrap(), 4));
        reads.chain([KernelAccess::write(call.address(1), 4)]).collect()
    };
    let run = move |call: &KernelCall, memory: &mut KernelMemory| {
        let from = parsed(call);
        let at = |index: usize| usize::try_from(from.address_of([index / 3, index % 3]).unwrap()).unwrap();
        let weighted = (0..6).map(|index| (index + 1) as f32 * floats(memory, at(index), 1)[0]);
        let sum: f32 = weighted.sum();
        memory.write(call.address(1), &sum.to_ne_bytes());
    };
    machine.register_kernel("orlop_sum", (accesses, run)).unwrap();
    let module = machine.device.context().load_module(Ptx::from_src(PTX)).unwrap();
    let sum = module.load_function("orlop_sum").unwrap();

    let context = Context::new();
    install(&context, &machine.device).unwrap();
    let gpu = machine.device.device();
    let host = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap().view([3, 2]).unwrap();
    let tensor = context.scope(|| context.on_stream(gpu, one.id(), || host.to_device(gpu))).unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let mut to = DeviceBuffer::<f32>::zeroed(&allocator, two, 1).unwrap();
    // Strides are the kernel's to follow: the transposed tensor is [2, 3].
    let packed: Packed = tensor.t().unwrap().packed_accessor().unwrap();
    let storage = tensor.storage().unwrap();
    let argument = KernelValue::of(packed, &storage.block().unwrap(), two).unwrap();
    let stream = two.cudarc();
    {
        let (address, _sync) = to.device_ptr_mut(stream);
        let mut launch = stream.launch_builder(&sum);
        launch.arg(&argument).arg(&address);
        // SAFETY: the arguments are those of the kernel, which reads the tensor's elements and writes one.
        unsafe { launch.launch(LaunchConfig::for_num_elems(1)) }.unwrap();
    }
    // [1, 3, 5, 2, 4, 6] · [1, 2, 3, 4, 5, 6]
    assert_eq!(to.to_vec().unwrap(), [86.0]);
    assert_eq!(machine.races(), []);
    assert_eq!(host.device(), Device::CPU);
}
