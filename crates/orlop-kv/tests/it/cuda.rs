//! Transfers by layers over the simulated CUDA driver: its clock shows what runs at the same time, and it
//! checks every access against all earlier ones.

use crate::cases::tokens;
use orlop_alloc::{Block, Request};
use orlop_context::Context;
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_cuda::{CudaDevice, CudaOps, DeviceStream, install};
use orlop_cudasim_control::{ExclusiveDriver, KernelRun, SimulatedDriver, SimulationConfig};
use orlop_kv::{
    AdmissionRequest, ChainFields, DeviceTransfer, KvGeometry, KvLayer, KvPool, LayerGroup, Sequence, Tenant,
    TicketId,
};
use std::sync::Arc;
use std::time::Duration;

const LAYERS: u32 = 6;
const ENTRY: u64 = 4096;
/// Tokens that are loaded, in blocks of 16.
const LOADED: u32 = 64;
/// Bytes of a layer's load.
const BYTES: usize = LOADED as usize * 4096;

fn layer(layer: u32) -> KvLayer {
    KvLayer { group: 0, layer }
}

/// A pool on a simulated device on which a copy of a layer and its kernel take a millisecond each.
struct Gpu {
    pool: KvPool,
    context: Context,
    ops: Arc<CudaOps>,
    kernels: DeviceStream,
    copies: DeviceStream,
    /// Dropped last: the driver is another test's then.
    driver: ExclusiveDriver,
}

impl Gpu {
    fn new() -> Self {
        let config = SimulationConfig::new().operation_time(Duration::ZERO).call_time(Duration::ZERO);
        let config = config.bytes_per_microsecond(BYTES as u64 / 1_000);
        let driver = SimulatedDriver::exclusive(&config).unwrap();
        let device = CudaDevice::new(0).unwrap();
        let context = Context::new();
        install(&context, &device).unwrap();
        let (kernels, copies) = (device.create_stream().unwrap(), device.create_stream().unwrap());
        let geometry = KvGeometry::new(vec![LayerGroup::full("full", LAYERS, ENTRY)]).unwrap();
        let pool =
            KvPool::builder(geometry).large_pages(8 * LAYERS).build(&context, device.device()).unwrap();
        Self { pool, context, ops: Arc::new(CudaOps::new(&device)), kernels, copies, driver }
    }

    fn transfer(&self, stream: StreamId) -> DeviceTransfer {
        DeviceTransfer::new(self.ops.clone(), stream)
    }

    fn host(&self, byte: u8) -> Block {
        let mut block = self.context.allocate(Device::CPU, &Request::new(BYTES)).unwrap();
        block.bytes_mut().unwrap().fill(byte);
        block
    }

    fn pinned(&self) -> Block {
        let request = Request::new(BYTES).kind(MemoryKind::HostPinned);
        self.context.allocate(Device::CPU, &request).unwrap()
    }

    fn admit(&mut self) -> Sequence {
        let prompt = tokens(1, LOADED + 16);
        let fields = ChainFields::new(Tenant::Shared, "weights", "bf16");
        self.pool.admit(&AdmissionRequest::new(fields, &prompt, 1)).unwrap().sequence
    }

    /// Runs the kernel of a layer: it reads or writes the first `blocks` blocks of a sequence.
    fn run_kernel(&self, sequence: &Sequence, layer: u32, writes: bool, blocks: usize) {
        let view = self.pool.geometry().arena(0, layer, 0).unwrap();
        let mut row = [0; 8];
        self.pool.write_block_table(sequence, 0, view.part, u32::MAX, &mut row).unwrap();
        let memory = self.pool.memory().unwrap().as_ptr().as_ptr().addr();
        let mut run = KernelRun::new("attention").takes(Duration::from_millis(1));
        let mut places = Vec::new();
        for &page in &row[..blocks] {
            let at = memory + usize::try_from(view.base + u64::from(page) * view.stride).unwrap();
            let bytes = usize::try_from(view.bytes).unwrap();
            run = if writes { run.writes(at, bytes) } else { run.reads(at, bytes) };
            places.push((at, bytes));
        }
        let run = run.effect(move |memory| {
            for &(at, bytes) in places.iter().filter(|_| writes) {
                memory.write(at, &vec![u8::try_from(layer).unwrap() + 1; bytes]);
            }
        });
        let stream = self.kernels.cudarc().cu_stream().addr() as u64;
        self.driver.run_kernel(stream, run).unwrap();
    }

