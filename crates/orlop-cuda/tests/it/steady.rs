//! What a warmed program costs: calls of the driver, and pinned bytes.

use crate::machine::Machine;
use orlop_alloc::{Allocator, Request};
use orlop_core::StreamId;
use orlop_cuda::{KernelPointer, PinnedAllocator, caching_allocator, caching_allocator_with};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::Policy;
use std::time::Duration;

#[test]
fn a_warmed_step_calls_nothing() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let step = || {
        let sizes = [1000, 1 << 20, 5 << 20, 512, 300_000];
        let request = |bytes| Request::new(bytes).stream(stream.id());
        let blocks: Vec<_> =
            sizes.iter().map(|&bytes| allocator.allocate(&request(bytes)).unwrap()).collect();
        drop(blocks);
    };
    (0..4).for_each(|_| step());
    drop(machine.take_calls());
    (0..100).for_each(|_| step());
    assert_eq!(machine.all_calls().len(), 0, "{:?}", machine.all_calls());
}

#[test]
fn a_hand_over_between_streams_takes_one_event_and_no_wait() {
    let machine = Machine::new(&SimulationConfig::new());
    let (one, two) = (machine.device.create_stream().unwrap(), machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let request = Request::new(1 << 20).stream(one.id());
    let step = || {
        let block = allocator.allocate(&request).unwrap();
        machine.write(&one, &block);
        block.record_stream(two.id()).unwrap();
        drop(block);
    };
    (0..20).for_each(|_| step());
    let waits = machine.counts().waits;
    drop(machine.take_calls());
    (0..100).for_each(|_| step());
    let calls = machine.all_calls();
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert_eq!((machine.counts().waits, of("cuEventCreate"), of("cuMemCreate")), (waits, 0, 0), "{calls:?}");
    assert!(of("cuEventRecord") <= 100 && of("cuEventQuery") <= 100, "{calls:?}");
}

/// Two streams use each other's blocks. Beside four calls for events there are four others: a query relaxes
/// the thread's capture mode and restores it, and a free and a pointer look whether a stream captures.
#[test]
fn events_cost_few_other_calls() {
    let machine = Machine::new(&SimulationConfig::new());
    machine.device.context().bind_to_thread().unwrap();
    let streams = [0, 1].map(|_| machine.device.create_stream().unwrap());
    let torch = Policy::torch(&orlop_device::TorchConf::default());
    let steps = 100;
    for policy in [Policy::orlop(), torch] {
        let allocator = caching_allocator_with(&machine.device, policy).unwrap().into_ref();
        let step = || {
            for (own, other) in [(&streams[0], &streams[1]), (&streams[1], &streams[0])] {
                let block = allocator.allocate(&Request::new(1 << 20).stream(own.id())).unwrap();
                machine.write(own, &block);
                KernelPointer::<u8>::of(&block, other).unwrap();
                machine.write(other, &block);
            }
            machine.advance(Duration::from_millis(1));
        };
        (0..20).for_each(|_| step());
        drop(machine.take_calls());
        (0..steps).for_each(|_| step());
        let calls = machine.take_calls();
        let of = |names: &[&str]| -> u64 { names.iter().filter_map(|&name| calls.get(name)).sum() };
        let events = of(&["cuEventRecord", "cuEventQuery", "cuStreamWaitEvent"]);
        let others = of(&["cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode"]);
        let (records, waits) = (of(&["cuEventRecord"]), of(&["cuStreamWaitEvent"]));
        let (queries, looks) = (of(&["cuEventQuery"]), of(&["cuStreamIsCapturing"]));
        // A pointer is one record and one wait, and one look whether the waiting stream captures.
        let pointers = 2 * steps;
        assert!(events >= 4 * steps, "{calls:?}");
        assert!(others <= 2 * queries && looks <= records + waits - pointers, "{calls:?}");
        // PyTorch's policy queries events that are not complete, too.
        assert!(others + looks <= events + (queries - pointers), "{calls:?}");
    }
    assert_eq!(machine.races(), []);
}

/// A thread without a context, and one with another device's: the calls are made in the device's own.
#[test]
fn events_are_recorded_whatever_context_is_current() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 30, 1 << 30]));
    let far = orlop_cuda::CudaDevice::new(1).unwrap();
    let streams = [0, 1].map(|_| machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let request = Request::new(1 << 20).stream(streams[0].id());
    let program = || {
        for _ in 0..20 {
            let block = allocator.allocate(&request).unwrap();
            KernelPointer::<u8>::of(&block, &streams[1]).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(program).join().unwrap();
        scope.spawn(|| {
            far.context().bind_to_thread().unwrap();
            program();
            // Its context is lost, which is no failure of this device.
            machine.poison(1, 700).unwrap();
            program();
        });
    });
    machine.poison(1, 0).unwrap();
    assert_eq!(allocator.device_stats().num_failed_calls, 0);
    assert_eq!(machine.races(), []);
}

/// Log-uniform sizes from 4 KiB to 64 MiB.
struct Sizes(u64);

impl Sizes {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> usize {
        (4096.0 * (self.uniform() * 16384_f64.ln()).exp()) as usize
    }
}

