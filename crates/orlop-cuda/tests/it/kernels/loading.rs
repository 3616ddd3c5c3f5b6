//! The module: when it is loaded, what is done without it; launches in captures and on several streams.

use super::{KernelBench, far, layout};
use crate::machine::handle;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use orlop_alloc::{
    Block, Error, Request,
    engine_support::{DeviceOps, StridedLoops},
};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryFormat};
use orlop_cuda::{CudaDevice, CudaError, CudaOps, install};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use orlop_tensor::Tensor;
use std::time::Duration;

fn floats(count: u16) -> Vec<u8> {
    (0..count).flat_map(|number| f32::from(number).to_le_bytes()).collect()
}

fn doubles(count: u16) -> Vec<u8> {
    (0..count).flat_map(|number| f64::from(number).to_le_bytes()).collect()
}

#[test]
fn a_module_is_loaded_once_for_all_operations_of_a_context() {
    let here = KernelBench::new();
    let (to, from) = (here.block(&[0; 800]), here.block(&floats(100)));
    assert_eq!(here.machine.calls("cuModuleLoadData"), 0, "not before the first use");
    here.cast(&to, &from, 100, here.stream.id()).unwrap();
    let other = CudaOps::new(&here.machine.device);
    other.load_kernels().unwrap();
    here.cast(&to, &from, 100, here.stream.id()).unwrap();
    assert_eq!(here.machine.calls("cuModuleLoadData"), 1);
    assert_eq!(here.read(&to), doubles(100));
}

#[test]
fn kernels_are_not_loaded_for_a_stream_of_another_device() {
    let here = KernelBench::with(&SimulationConfig::new().devices([1 << 28, 1 << 28]));
    let other = CudaDevice::new(1).unwrap();
    let (to, from) = (here.block(&[0; 800]), here.block(&floats(100)));
    let refused = here.cast(&to, &from, 100, other.default_stream()).unwrap_err();
    assert!(matches!(refused.backend_error(), Some(CudaError::OtherDevice { .. })), "{refused:?}");
    assert_eq!(here.machine.calls("cuModuleLoadData"), 0);
    CudaOps::new(&other).load_kernels().unwrap();
    here.cast(&to, &from, 100, here.stream.id()).unwrap();
    assert_eq!(here.machine.calls("cuModuleLoadData"), 2, "one for each context");
    assert_eq!(here.read(&to), doubles(100));
}

#[test]
fn a_driver_that_cannot_compile_is_asked_once_and_copies_go_on() {
    // No compiler, invalid PTX, no code for the device, and the entry is not there.
    for (call, code) in [
        ("cuModuleLoadData", 221),
        ("cuModuleLoadData", 218),
        ("cuModuleLoadData", 209),
        ("cuModuleGetFunction", 500),
    ] {
        let here = KernelBench::new();
        here.machine.fail(call, 1, code).unwrap();
        let (to, from) = (here.block(&[0; 800]), here.block(&floats(200)));
        for _ in 0..3 {
            let refused = here.cast(&to, &from, 100, here.stream.id());
            assert!(matches!(refused, Err(Error::CannotCast { .. })), "{refused:?}");
        }
        let kept = here.ops.load_kernels().unwrap_err();
        assert!(matches!(kept, CudaError::Failed(failure) if failure.code == code), "{kept:?}");
        let calls = here.machine.take_calls();
        let of = |name: &str| calls.get(name).copied().unwrap_or(0);
        let unloads = u64::from(call == "cuModuleGetFunction");
        assert_eq!((of("cuModuleLoadData"), of("cuModuleUnload")), (1, unloads), "{calls:?}");
        // Every second element, by the driver's rows.
        let sides = (&layout(&[100], &[2]), &layout(&[100], &[2]));
        assert_eq!(here.copy(&to, &from, 4, sides), [0, 1]);
        let pattern = [1, 2, 3, 4, 5, 6, 7, 8];
        StridedLoops::with((&layout(&[10, 2], &[10, 3]), 8), None, |loops| {
            // SAFETY: inside the block.
            unsafe { here.ops.fill_strided(to.device_ptr(), &pattern, loops, here.stream.id()) }
        })
        .unwrap()
        .unwrap();
        let (mut expected, source) = (vec![0; 800], floats(200));
        (0..100).for_each(|at| expected[8 * at..8 * at + 4].copy_from_slice(&source[8 * at..8 * at + 4]));
        for start in (0..10).flat_map(|row| [80 * row, 80 * row + 24]) {
            expected[start..start + 8].copy_from_slice(&pattern);
        }
        assert!(here.read(&to) == expected, "{call} {code}");
    }
}