    /// Loads all layers beside a step that uses them, and returns the time that this takes. `waits` are the
    /// layers whose kernels wait for their load.
    fn load_and_compute(&mut self, ticket: TicketId, sequence: &Sequence, waits: u32) -> Duration {
        let (kernels, copies) = (self.transfer(self.kernels.id()), self.transfer(self.copies.id()));
        let before = self.driver.now();
        let host = self.host(1);
        self.pool.load_layer(&copies, ticket, layer(0), &host).unwrap();
        for at in 0..LAYERS {
            if at < waits {
                self.pool.await_layer(&kernels, ticket, layer(at)).unwrap();
            }
            if at + 1 < LAYERS {
                self.pool.load_layer(&copies, ticket, layer(at + 1), &host).unwrap();
            }
            self.run_kernel(sequence, at, false, LOADED as usize / 16);
        }
        self.kernels.synchronize().unwrap();
        self.driver.now() - before
    }
}

/// The kernels of a layer run while the next layer is loaded, and never before their own.
#[test]
fn a_layer_is_computed_while_the_next_one_is_loaded() {
    for waits in [LAYERS, 2] {
        let mut gpu = Gpu::new();
        let sequence = gpu.admit();
        let (ticket, _) = gpu.pool.begin_load_by_layer(&sequence, LOADED, 1_000).unwrap();
        gpu.pool.append(&sequence, 16).unwrap();
        let step = gpu.pool.close_step();
        let taken = gpu.load_and_compute(ticket, &sequence, waits);
        assert_eq!(gpu.driver.races().is_empty(), waits == LAYERS, "{:?}", gpu.driver.races());
        if waits == LAYERS {
            let one_by_one = Duration::from_millis(2 * u64::from(LAYERS));
            assert!(taken < one_by_one * 7 / 10, "{taken:?} of {one_by_one:?}");
        }
        gpu.pool.settle(step).unwrap();
        gpu.pool.complete(ticket).unwrap();
        assert_eq!(gpu.pool.len(&sequence).unwrap(), (LOADED + 16, LOADED + 16));
    }
}

/// A layer is stored behind its own kernel, while the kernel of the next layer runs: the host waits for none.
/// The simulated driver reports a copy that follows another stream.
#[test]
fn a_layer_is_stored_behind_its_kernel() {
    for follows_kernels in [true, false] {
        let mut gpu = Gpu::new();
        let sequence = gpu.admit();
        gpu.pool.append(&sequence, LOADED).unwrap();
        let step = gpu.pool.close_step();
        let ticket = gpu.pool.begin_store_by_layer(&sequence, LOADED, 1_000).unwrap();
        let transfer = gpu.transfer(gpu.copies.id());
        let kernels = if follows_kernels { gpu.kernels.id() } else { gpu.copies.id() };
        let before = gpu.driver.now();
        let mut copies = Vec::new();
        for at in 0..LAYERS {
            gpu.run_kernel(&sequence, at, true, LOADED as usize / 16);
            let host = gpu.pinned();
            copies.push(gpu.pool.store_layer(&transfer, ticket, layer(at), kernels, host).unwrap());
        }
        assert!(gpu.driver.now() - before < Duration::from_millis(1), "the host has waited");
        if follows_kernels {
            gpu.pool.complete(ticket).unwrap();
            let (taken, one_by_one) = (gpu.driver.now() - before, Duration::from_millis(2 * 6));
            assert!(taken < one_by_one * 7 / 10, "{taken:?} of {one_by_one:?}");
        }
        for (written, copy) in (1..).zip(copies) {
            let host = copy.wait().unwrap();
            let is_written = host.bytes().unwrap().iter().all(|&byte| byte == written);
            assert!(is_written || !follows_kernels, "layer {written}");
        }
        gpu.kernels.synchronize().unwrap();
        gpu.pool.settle(step).unwrap();
        assert_eq!(gpu.driver.races().is_empty(), follows_kernels, "{:?}", gpu.driver.races());
    }
}

