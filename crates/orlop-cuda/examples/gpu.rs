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

use orlop_alloc::{
    Allocator, AllocatorRef, Block, Request,
    engine_support::{DeviceOps, DevicePtr, HostOps, StridedLoops},
};
use orlop_core::{ByteSize, DType, Device, Layout, Shape, StreamId};
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
use std::ptr::NonNull;
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
pub(crate) fn run(simulated: bool, quick: bool) -> Result<bool> {
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

    // The simulated driver takes its time for each byte.
    let delay = if simulated { 64 << 10 } else { 64 << 20 };
    let [recorded, unrecorded] =
        [2_000, 500].map(|rounds| Load { rounds: if quick { 20 } else { rounds }, delay });
    let mut passed = true;
    println!("| allocator | conformance | wrong words after reuse under load |\n|---|---|---|");
    for (name, make) in allocators {
        let conforms = catch_unwind(AssertUnwindSafe(|| {
            conformance(name, SuiteProfile::strict().streams(suite_streams), || {
                make().expect("it was created before")
            });
        }));
        let wrong = check_contents(&device, &make()?, recorded, true)?;
        passed &= conforms.is_ok() && wrong == 0;
        println!("| {name} | {} | {wrong} |", if conforms.is_ok() { "passed" } else { "FAILED" });
    }
    let unrecorded = check_contents(&device, &allocators[1].1()?, unrecorded, false)?;
    passed &= unrecorded > 0;
    println!(
        "\nThe same without recorded uses: {unrecorded} wrong words. With 0, the check would see nothing."
    );

    let (casts, wrong_casts) = check_casts(&device, &allocators[0].1()?, if quick { 300 } else { 1 << 16 })?;
    let wrong_copies = check_transpositions(&device, &allocators[0].1()?)?;
    passed &= wrong_casts == 0 && wrong_copies == 0;
    println!("\nKernels, against the CPU: {casts} pairs of dtypes, {wrong_casts} wrong elements;");
    println!("copies and fills of single elements: {wrong_copies} wrong bytes.");

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

/// What [`check_contents`] does.
#[derive(Clone, Copy)]
struct Load {
    rounds: u32,
    /// The bytes that the second stream fills before each copy, so that it is behind the first one.
    delay: usize,
}

/// Threads fill blocks on one stream, copy them on another, and drop them at once; the memory is taken and
/// filled with something else meanwhile. Returns the number of words that arrived wrong on the host.
///
/// Without `recorded`, the second stream's use of a block is not recorded, so wrong words are expected.
fn check_contents(device: &CudaDevice, allocator: &AllocatorRef, load: Load, recorded: bool) -> Result<u64> {
    let pinned: AllocatorRef = PinnedAllocator::new(device).into_ref().erase();
    let (ops, wrong) = (CudaOps::new(device), AtomicU64::new(0));
    let work = |thread: u32| -> Result<()> {
        let (first, second) = (device.create_stream()?, device.create_stream()?);
        let mut on_the_way = VecDeque::new();
        let delay = filled(allocator, &ops, load.delay, &second, 0)?;
        for round in 0..load.rounds {
            let word = thread << 24 | round << 1;
            let bytes = 4 << (10 + (round.wrapping_mul(2_654_435_761) >> 29));
            let source = filled(allocator, &ops, bytes, &first, word)?;
            let copy = allocator.allocate(&Request::new(bytes).stream(second.id()))?;
            second.wait_for(first.id())?;
            if recorded {
                source.record_stream(second.id())?;
            }
            // SAFETY: the block has these bytes, and only this stream uses it.
            unsafe { ops.fill(delay.device_ptr(), &[0; 4], load.delay / 4, second.id()) }?;
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

fn there(device: &CudaDevice, ptr: NonNull<u8>) -> DevicePtr {
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
    unsafe { ops.fill(block.device_ptr(), &word.to_le_bytes(), bytes / 4, stream.id()) }?;
    Ok(block)
}

/// Copies bytes to a new block.
fn sent(ops: &CudaOps, allocator: &AllocatorRef, bytes: &mut [u8], stream: StreamId) -> Result<Block> {
    let block = allocator.allocate(&Request::new(bytes.len()).stream(stream))?;
    let from = DevicePtr::new(NonNull::from(&mut *bytes).cast(), Device::CPU);
    let to = block.device_ptr();
    // SAFETY: both have this many bytes; the source has been read when the call returns.
    unsafe { ops.copy(to, from, bytes.len(), stream) }?;
    Ok(block)
}

/// Returns where the bytes of a block are not as expected.
fn wrong_bytes(ops: &CudaOps, block: &Block, expected: &[u8], stream: StreamId) -> Result<Vec<usize>> {
    let mut found = vec![0_u8; expected.len()];
    let to = DevicePtr::new(NonNull::from(found.as_mut_slice()).cast(), Device::CPU);
    // SAFETY: both have this many bytes, and are kept until the stream was waited for.
    unsafe { ops.copy(to, block.device_ptr(), expected.len(), stream) }?;
    ops.synchronize(stream)?;
    Ok((0..expected.len()).filter(|&at| found[at] != expected[at]).collect())
}

/// Casts `count` elements, of two bytes or fewer each value, from every dtype to every other. Returns the
/// number of pairs and that of elements which are not those of the CPU.
fn check_casts(device: &CudaDevice, allocator: &AllocatorRef, count: usize) -> Result<(u64, u64)> {
    let (ops, stream) = (CudaOps::new(device), device.default_stream());
    ops.load_kernels()?;
    let layout = Layout::contiguous(Shape::new(&[count])?);
    let (mut pairs, mut wrong) = (0, 0);
    for from in DType::ALL {
        let element = |index: usize| {
            let noise = [index as u64, index as u64 + 7].map(|it| it.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let bytes = if from.size() <= 2 {
                index as u128
            } else {
                u128::from(noise[0]) << 64 | u128::from(noise[1])
            };
            bytes.to_le_bytes()[..from.size()].to_vec()
        };
        let mut source: Vec<u8> = (0..count).flat_map(element).collect();
        // A compiler may make the NaNs of the CPU's casts quiet or not: here they are.
        for word in source.chunks_exact_mut(4).filter(|_| matches!(from, DType::F32 | DType::C64)) {
            word[2] |= u8::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]]).is_nan()) << 6;
        }
        for to in DType::ALL {
            let mut expected = vec![0_u8; count * to.size()];
            let blocks =
                [sent(&ops, allocator, &mut expected, stream)?, sent(&ops, allocator, &mut source, stream)?];
            let done = StridedLoops::with((&layout, to.size()), Some((&layout, from.size())), |loops| {
                let first = |bytes: &mut [u8]| DevicePtr::new(NonNull::from(bytes).cast(), Device::CPU);
                let host = ((first(&mut expected), to), (first(&mut source), from));
                // SAFETY: the layout is inside both vectors.
                unsafe { HostOps.cast(host.0, host.1, loops, stream) }?;
                let there = ((blocks[0].device_ptr(), to), (blocks[1].device_ptr(), from));
                // SAFETY: the layout is inside both blocks.
                unsafe { ops.cast(there.0, there.1, loops, stream) }
            });
            done??;
            let mut bad = wrong_bytes(&ops, &blocks[0], &expected, stream)?;
            bad.iter_mut().for_each(|at| *at /= to.size());
            bad.dedup();
            (pairs, wrong) = (pairs + 1, wrong + bad.len() as u64);
        }
    }
    Ok((pairs, wrong))
}

/// Copies transposed elements of every size, and fills every second one. Returns the number of wrong bytes.
fn check_transpositions(device: &CudaDevice, allocator: &AllocatorRef) -> Result<usize> {
    const ROWS: usize = 301;
    const COLUMNS: usize = 203;
    let (ops, stream, mut wrong) = (CudaOps::new(device), device.default_stream(), 0);
    let to = Layout::contiguous(Shape::new(&[ROWS, COLUMNS])?);
    let from = Layout::contiguous(Shape::new(&[COLUMNS, ROWS])?).transpose(0, 1)?;
    for item in [1, 2, 4, 8, 16] {
        let bytes = ROWS * COLUMNS * item;
        let noise = |index: usize| (index.wrapping_mul(2_654_435_761) >> 9).to_le_bytes()[0];
        let (mut source, mut expected) = ((0..bytes).map(noise).collect::<Vec<u8>>(), vec![0_u8; bytes]);
        let blocks =
            [sent(&ops, allocator, &mut expected, stream)?, sent(&ops, allocator, &mut source, stream)?];
        let done = StridedLoops::with((&to, item), Some((&from, item)), |loops| {
            let host = |bytes: &mut [u8]| DevicePtr::new(NonNull::from(bytes).cast(), Device::CPU);
            let places = (host(&mut expected), host(&mut source));
            // SAFETY: the layouts are inside both vectors.
            unsafe { HostOps.copy_strided(places.0, places.1, item, loops, stream) }?;
            let there = |block: &Block| block.device_ptr();
            // SAFETY: the layouts are inside both blocks.
            unsafe { ops.copy_strided(there(&blocks[0]), there(&blocks[1]), item, loops, stream) }
        });
        done??;
        wrong += wrong_bytes(&ops, &blocks[0], &expected, stream)?.len();
        let pattern = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16][..item];
        let every_second = to.slice(1, None, None, 2)?;
        let done = StridedLoops::with((&every_second, item), None, |loops| {
            let host = DevicePtr::new(NonNull::from(expected.as_mut_slice()).cast(), Device::CPU);
            // SAFETY: the layout is inside the vector.
            unsafe { HostOps.fill_strided(host, pattern, loops, stream) }?;
            // SAFETY: the layout is inside the block.
            unsafe { ops.fill_strided(blocks[0].device_ptr(), pattern, loops, stream) }
        });
        done??;
        wrong += wrong_bytes(&ops, &blocks[0], &expected, stream)?.len();
    }
    Ok(wrong)
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
