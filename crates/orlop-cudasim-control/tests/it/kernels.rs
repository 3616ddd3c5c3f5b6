//! Kernels that a program launches from a module.

use crate::support::{OK, start};
use cudarc::driver::{LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;
use orlop_cudasim_control::{KernelAccess, KernelCall, KernelMemory};
use sys::CUresult::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_SUPPORTED};

const PTX: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry scale(.param .u64 to, .param .u32 count, .param .f32 by) { ret; }
.visible .entry unknown(.param .u64 to) { ret; }
.visible .entry stray(.param .u64 to) { ret; }
";

#[test]
fn a_registered_kernel_runs_with_its_arguments() {
    let (driver, context) = start();
    let accesses = |call: &KernelCall| {
        let bytes = usize::try_from(call.half_word(1)).unwrap_or(0) * 4;
        vec![KernelAccess::write(call.address(0), bytes)]
    };
    let run = |call: &KernelCall, memory: &mut KernelMemory| {
        let by = f32::from_bits(call.half_word(2));
        let bytes = usize::try_from(call.half_word(1)).unwrap_or(0) * 4;
        let scaled = memory.read(call.address(0), bytes);
        let scaled = scaled.chunks_exact(4).flat_map(|word| {
            let value = f32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            (value * by).to_ne_bytes()
        });
        memory.write(call.address(0), &scaled.collect::<Vec<u8>>());
    };
    driver.register_kernel("scale", (accesses, run)).expect("ok");
    let stream = context.new_stream().expect("a stream");
    let module = context.load_module(Ptx::from_src(PTX)).expect("a module");
    let scale = module.load_function("scale").expect("an entry");
    let mut values = stream.clone_htod(&[1.0f32, 2.0, 3.0]).expect("a copy");
    let (count, by) = (3u32, 2.5f32);
    // SAFETY: the arguments are those of the kernel.
    let launched = unsafe {
        stream
            .launch_builder(&scale)
            .arg(&mut values)
            .arg(&count)
            .arg(&by)
            .launch(LaunchConfig::for_num_elems(3))
    };
    launched.expect("a launch");
    assert_eq!(stream.clone_dtoh(&values).expect("a copy"), [2.5, 5.0, 7.5]);
    assert_eq!(driver.races(), []);
    assert_eq!(driver.calls("cuLaunchKernel"), 1);
}

#[test]
fn what_is_not_known_is_refused() {
    let (_driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let module = context.load_module(Ptx::from_src(PTX)).expect("a module");
    assert_eq!(module.load_function("other").map(|_| ()).map_err(|error| error.0), Err(CUDA_ERROR_NOT_FOUND));
    let unknown = module.load_function("unknown").expect("an entry");
    // SAFETY: the arguments are those of the kernel, which has no code.
    let launched =
        unsafe { stream.launch_builder(&unknown).arg(&0u64).launch(LaunchConfig::for_num_elems(1)) };
    assert_eq!(launched.map(|_| ()).map_err(|error| error.0), Err(CUDA_ERROR_NOT_SUPPORTED));
    let broken = context.load_module(Ptx::from_src("not PTX"));
    assert!(broken.is_err());
}

#[test]
fn a_kernel_that_strays_poisons_the_context() {
    let (driver, context) = start();
    let accesses = |call: &KernelCall| vec![KernelAccess::write(call.address(0), 4)];
    let run = |call: &KernelCall, memory: &mut KernelMemory| memory.write(call.address(0), &[1; 5]);
    driver.register_kernel("stray", (accesses, run)).expect("ok");
    let stream = context.new_stream().expect("a stream");
    let module = context.load_module(Ptx::from_src(PTX)).expect("a module");
    let stray = module.load_function("stray").expect("an entry");
    let mut values = stream.clone_htod(&[0u32; 4]).expect("a copy");
    // SAFETY: the arguments are those of the kernel.
    let launched =
        unsafe { stream.launch_builder(&stray).arg(&mut values).launch(LaunchConfig::for_num_elems(1)) };
    launched.expect("a launch");
    assert_eq!(cu!(cuStreamSynchronize(stream.cu_stream())), CUDA_ERROR_ILLEGAL_ADDRESS);
    // Until the context is reset.
    assert_eq!(cu!(cuStreamSynchronize(stream.cu_stream())), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuDevicePrimaryCtxReset_v2(0)), OK);
    assert_eq!(cu!(cuStreamSynchronize(stream.cu_stream())), OK);
}