/// Pages under a store stay until its copies are done, also if its lease ends before; a copy that is dropped
/// is waited for.
#[test]
fn the_end_of_a_lease_waits_for_the_copies() {
    for is_dropped in [true, false] {
        let mut gpu = Gpu::new();
        let sequence = gpu.admit();
        gpu.pool.append(&sequence, LOADED).unwrap();
        let step = gpu.pool.close_step();
        let ticket = gpu.pool.begin_store_by_layer(&sequence, LOADED, 10).unwrap();
        let (transfer, host) = (gpu.transfer(gpu.copies.id()), gpu.pinned());
        gpu.run_kernel(&sequence, 0, true, LOADED as usize / 16);
        let copy = gpu.pool.store_layer(&transfer, ticket, layer(0), gpu.kernels.id(), host).unwrap();
        let mut copy = Some(copy);
        if is_dropped {
            copy = None;
        } else {
            gpu.pool.set_time(10);
        }
        // The kernel takes a millisecond, the copy half of one at least.
        assert!(gpu.driver.now() >= Duration::from_micros(1_400), "{:?}", gpu.driver.now());
        gpu.pool.settle(step).unwrap();
        drop(copy);
        assert!(gpu.driver.races().is_empty(), "{:?}", gpu.driver.races());
    }
}

/// A store whose copies were waited for ends while their stream has other work.
#[test]
fn copies_are_waited_for_once() {
    for is_completed in [true, false] {
        let mut gpu = Gpu::new();
        let sequence = gpu.admit();
        gpu.pool.append(&sequence, LOADED).unwrap();
        let step = gpu.pool.close_step();
        let ticket = gpu.pool.begin_store_by_layer(&sequence, LOADED, 10).unwrap();
        let (transfer, stream) = (gpu.transfer(gpu.kernels.id()), gpu.kernels.id());
        for at in 0..LAYERS {
            let host = gpu.pinned();
            gpu.run_kernel(&sequence, at, true, LOADED as usize / 16);
            let copy = gpu.pool.store_layer(&transfer, ticket, layer(at), stream, host).unwrap();
            drop(copy.wait().unwrap());
        }
        gpu.pool.settle(step).unwrap();
        gpu.run_kernel(&sequence, 0, false, LOADED as usize / 16);
        let before = gpu.driver.now();
        if is_completed {
            gpu.pool.complete(ticket).unwrap();
        } else {
            gpu.pool.set_time(10);
        }
        assert_eq!(gpu.driver.now(), before, "the host has waited for a kernel");
        assert!(gpu.pool.complete(ticket).is_err(), "the ticket is closed");
        gpu.kernels.synchronize().unwrap();
        assert!(gpu.driver.now() > before && gpu.driver.races().is_empty());
    }
}

/// Copies are waited for by an event behind them: neither their block nor the end of their ticket waits for
/// the kernels that their stream was given since.
#[test]
fn copies_are_waited_for_without_the_work_behind_them() {
    for waits_by_ticket in [true, false] {
        let mut gpu = Gpu::new();
        let sequence = gpu.admit();
        gpu.pool.append(&sequence, LOADED).unwrap();
        let step = gpu.pool.close_step();
        let ticket = gpu.pool.begin_store_by_layer(&sequence, LOADED, 10).unwrap();
        let (transfer, stream) = (gpu.transfer(gpu.kernels.id()), gpu.kernels.id());
        let mut copies = Vec::new();
        for at in 0..LAYERS {
            let host = gpu.pinned();
            copies.push(gpu.pool.store_layer(&transfer, ticket, layer(at), stream, host).unwrap());
        }
        for _ in 0..10 {
            gpu.run_kernel(&sequence, 0, false, LOADED as usize / 16);
        }
        let before = gpu.driver.now();
        if waits_by_ticket {
            gpu.pool.complete(ticket).unwrap();
        }
        copies.into_iter().for_each(|copy| drop(copy.wait().unwrap()));
        let waited = gpu.driver.now() - before;
        let of_copies = Duration::from_millis(u64::from(LAYERS));
        assert!(waited > Duration::ZERO && waited <= of_copies, "{waited:?}");
        gpu.kernels.synchronize().unwrap();
        assert!(gpu.driver.now() - before >= Duration::from_millis(10) && gpu.driver.races().is_empty());
        gpu.pool.settle(step).unwrap();
    }
}