#[test]
fn a_failure_that_passes_is_not_kept() {
    let here = KernelBench::new();
    let (to, from) = (here.block(&[0; 800]), here.block(&floats(100)));
    for code in [2, 900] {
        here.machine.fail("cuModuleLoadData", 1, code).unwrap();
        assert!(matches!(here.cast(&to, &from, 100, here.stream.id()), Err(Error::CannotCast { .. })));
    }
    here.machine.fail("cuModuleLoadData", 1, 2).unwrap();
    assert_eq!(here.ops.load_kernels(), Err(CudaError::OutOfMemory { call: "cuModuleLoadData" }));
    here.cast(&to, &from, 100, here.stream.id()).unwrap();
    here.machine.fail("cuLaunchKernel", 1, 701).unwrap();
    let failed = here.cast(&to, &from, 100, here.stream.id()).unwrap_err();
    assert!(matches!(failed.backend_error(), Some(CudaError::Failed(failure)) if failure.code == 701));
    assert_eq!(here.read(&to), doubles(100));
}

#[test]
fn kernels_are_captured_and_not_loaded_while_their_stream_captures() {
    for mode in [
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        let here = KernelBench::new();
        let (to, from) = (here.block(&[0; 800]), here.block(&floats(100)));
        let sides = (&layout(&[50], &[4]), &layout(&[50], &[1]));
        let other = here.machine.device.create_stream().unwrap();
        let there = here.allocator.allocate(&Request::new(800).stream(other.id())).unwrap();
        here.stream.synchronize().unwrap();
        let stream = here.stream.cudarc();
        stream.begin_capture(mode).unwrap();
        let refused = here.cast(&to, &from, 100, here.stream.id());
        assert!(matches!(refused, Err(Error::CannotCast { .. })), "{refused:?}");
        assert_eq!(here.copy(&to, &from, 4, sides), [0, 1], "without a kernel");
        assert_eq!(here.machine.calls("cuModuleLoadData"), 0);
        // Elsewhere it can be loaded meanwhile, whatever the mode of the capture.
        here.cast(&there, &from, 100, other.id()).unwrap();
        assert_eq!(here.machine.calls("cuModuleLoadData"), 1);
        here.cast(&to, &from, 100, here.stream.id()).unwrap();
        assert_eq!(here.copy(&to, &from, 4, (&layout(&[9], &[3]), &layout(&[9], &[0]))), [1, 0]);
        here.cast(&to, &from, 100, here.stream.id()).unwrap();
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph");
        other.synchronize().unwrap();
        here.write(&from, &floats(200)[400..]);
        graph.launch().unwrap();
        let expected: Vec<u8> = (100..200_u16).flat_map(|number| f64::from(number).to_le_bytes()).collect();
        assert!(here.read(&to) == expected);
        drop(graph);
        drop(there);
    }
}

#[test]
fn launches_on_two_streams_race_unless_they_are_ordered() {
    let here = KernelBench::new();
    let other = here.machine.device.create_stream().unwrap();
    let (to, from) = (here.block(&[0; 800]), here.block(&floats(100)));
    let address = from.as_ptr().as_ptr().addr();
    let slow = || KernelRun::new("slow").writes(address, 400).takes(Duration::from_millis(1));
    here.machine.run_kernel(handle(&here.stream), slow()).unwrap();
    other.wait_for(here.stream.id()).unwrap();
    here.cast(&to, &from, 100, other.id()).unwrap();
    assert_eq!(here.machine.take_races(), [], "ordered");
    // What the other stream reads is written, and what it writes is read.
    here.machine.run_kernel(handle(&here.stream), slow()).unwrap();
    let races = here.machine.take_races();
    assert!(races.iter().any(|race| race.earlier.name == "orlop_cast"), "{races:?}");
    let reads = KernelRun::new("read").reads(to.as_ptr().as_ptr().addr(), 800);
    here.machine.run_kernel(handle(&here.stream), reads).unwrap();
    let races = here.machine.take_races();
    assert!(races.iter().any(|race| race.earlier.name == "orlop_cast"), "{races:?}");
}

/// A block that a kernel of another stream reads is reused after it if the use was recorded, and too early if
/// not.
#[test]
fn the_reuse_of_a_block_waits_for_the_kernels_that_read_it() {
    for is_recorded in [true, false] {
        let here = KernelBench::new();
        here.ops.load_kernels().unwrap();
        let other = here.machine.device.create_stream().unwrap();
        let to = here.allocator.allocate(&Request::new(800).stream(other.id())).unwrap();
        for _ in 0..10 {
            let from = here.block(&floats(100));
            other.wait_for(here.stream.id()).unwrap();
            here.cast(&to, &from, 100, other.id()).unwrap();
            if is_recorded {
                from.record_stream(other.id()).unwrap();
            }
        }
        assert_eq!(here.machine.races().is_empty(), is_recorded, "{:?}", here.machine.races());
    }
}

