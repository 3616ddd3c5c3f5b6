//! Kernels that a program launches from a module.

use crate::support::{OK, allocate, at, start};
use cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;
use orlop_cudasim_control::{KernelAccess, KernelCall, KernelMemory};
use std::sync::Arc;
use sys::CUresult::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_NOT_FOUND,
};

const PTX: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry scale(.param .u64 to, .param .u32 count, .param .f32 by) { ret; }
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
    let module = context.load_module(Ptx::from_src(PTX)).expect("a module");
    assert_eq!(module.load_function("other").map(|_| ()).map_err(|error| error.0), Err(CUDA_ERROR_NOT_FOUND));
    let broken = context.load_module(Ptx::from_src("not PTX"));
    assert!(broken.is_err());
    // It is not known what this kernel would do.
    let unknown = PTX.replace("ret; }", "bar.sync 1; ret; }").replace("scale", "unknown");
    let unknown = context.load_module(Ptx::from_src(unknown));
    assert_eq!(unknown.map(|_| ()).map_err(|error| error.0), Err(CUDA_ERROR_INVALID_PTX));
}

/// Doubles each of `count` numbers in place.
const DOUBLE: &str = "
.version 6.0
.target sm_50
.address_size 64
.visible .entry twice(.param .u64 to, .param .u32 count)
{
    .reg .pred %past;
    .reg .b32 %block, %threads, %thread, %index, %count, %value;
    .reg .b64 %to, %offset;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %threads, %thread;
    ld.param.u32 %count, [count];
    setp.ge.u32 %past, %index, %count;
    @%past ret;
    ld.param.u64 %to, [to];
    cvt.u64.u32 %offset, %index;
    shl.b64 %offset, %offset, 2;
    add.u64 %to, %to, %offset;
    ld.global.u32 %value, [%to];
    add.u32 %value, %value, %value;
    st.global.u32 [%to], %value;
    ret;
}
";

#[test]
fn ptx_is_executed_and_its_accesses_are_checked_for_races() {
    let (driver, context) = start();
    let (one, two) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let module = context.load_module(Ptx::from_src(DOUBLE)).expect("a module");
    let twice = module.load_function("twice").expect("an entry");
    let address = allocate(4000);
    let numbers: Vec<u8> = (0..1000_u32).flat_map(u32::to_ne_bytes).collect();
    driver.write(at(address), &numbers).expect("memory");
    let launch = |stream: &Arc<CudaStream>, values: u64, count: u32| {
        let mut launch = stream.launch_builder(&twice);
        launch.arg(&values).arg(&count);
        // SAFETY: the arguments are those of the kernel.
        unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }.expect("a launch");
    };
    launch(&one, address, 1000);
    assert_eq!(cu!(cuStreamSynchronize(one.cu_stream())), OK);
    let doubled: Vec<u8> = (0..1000_u32).flat_map(|number| (2 * number).to_ne_bytes()).collect();
    assert_eq!(driver.read(at(address), 4000).expect("memory"), doubled);
    assert_eq!(driver.races(), []);
    // The same words on another stream.
    launch(&one, address, 1000);
    launch(&two, address + 400, 10);
    let races = driver.take_races();
    assert!(!races.is_empty() && races.iter().all(|race| race.later.name == "twice"), "{races:?}");
    assert_eq!(cu!(cuStreamSynchronize(two.cu_stream())), OK);
    launch(&one, address + 2, 1);
    assert_eq!(cu!(cuStreamSynchronize(one.cu_stream())), CUDA_ERROR_MISALIGNED_ADDRESS);
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
