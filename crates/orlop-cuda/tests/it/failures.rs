//! Every call of the driver fails in turn.
//!
//! Of the calls of each function, the first two, one in the middle and the last fail, in turn with another
//! code. `cargo xtask cuda faults` sets `ORLOP_CUDA_ALL_CODES`: each call fails with every code that the
//! function can return.

use crate::machine::{Machine, is_chosen};
use orlop_alloc::{
    Allocator, AllocatorRef, Block, Error, Request, Result,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_core::Device;
use orlop_cuda::{
    CudaDevice, CudaError, CudaMemory, CudaOps, DeviceStream, DriverAllocator, PinnedAllocator,
    caching_allocator, caching_allocator_with,
};
use orlop_cudasim_control::{LiveKind, SimulatedDriver, SimulationConfig};
use orlop_device::{BackingError, DeviceAllocator, DeviceError, DriverFailure, Policy, TorchConf};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A program that uses everything, and passes errors on.
fn program(device: &CudaDevice, streams: &[DeviceStream], allocator: &AllocatorRef) -> Result<()> {
    let ops = CudaOps::new(device);
    let mut blocks: Vec<Block> = Vec::new();
    for step in 0..30_usize {
        let stream = &streams[step % streams.len()];
        let host = allocator.device().is_cpu();
        let bytes = [700, 3 << 20, 90_000, 11 << 20, 1 << 20][step % 5];
        let mut request = Request::new(bytes);
        if !host {
            request = request.stream(stream.id());
        }
        let request = if step % 3 == 0 && bytes < 1 << 20 { request.zeroed() } else { request };
        let block = allocator.allocate(&request)?;
        if !host {
            let mut source = vec![7_u8; bytes.min(10_000)];
            let from = DevicePtr::new(NonNull::from(source.as_mut_slice()).cast(), Device::CPU);
            let to = DevicePtr::new(block.as_ptr(), block.device());
            // SAFETY: both have this many bytes.
            unsafe { ops.copy(to, from, source.len(), stream.id()) }?;
            // SAFETY: inside the block.
            unsafe { ops.fill(block.device_ptr(), &[1, 2, 3], 100, stream.id()) }?;
        }
        let other = &streams[(step + 1) % streams.len()];
        block.acquire_for(&ops, other.id())?;
        blocks.push(block);
        if step % 2 == 1 {
            drop(blocks.swap_remove(step / 3 % blocks.len()));
        }
        if step % 10 == 9 {
            allocator.trim(0);
        }
    }
    ops.synchronize(streams[0].id())
}

type Make = fn(&CudaDevice) -> AllocatorRef;

const ALLOCATORS: [(&str, Make); 7] = [
    ("pages", |device| caching_allocator(device).unwrap().into_ref().erase()),
    ("regions", |device| {
        caching_allocator_with(device, Policy::orlop_without_pages()).unwrap().into_ref().erase()
    }),
    ("torch-pages", |device| {
        let conf: TorchConf = "expandable_segments:True".parse().unwrap();
        caching_allocator_with(device, Policy::torch(&conf)).unwrap().into_ref().erase()
    }),
    ("managed", |device| {
        let memory = CudaMemory::managed(device).unwrap();
        DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref().erase()
    }),
    ("direct", |device| DriverAllocator::direct(device).into_ref().erase()),
    ("stream-ordered", |device| DriverAllocator::stream_ordered(device).unwrap().into_ref().erase()),
    ("pinned", |device| PinnedAllocator::new(device).into_ref().erase()),
];

/// Codes after which a device is lost: those of earlier work that end the process's use of CUDA, by the
/// documentation of `CUresult`, and a driver that shuts down.
const LOST: [i32; 16] = [4, 214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];

/// The codes that each function returns by the documentation in NVIDIA's `cuda.h` of CUDA 12.9 (`\return`),
/// without 4 (in [`LOST`]) and 600 (no failure).
const DOCUMENTED: [(&[&str], &[i32]); 18] = [
    (&["cuCtxGetCurrent"], &[3]),
    (&["cuCtxSetCurrent", "cuCtxSynchronize"], &[3, 201]),
    (&["cuThreadExchangeStreamCaptureMode"], &[1, 3]),
    (&["cuMemAlloc_v2", "cuMemHostAlloc", "cuEventCreate"], &[1, 2, 3, 201]),
    (&["cuMemFree_v2", "cuMemFreeHost"], &[1, 3, 201]),
    (&["cuMemAllocManaged", "cuMemAllocFromPoolAsync"], &[1, 2, 3, 201, 801]),
    (&["cuMemFreeAsync"], &[1, 3, 201, 801]),
    (&["cuMemPoolTrimTo", "cuMemPoolGetAttribute", "cuMemPoolSetAttribute"], &[1]),
    (&["cuMemAddressReserve"], &[1, 2, 3, 800, 801]),
    (&["cuMemAddressFree", "cuMemUnmap", "cuMemRelease"], &[1, 3, 800, 801]),
    (&["cuMemCreate"], &[1, 2, 3, 101, 800, 801]),
    (&["cuMemMap"], &[1, 2, 3, 101, 401, 800, 801]),
    (&["cuMemSetAccess"], &[1, 101, 801]),
    (&["cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async"], &[1, 3, 201]),
    (&["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuEventRecord"], &[1, 3, 201, 400]),
    (&["cuStreamSynchronize", "cuStreamWaitEvent", "cuEventSynchronize"], &[3, 201, 400]),
    (&["cuStreamIsCapturing"], &[1, 3, 906]),
    (&["cuEventQuery"], &[1, 3, 400]),
];

/// Returns the codes that a function can return: the documented ones; an unknown error, and failures of
/// earlier work ("may also return error codes from previous, asynchronous launches"), which any function of a
/// context can return; those of captures, which `CUresult` describes for all operations on streams; and of
/// functions that take or release memory of the host's system, those of the system.
fn codes(function: &str) -> Vec<i32> {
    let mut documented = DOCUMENTED.iter().filter(|(names, _)| names.contains(&function));
    let (_, documented) = documented.next().unwrap_or_else(|| panic!("the codes of {function} are missing"));
    let mut codes = documented.to_vec();
    let is_one_of = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
    let is_of_thread = is_one_of(&["cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchange"]);
    codes.extend(if is_of_thread { &LOST[..1] } else { &LOST[..] });
    codes.push(999);
    if is_one_of(&["cuEvent", "cuStream"]) || function.contains("Async") {
        codes.extend([900, 901, 905, 906, 907]);
    } else if is_one_of(&["cuMemAlloc", "cuMemFree", "cuMemHost"]) {
        codes.extend([304, 900]);
    }
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// A call that fails: the number from 1 of a function's call, and the code.
#[derive(Debug, Clone, Copy)]
struct Fault<'a> {
    function: &'a str,
    nth: u64,
    code: i32,
}

impl Fault<'_> {
    fn is_loss(&self) -> bool {
        LOST.contains(&self.code)
    }

    /// Returns `true` if the call releases memory, or none can be called without it.
    fn is_release(&self) -> bool {
        let parts = ["Free", "Unmap", "Release", "cuCtx", "cuThread"];
        parts.iter().any(|part| self.function.contains(part))
    }

    /// Returns `true` if an error says what failed: the call with its code, or what the code means.
    fn is_named_by(&self, error: &Error) -> bool {
        // Every call of a lost device fails with that code.
        let of = |failure: DriverFailure| {
            failure.code == self.code && (failure.call == self.function || self.is_loss())
        };
        let is_capture = (900..=908).contains(&self.code);
        // That answer is no failure: the error names the call that it forbids.
        let is_answer = self.function == "cuStreamIsCapturing" && self.code == 906;
        if let Error::OutOfMemory(_) = error {
            return self.code == 2;
        }
        match (error.backend_error::<CudaError>(), error.backend_error::<DeviceError>()) {
            (Some(&(CudaError::Failed(failure) | CudaError::Lost(failure))), _) => of(failure),
            (Some(CudaError::Capturing { call }), _) => is_answer || is_capture && *call == self.function,
            (Some(CudaError::OutOfMemory { call }), _) => self.code == 2 && *call == self.function,
            (_, Some(DeviceError::Backing { error, .. })) => match *error {
                BackingError::Failed(failure) | BackingError::Lost(failure) => of(failure),
                BackingError::Capturing => is_capture,
                _ => false,
            },
            _ => false,
        }
    }
}

