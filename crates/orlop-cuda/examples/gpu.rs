//! Checks and measures the allocators on the first CUDA device, and prints tables for `docs/gpu-results.md`.
//!
//! ```text
//! cargo xtask gpu
//! ```
//!
//! The program has everything in it, so it can be copied to a machine with a GPU and started there.
//! `--simulated` runs it on the simulated driver, where times mean nothing and work of streams does not
//! overlap with the host's. `--quick` makes fewer rounds. Where a `python3` with PyTorch is found, PyTorch's
//! allocator is measured in the same run.

use orlop_alloc::{Allocator, AllocatorRef, Block, DeviceOps, DevicePtr, Request};
use orlop_core::ByteSize;
use orlop_cuda::{
    CudaDevice, CudaMemory, CudaOps, DeviceStream, DriverAllocator, PinnedAllocator, caching_allocator,
    caching_allocator_with,
};
use orlop_device::{DeviceAllocator, Policy, TorchConf};
use orlop_testkit::{SuiteProfile, conformance};
use std::collections::VecDeque;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
type Make<'a> = &'a dyn Fn() -> Result<AllocatorRef>;

const THREADS: u32 = 4;
const SIZES: [usize; 3] = [4 << 10, 1 << 20, 32 << 20];

fn main() -> ExitCode {
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    match run(has("--simulated"), has("--quick")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("skipped: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns `true` if every check passed.
fn run(simulated: bool, quick: bool) -> Result<bool> {
    if simulated {
        orlop_cudasim_control::SimulatedDriver::load()?;
    }
    let device = CudaDevice::new(0)?;
    let streams = (0..9).map(|_| device.create_stream()).collect::<std::result::Result<Vec<_>, _>>()?;
    let suite_streams = std::array::from_fn(|index| streams[index].id());
    let name = if simulated { "the simulated driver".to_owned() } else { gpu_name() };
    println!("{name}, CUDA {}, {}\n", device.driver().version(), device.memory()?);

    let torch = |conf: &str| -> Result<Policy> { Ok(Policy::torch(&conf.parse::<TorchConf>()?)) };
    let caching = |policy| Ok(caching_allocator_with(&device, policy)?.into_ref().erase());
    let (plain, expandable) = (torch("")?, torch("expandable_segments:True")?);
    let allocators: [(&str, Make<'_>); 7] = [
        ("caching, `Policy::orlop`", &|| Ok(caching_allocator(&device)?.into_ref().erase())),
        ("caching, without pages", &|| caching(Policy::orlop_without_pages())),
        ("caching, `Policy::torch`", &|| caching(plain.clone())),
        ("caching, `Policy::torch`, expandable segments", &|| caching(expandable.clone())),
        ("caching over `cuMemAllocManaged`", &|| {
            let memory = CudaMemory::managed(&device)?;
            Ok(DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref().erase())
        }),
        ("`cuMemAllocAsync`", &|| Ok(DriverAllocator::stream_ordered(&device)?.into_ref().erase())),
        ("`cuMemAlloc`", &|| Ok(DriverAllocator::direct(&device).into_ref().erase())),
    ];

    let mut passed = true;
    println!("| allocator | conformance | wrong words after reuse under load |\n|---|---|---|");
    for (name, make) in allocators {
        let conforms = catch_unwind(AssertUnwindSafe(|| {
            conformance(name, SuiteProfile::strict().streams(suite_streams), || {
                make().expect("it was created before")
            });
        }));
        let rounds = if quick { 20 } else { 2_000 };
        let wrong = check_contents(&device, &make()?, rounds, true)?;
        passed &= conforms.is_ok() && wrong == 0;
        println!("| {name} | {} | {wrong} |", if conforms.is_ok() { "passed" } else { "FAILED" });
    }
    let unrecorded = check_contents(&device, &allocators[1].1()?, if quick { 20 } else { 500 }, false)?;
    println!(
        "\nThe same without recorded uses: {unrecorded} wrong words. 0 means that the check saw nothing."
    );

    println!("\nns per pair of an allocation and its free, on one stream:\n");
    println!("| allocator | {} |", SIZES.map(|bytes| ByteSize(bytes as u64).to_string()).join(" | "));
    println!("|---|---|---|---|");
    for (name, make) in allocators {
        let pairs = match name {
            _ if quick => 100,
            "`cuMemAlloc`" => 2_000,
            _ => 200_000,
        };
        let times = time_pairs(&make()?, &streams[0], pairs)?;
        println!("| {name} | {} |", times.map(|time| format!("{time:.0}")).join(" | "));
    }
    match time_of_torch() {
        Ok(row) => println!("| PyTorch, `caching_allocator_alloc` through Python | {row} |"),
        Err(reason) => println!("| PyTorch | {reason} | | |"),
    }
    Ok(passed)
}

/// Returns the name of the first GPU and its driver, as `nvidia-smi` says them.
fn gpu_name() -> String {
    let query = ["--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"];
    let output = Command::new("nvidia-smi").args(query).output();
    let text = output.ok().filter(|output| output.status.success());
    text.map_or_else(
        || "a CUDA device".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().replace(", ", ", driver "),
    )
}

/// A copy on its way to the host.
struct Expected {
    host: Block,
    stream: DeviceStream,
    word: u32,
}

impl Expected {
    /// Waits for the copy, and counts the words that are not as expected.
    fn count_wrong(self) -> Result<u64> {
        self.stream.synchronize()?;
        let words = self.host.bytes()?.chunks_exact(4);
        Ok(words.filter(|word| **word != self.word.to_le_bytes()).count() as u64)
    }
}

/// Threads fill blocks on one stream, copy them on another, and drop them at once; the memory is taken and
/// filled with something else meanwhile. Returns the number of words that arrived wrong on the host.
///
/// Without `recorded`, the second stream's use of a block is not recorded, so wrong words are expected where
/// streams run at the same time.
fn check_contents(device: &CudaDevice, allocator: &AllocatorRef, rounds: u32, recorded: bool) -> Result<u64> {
    let pinned: AllocatorRef = PinnedAllocator::new(device).into_ref().erase();
    let (ops, wrong) = (CudaOps::new(device), AtomicU64::new(0));
    let work = |thread: u32| -> Result<()> {
        let (first, second) = (device.create_stream()?, device.create_stream()?);
        let mut on_the_way = VecDeque::new();
        for round in 0..rounds {
            let word = thread << 24 | round << 1;
            let bytes = 4 << (10 + (round.wrapping_mul(2_654_435_761) >> 29));
            let source = filled(allocator, &ops, bytes, &first, word)?;
            let copy = allocator.allocate(&Request::new(bytes).stream(second.id()))?;
            second.wait_for(first.id())?;
            if recorded {
                source.record_stream(second.id())?;
            }
            let (to, from) = (copy.as_ptr(), source.as_ptr());
            // SAFETY: both have this many bytes on the device. With the use recorded, `source` is not
            // reused before; without, its reuse is what is looked for, and stays in the allocator's
            // memory.
            unsafe { ops.copy(there(device, to), there(device, from), bytes, second.id()) }?;
            drop(source);
            // What may be the same memory has another content now.
            drop(filled(allocator, &ops, bytes, &first, !word)?);

            let host = pinned.allocate(&Request::new(bytes).stream(second.id()))?;
            host.record_stream(second.id())?;
            let to = DevicePtr::kept(host.as_ptr());
            // SAFETY: both have this many bytes; `host` is kept until the stream was waited for.
            unsafe { ops.copy(to, there(device, copy.as_ptr()), bytes, second.id()) }?;
            on_the_way.push_back(Expected { host, stream: second.clone(), word });
            if on_the_way.len() > 8
                && let Some(oldest) = on_the_way.pop_front()
            {
                wrong.fetch_add(oldest.count_wrong()?, Ordering::Relaxed);
            }
        }
        for rest in on_the_way {
            wrong.fetch_add(rest.count_wrong()?, Ordering::Relaxed);
        }
        Ok(())
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(wrong.into_inner())
}

fn there(device: &CudaDevice, ptr: std::ptr::NonNull<u8>) -> DevicePtr {
    DevicePtr::new(ptr, device.device())
}

/// Allocates a block on a stream and fills it with a word.
fn filled(
    allocator: &AllocatorRef,
    ops: &CudaOps,
    bytes: usize,
    stream: &DeviceStream,
    word: u32,
) -> Result<Block> {
    let block = allocator.allocate(&Request::new(bytes).stream(stream.id()))?;
    // SAFETY: a new block with this many bytes, which this stream uses.
    unsafe { ops.fill(block.as_ptr(), &word.to_le_bytes(), bytes / 4, stream.id()) }?;
    Ok(block)
}

/// Returns the nanoseconds of a pair for each size, after as many to warm up.
fn time_pairs(allocator: &AllocatorRef, stream: &DeviceStream, pairs: u32) -> Result<[f64; 3]> {
    let mut times = [0.0; 3];
    for (time, bytes) in times.iter_mut().zip(SIZES) {
        let request = Request::new(bytes).stream(stream.id());
        for _ in 0..pairs {
            drop(allocator.allocate(&request)?);
        }
        stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..pairs {
            drop(allocator.allocate(&request)?);
        }
        stream.synchronize()?;
        *time = start.elapsed().as_nanos() as f64 / f64::from(pairs);
    }
    Ok(times)
}

/// Measures PyTorch's allocator as Python reaches it, and returns the columns of its row.
fn time_of_torch() -> std::result::Result<String, &'static str> {
    let sizes = SIZES.map(|bytes| bytes.to_string()).join(", ");
    let program = format!(
        r"
import time, torch
take, give = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
row = []
for size in [{sizes}]:
    for pairs in (20000, 100000):
        start = time.perf_counter_ns()
        for _ in range(pairs):
            give(take(size))
        torch.cuda.synchronize()
        pair = (time.perf_counter_ns() - start) / pairs
    row.append(f'{{pair:.0f}}')
print(' | '.join(row))
"
    );
    let output = Command::new("python3").args(["-c", &program]).output().map_err(|_| "no `python3`")?;
    if !output.status.success() {
        return Err("no `python3` with PyTorch and CUDA");
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