/// Everything that has a kernel, as often as there are results: an error ends it.
fn use_all(here: &KernelBench, to: &Block, from: &Block) -> Result<(), Error> {
    let stream = here.stream.id();
    here.cast(to, from, 100, stream)?;
    StridedLoops::with((&layout(&[20], &[3]), 4), Some((&layout(&[20], &[2]), 4)), |loops| {
        // SAFETY: the layouts are inside the blocks.
        unsafe { here.ops.copy_strided(far(to, 0), far(from, 0), 4, loops, stream) }
    })
    .expect("valid layouts")?;
    StridedLoops::with((&layout(&[20], &[3]), 8), None, |loops| {
        // SAFETY: the layout is inside the block.
        unsafe { here.ops.fill_strided(to.device_ptr(), &[7; 8], loops, stream) }
    })
    .expect("a valid layout")?;
    // SAFETY: inside the block.
    unsafe { here.ops.fill(to.device_ptr(), &[1, 2, 3, 4, 5, 6, 7, 8], 100, stream) }
}

#[test]
fn every_call_of_an_operation_fails_in_turn() {
    let calls = {
        let here = KernelBench::new();
        let (to, from) = (here.block(&[0; 800]), here.block(&floats(100)));
        drop(here.machine.take_calls());
        use_all(&here, &to, &from).unwrap();
        here.machine.take_calls()
    };
    let has = |name: &str| calls.contains_key(name);
    assert!(has("cuModuleLoadData") && has("cuModuleGetFunction") && has("cuLaunchKernel"), "{calls:?}");
    for (function, &count) in &calls {
        let of_module: &[i32] = match function.as_str() {
            // By the documentation in `cuda.h` of CUDA 12.9.
            "cuModuleLoadData" => &[209, 221, 222, 302, 303],
            "cuModuleGetFunction" => &[500],
            "cuLaunchKernel" => &[200, 303, 400, 500, 701, 703],
            _ => &[],
        };
        let documented = of_module.iter().map(|&code| (1, code));
        for (nth, code) in
            [(1, 1), (1, 2), (count, 218), (1, 900), (count, 700)].into_iter().chain(documented)
        {
            let here = KernelBench::new();
            let (to, from) = (here.block(&[0; 800]), here.block(&floats(100)));
            here.machine.fail(function, nth, code).unwrap();
            let _ended_somewhere = use_all(&here, &to, &from);
            here.machine.clear_faults();
            if code == 700 {
                // Calls that need no context lose none.
                let lost = here.cast(&to, &from, 100, here.stream.id());
                let needs_context = function.starts_with("cuModule") || function == "cuLaunchKernel";
                assert!(lost.is_err() || !needs_context, "{function} {nth}: {lost:?}");
                continue;
            }
            let again = use_all(&here, &to, &from);
            let is_refused = matches!(again, Err(Error::CannotCast { .. }));
            let is_kept = function.starts_with("cuModule") && ![2, 900].contains(&code);
            assert!(again.is_ok() || (is_refused && is_kept), "{function} {nth} {code}: {again:?}");
            if again.is_ok() {
                assert!(here.read(&to) == [1, 2, 3, 4, 5, 6, 7, 8].repeat(100), "{function} {nth} {code}");
            }
        }
    }
}

#[test]
fn tensors_are_cast_and_packed_on_their_device() {
    // The kernels are loaded at their first use.
    let here = KernelBench::with(&SimulationConfig::new().waiting_modules(false));
    let context = Context::new();
    install(&context, &here.machine.device).unwrap();
    let (gpu, stream) = (here.machine.device.device(), here.stream.id());
    let numbers: Vec<i32> = (0..600).collect();
    let host = Tensor::from_vec([20, 30], numbers.clone()).unwrap();
    let work = || {
        let there = host.to_device(gpu).unwrap();
        let (waits, copies) = (here.machine.counts().waits, here.machine.calls("cuMemcpyDtoHAsync_v2"));
        let turned = there.transpose(0, 1).unwrap().to_dtype(DType::F16).unwrap();
        let packed = turned.contiguous(MemoryFormat::Contiguous).unwrap().to_dtype(DType::I64).unwrap();
        assert_eq!(here.machine.counts().waits, waits, "nothing is waited for");
        assert_eq!(here.machine.calls("cuMemcpyDtoHAsync_v2"), copies, "nothing passes through the host");
        packed.to_device(Device::CPU).unwrap()
    };
    let packed = context.scope(|| context.on_stream(gpu, stream, work));
    let found = packed.to_vec::<i64>().unwrap();
    let expected = (0..30).flat_map(|row| (0..20).map(move |column| column * 30 + row));
    assert!(found.into_iter().eq(expected));
    assert!(here.machine.calls("cuLaunchKernel") >= 2);
    assert_eq!(here.machine.races(), []);
}