/// Returns the bytes that the driver has handed out, but for addresses without memory.
fn memory_in_use(driver: &SimulatedDriver) -> u64 {
    let live = driver.live_allocations().into_iter();
    live.filter(|live| live.kind != LiveKind::Reservation).map(|live| live.bytes as u64).sum()
}

/// Runs the program with a fault, or without one. Returns the calls.
fn run(name: &str, make: Make, fault: Option<Fault<'_>>) -> BTreeMap<String, u64> {
    let config = SimulationConfig::new().poison(false).memory(160 << 20);
    let machine = Machine::new(&config);
    let driver = *machine;
    let streams: Vec<_> = (0..3).map(|_| machine.device.create_stream().unwrap()).collect();
    let allocator = make(&machine.device);
    drop(driver.take_calls());
    if let Some(Fault { function, nth, code }) = fault {
        driver.fail(function, nth, code).unwrap();
    }
    let result = program(&machine.device, &streams, &allocator);
    let calls = driver.take_calls();
    driver.clear_faults();
    match (result, fault) {
        (Ok(()), _) => {}
        (Err(error), None) => panic!("{name}: {error}"),
        (Err(error), Some(fault)) => {
            assert!(fault.is_named_by(&error), "{name}, {fault:?}: {error:?}");
        }
    }
    allocator.verify().unwrap_or_else(|error| panic!("{name}, {fault:?}: {error}"));
    assert_eq!(allocator.stats().totals.all.live_blocks(), 0, "{name}, {fault:?}");
    let again = program(&machine.device, &streams, &allocator);
    allocator.verify().unwrap_or_else(|error| panic!("{name}, {fault:?}: {error}"));
    if let Some(fault) = fault.filter(Fault::is_loss) {
        // What was lost stays lost, and what was not goes on.
        if let Err(error) = again {
            let is_lost = fault.is_named_by(&error) || format!("{error:?}").contains("Lost");
            assert!(is_lost, "{name}, {fault:?}: {error:?}");
        }
        return calls;
    }
    again.unwrap_or_else(|error| panic!("{name}, {fault:?}, afterwards: {error}"));
    allocator.trim(0);
    driver.advance(Duration::from_secs(1));
    // Memory is given back, or counted as reserved. Without a cache, memory whose streams cannot be waited
    // for is never given back.
    let may_keep = fault.is_some_and(|fault| fault.is_release());
    let has_cache = !["direct", "stream-ordered"].contains(&name);
    let (kept, reserved) = (memory_in_use(&driver), allocator.usage().reserved);
    assert!(kept == 0 && reserved == 0 || may_keep || !has_cache, "{name}, {fault:?}: {kept} {reserved}");
    // The buffer of pageable copies is no allocator's: the second program freed it.
    let counted = reserved.next_multiple_of(512);
    assert!(kept <= counted, "{name}, {fault:?}: {kept} bytes are kept, {counted} are counted");
    drop((allocator, streams));
    if has_cache && !may_keep {
        drop(machine.device);
        let left = (driver.used_memory(0), driver.counts().pinned, driver.counts().events);
        assert_eq!(left, (0, 0, 0), "{name}, {fault:?}: {:?}", driver.live_allocations());
    }
    calls
}

#[test]
fn every_call_fails_in_turn() {
    let (mut faults, all) = (0, std::env::var_os("ORLOP_CUDA_ALL_CODES").is_some());
    for (name, make) in ALLOCATORS.into_iter().filter(|&(name, _)| is_chosen(name)) {
        let (calls, before, start) = (run(name, make, None), faults, Instant::now());
        for (function, &count) in &calls {
            let (codes, is_some) = (codes(function), |nth: u64| [1, 2, count / 2, count].contains(&nth));
            for nth in (1..=count).filter(|&nth| all || is_some(nth)) {
                // In turn, or all of them.
                let first = faults % codes.len();
                for &code in if all { &codes[..] } else { &codes[first..=first] } {
                    run(name, make, Some(Fault { function, nth, code }));
                    faults += 1;
                }
            }
        }
        let (faults, seconds) = (faults - before, start.elapsed().as_secs_f64());
        println!("{name}: {faults} faults of {} calls, {seconds:.0} s", calls.values().sum::<u64>());
    }
    assert!(faults > 0, "ORLOP_CUDA_ALLOCATORS names none");
    println!("{faults} faults");
}