/// The ledger of pinned memory: what it holds over what was requested. PyTorch's rounds to powers of two.
/// `cargo test -p orlop-cuda --test it pinned_bytes -- --nocapture` prints the figures of docs/benchmarks.md.
#[test]
fn pinned_bytes_over_requested_ones() {
    const BLOCKS: usize = 128;
    for (policy, max) in [(Policy::orlop_bounded_waste(), 1.13), (Policy::orlop_without_pages(), 1.3)] {
        let machine = Machine::new(&SimulationConfig::new().poison(false));
        let name = policy.name;
        let allocator = PinnedAllocator::with_policy(&machine.device, policy).into_ref();
        assert_eq!((allocator.name(), allocator.ledger().ratio()), ("cuda-pinned", None));
        let mut sizes = Sizes(0x9e37_79b9_7f4a_7c15);
        let (mut blocks, mut requested, mut torch) = (Vec::new(), 0, 0);
        for _ in 0..BLOCKS {
            let bytes = sizes.next();
            requested += bytes as u64;
            torch += bytes.next_power_of_two() as u64;
            blocks.push(allocator.allocate(&Request::new(bytes)).unwrap());
        }
        let ledger = allocator.ledger();
        assert_eq!((ledger.requested, ledger.peak_requested), (requested, requested));
        assert!(ledger.requested <= ledger.rounded && ledger.rounded <= ledger.reserved, "{ledger:?}");
        let filled = ledger.ratio().unwrap();
        let [rounded, torch] = [ledger.rounded, torch].map(|bytes| bytes as f64 / requested as f64);
        for _ in 0..2000 {
            let which = (sizes.uniform() * BLOCKS as f64) as usize;
            drop(blocks.swap_remove(which));
            blocks.push(allocator.allocate(&Request::new(sizes.next())).unwrap());
        }
        let replaced = allocator.ledger().peak_ratio().unwrap();
        println!(
            "{name}: {filled:.3} pinned, {rounded:.4} rounded, powers of two: {torch:.3}; after 2,000 random \
             replacements {replaced:.3} of the peak"
        );
        assert!(filled <= 1.13 && rounded <= 1.03, "{name}: {filled} {rounded}");
        assert!(replaced <= max, "{name}: {replaced}");
        blocks.clear();
        assert_eq!((allocator.ledger().requested, allocator.ledger().rounded), (0, 0));
        allocator.trim(0);
        assert_eq!(allocator.ledger().reserved, 0);
    }
}

/// A loader keeps two batches, of which each third has the same sizes. The first steps pin and unpin regions;
/// then none does.
#[test]
fn a_warmed_loop_of_pinned_batches_calls_nothing() {
    let machine = Machine::new(&SimulationConfig::new().poison(false));
    let allocator = PinnedAllocator::new(&machine.device).into_ref();
    let mut batches = std::collections::VecDeque::new();
    let mut step = |number: usize| {
        let sizes: &[usize] = match number % 3 {
            0 => &[6_000_000, 70_000, 2_000_000],
            1 => &[3_500_000, 3_600_000],
            _ => &[1_500_000, 4096, 9_000_000, 1_200_000],
        };
        let batch: Vec<_> =
            sizes.iter().map(|&bytes| allocator.allocate(&Request::new(bytes)).unwrap()).collect();
        batches.push_back(batch);
        if batches.len() > 2 {
            batches.pop_front();
        }
    };
    (0..150).for_each(&mut step);
    drop(machine.take_calls());
    (150..600).for_each(&mut step);
    assert_eq!(machine.all_calls().len(), 0, "{:?}", machine.all_calls());
    let ledger = allocator.ledger();
    assert!(ledger.peak_ratio().unwrap() < 2.0, "{ledger:?}");
}

#[test]
fn a_pinned_block_is_not_handed_out_while_a_copy_reads_it() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let allocator = PinnedAllocator::new(&machine.device).into_ref();
    let run = |block: &orlop_alloc::Block| {
        let address = block.as_ptr().as_ptr().addr();
        let run = orlop_cudasim_control::KernelRun::new("dma").reads(address, block.len());
        machine.run_kernel(crate::machine::handle(&stream), run).unwrap();
    };
    for _ in 0..50 {
        let mut block = allocator.allocate(&Request::new(100_000)).unwrap();
        assert_eq!(block.stream(), StreamId::HOST);
        let address = block.as_ptr().as_ptr().addr();
        let write = orlop_cudasim_control::KernelAccess::write(address, block.len());
        machine.host_access("host", write).unwrap();
        block.bytes_mut().unwrap().fill(1);
        run(&block);
        block.record_stream(stream.id()).unwrap();
        drop(block);
    }
    assert_eq!(machine.races(), []);
    // A block that was requested for a stream waits for it too.
    for _ in 0..50 {
        let block = allocator.allocate(&Request::new(100_000).stream(stream.id())).unwrap();
        let address = block.as_ptr().as_ptr().addr();
        let write = orlop_cudasim_control::KernelAccess::write(address, block.len());
        machine.host_access("host", write).unwrap();
        run(&block);
    }
    assert_eq!(machine.races(), []);
}
