//! [`Program`]: a random program of several threads over one allocator.
//!
//! Each thread has streams of its own. Blocks pass from thread to thread; a thread that takes one makes its
//! stream wait for the stream that used the block last, which it records on the block. Besides, threads
//! create and drop streams, adopt foreign ones, capture graphs into private pools, and launch them; a second
//! device uses the memory of the first one, and copies it.

use super::captures::{Captures, OwnGraph};
use super::peer::Peer;
use crate::machine::handle;
use orlop_alloc::{
    Allocator, AllocatorRef, Block, Request,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_core::{Device, StreamId};
use orlop_cuda::{CudaDevice, CudaOps, DeviceStream};
use orlop_cudasim_control::{KernelAccess, KernelRun, SimulatedDriver};
use orlop_testkit::device::Random;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of streams of a thread. The last is an external one.
const STREAMS: usize = 4;

/// A stream of a thread.
#[derive(Clone)]
pub(super) struct OwnStream {
    pub(super) stream: DeviceStream,
    /// Made by other code, which keeps it until the blocks that it used are freed. Allocators may adopt it.
    is_external: bool,
}

impl OwnStream {
    pub(super) fn new(stream: DeviceStream) -> Self {
        Self { stream, is_external: false }
    }

    pub(super) fn id(&self) -> StreamId {
        self.stream.id()
    }

    /// Makes it wait for the work that another stream was given so far.
    pub(super) fn wait_for(&self, other: StreamId) {
        self.stream.wait_for(other).unwrap();
    }
}

/// A block and the stream that used it last: a program orders its own uses.
pub(super) struct UsedBlock {
    pub(super) block: Block,
    last: OwnStream,
    /// The external streams that used it.
    kept: Vec<DeviceStream>,
}

pub(super) struct Program<'a> {
    pub(super) driver: SimulatedDriver,
    pub(super) device: &'a CudaDevice,
    pub(super) ops: CudaOps,
    pub(super) allocator: AllocatorRef,
    /// What only caching allocators can do.
    pub(super) caching: Option<Box<dyn Captures>>,
    pub(super) pinned: AllocatorRef,
    pub(super) peer: Option<Peer>,
    pub(super) blocks: Mutex<Vec<UsedBlock>>,
    pub(super) next_pool: AtomicU64,
    pub(super) counts: ProgramCounts,
}

/// How often a program did what happens rarely.
#[derive(Debug, Default)]
pub(super) struct ProgramCounts {
    /// Captures, during most of which other threads allocate.
    pub(super) captures: AtomicU64,
    pub(super) launches: AtomicU64,
    /// Foreign streams that were adopted while freed blocks waited for streams.
    pub(super) adopted: AtomicU64,
    pub(super) staged: AtomicU64,
    pub(super) peer_kernels: AtomicU64,
    pub(super) peer_copies: AtomicU64,
}

pub(super) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A thread of a program.
pub(super) struct Worker<'a> {
    pub(super) program: &'a Program<'a>,
    pub(super) random: Random,
    streams: Vec<OwnStream>,
    /// A stream of the second device, if there is one.
    pub(super) peer_stream: Option<OwnStream>,
    /// Captures and launches graphs; nothing else runs in it.
    captured: DeviceStream,
    graphs: VecDeque<OwnGraph>,
}

impl UsedBlock {
    fn new(block: Block, stream: &OwnStream) -> Self {
        let kept = stream.is_external.then(|| stream.stream.clone());
        Self { block, last: stream.clone(), kept: kept.into_iter().collect() }
    }

    /// Returns the stream that used it last.
    pub(super) fn last(&self) -> &OwnStream {
        &self.last
    }

    pub(super) fn use_on(&mut self, stream: &OwnStream) {
        self.last = stream.clone();
        if stream.is_external && self.kept.iter().all(|kept| kept.id() != stream.stream.id()) {
            self.kept.push(stream.stream.clone());
        }
    }
}

impl Program<'_> {
    /// Runs one thread.
    pub(super) fn run(&self, seed: u64, operations: u64) {
        let streams = (0..STREAMS).map(|place| self.new_stream(place)).collect();
        let (random, captured) = (Random::new(seed), self.device.create_stream().unwrap());
        let (peer_stream, graphs) = (self.peer.as_ref().map(Peer::new_stream), VecDeque::new());
        let mut worker = Worker { program: self, random, streams, peer_stream, captured, graphs };
        for _ in 0..operations {
            worker.step();
        }
        while worker.drop_graph() {}
    }

    /// Checks that nothing that a program can do was left out.
    pub(super) fn check_counts(&self, name: &str) {
        let ProgramCounts { captures, launches, adopted, staged, peer_kernels, peer_copies } = &self.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        if self.caching.is_some() {
            assert!(
                read(captures) > 0 && read(launches) > 0 && read(adopted) > 0,
                "{name}: {:?}",
                self.counts
            );
        }
        let is_cpu = self.allocator.device().is_cpu();
        assert!(read(staged) > 0 || is_cpu, "{name}: {:?}", self.counts);
        if self.peer.is_some() {
            assert!(read(peer_kernels) > 0, "{name}: {:?}", self.counts);
            assert!(read(peer_copies) > 0 || is_cpu, "{name}: {:?}", self.counts);
        }
    }

    fn new_stream(&self, place: usize) -> OwnStream {
        if place + 1 < STREAMS {
            return OwnStream::new(self.device.create_stream().unwrap());
        }
        let external = self.device.context().default_stream().fork().unwrap();
        OwnStream { stream: self.device.adopt_stream(external).unwrap(), is_external: true }
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, Vec<UsedBlock>> {
        self.blocks.lock().unwrap()
    }
}

impl Worker<'_> {
    fn step(&mut self) {
        let place = self.random.below(STREAMS);
        let stream = self.streams[place].clone();
        let (count, taken) = {
            let mut blocks = self.program.blocks();
            let (count, next) = (blocks.len(), self.random.below(blocks.len()));
            (count, (count > 0).then(|| blocks.swap_remove(next)))
        };
        let keep = |used: Option<UsedBlock>| self.program.blocks().extend(used);
        match (self.random.below(1000), taken) {
            (0..350, Some(mut used)) if count > 40 => {
                if self.random.one_in(2) {
                    self.kernel(&mut used, &stream);
                }
                drop(used);
            }
            (350..600, Some(mut used)) => {
                self.kernel(&mut used, &stream);
                self.program.blocks().push(used);
            }
            (600..700, Some(mut used)) if !used.block.device().is_cpu() => {
                self.copy(&mut used, &stream);
                self.program.blocks().push(used);
            }
            (700..850, taken) => drop(taken),
            (850..870, taken) => {
                keep(taken);
                // Most streams are simply dropped: allocators then learn their end from the table of streams.
                if let Some(caching) = self.program.caching.as_ref().filter(|_| self.random.one_in(4))
                    && !stream.is_external
                {
                    let _refused = caching.retire(stream.stream.id());
                }
                self.streams[place] = self.program.new_stream(place);
            }
            (870..880, taken) => {
                drop(taken);
                self.program.allocator.trim(0);
            }
            (880..890, taken) => {
                keep(taken);
                if let Some(caching) = &self.program.caching {
                    let has_pending = self.program.allocator.usage().deferred > 0;
                    // It has free and pending memory, and live blocks. Refused during a capture.
                    let adopted = caching.adopt_foreign(self.streams[STREAMS - 1].stream.id());
                    if adopted.is_ok() && has_pending {
                        increment(&self.program.counts.adopted);
                    }
                }
            }
            (890..896, taken) => {
                keep(taken);
                self.capture();
            }
            (896..910, taken) => {
                keep(taken);
                let graph = self.random.below(self.graphs.len());
                if let Some(graph) = self.graphs.get(graph) {
                    graph.launch();
                    increment(&self.program.counts.launches);
                }
            }
            (910..930, Some(mut used)) => {
                self.peer_kernel(&mut used);
                self.program.blocks().push(used);
            }
            (930..950, Some(mut used)) => {
                self.peer_copy(&mut used, &stream);
                self.program.blocks().push(used);
            }
            (950..955, taken) => {
                keep(taken);
                self.peer_stream = self.program.peer.as_ref().map(Peer::new_stream);
            }
            (_, taken) => {
                keep(taken);
                self.allocate(&stream);
            }
        }
    }

    fn allocate(&mut self, stream: &OwnStream) {
        let bytes = 1 + match self.random.below(4) {
            0 => self.random.below(1 << 12),
            1 => self.random.below(1 << 18),
            2 => self.random.below(1 << 21),
            _ => self.random.below(6 << 20),
        };
        let request = Request::new(bytes).stream(stream.stream.id());
        // Pinned memory is zeroed by the host only. Large fills only take the test's time.
        let is_zeroed = !self.program.allocator.device().is_cpu()
            && if bytes < 1 << 18 { self.random.one_in(4) } else { self.random.one_in(64) };
        let request = if is_zeroed { request.zeroed() } else { request };
        let Ok(block) = self.program.allocator.allocate(&request) else {
            let all = std::mem::take(&mut *self.program.blocks());
            drop(all);
            return;
        };
        let mut used = UsedBlock::new(block, stream);
        self.kernel(&mut used, stream);
        self.program.blocks().push(used);
    }

    /// Makes a stream the next user of a block.
    pub(super) fn order(&self, used: &mut UsedBlock, stream: &OwnStream) {
        if used.last.id() != stream.id() {
            stream.wait_for(used.last.id());
            assert!(used.block.acquire_for(&self.program.ops, stream.id()).unwrap());
            used.use_on(stream);
        }
    }

    fn kernel(&mut self, used: &mut UsedBlock, stream: &OwnStream) {
        self.order(used, stream);
        let (address, bytes) = (used.block.as_ptr().as_ptr().addr(), used.block.len());
        let from = self.random.below(bytes);
        self.write(&stream.stream, address + from, bytes - from);
    }

    /// A kernel of a device writes all of a block. The driver looks for the function in the current context.
    pub(super) fn write_all(&mut self, device: &CudaDevice, stream: &DeviceStream, block: &Block) {
        device.context().bind_to_thread().unwrap();
        self.write(stream, block.as_ptr().as_ptr().addr(), block.len());
        self.program.device.context().bind_to_thread().unwrap();
    }

    fn write(&mut self, stream: &DeviceStream, address: usize, bytes: usize) {
        let time = Duration::from_nanos(100 + self.random.below(20_000) as u64);
        let run = KernelRun::new("kernel").writes(address, bytes).takes(time);
        self.program.driver.run_kernel(handle(stream), run).unwrap();
    }

    /// Copies between a block and the host: pinned blocks, which are dropped at once, or pageable memory
    /// through the staging buffer.
    fn copy(&mut self, used: &mut UsedBlock, stream: &OwnStream) {
        self.order(used, stream);
        let (ops, stream) = (&self.program.ops, stream.stream.id());
        let bytes = used.block.len().min(1 + self.random.below(1 << 18));
        let here = DevicePtr::new(used.block.as_ptr(), used.block.device());
        if self.random.one_in(4) {
            let mut pageable = vec![5_u8; bytes];
            let there = DevicePtr::new(NonNull::from(pageable.as_mut_slice()).cast(), Device::CPU);
            // SAFETY: both have this many bytes; a pageable source has been read when the call returns.
            unsafe { ops.copy(here, there, bytes, stream) }.unwrap();
            increment(&self.program.counts.staged);
            return;
        }
        let mut host = self.program.pinned.allocate(&Request::new(bytes)).unwrap();
        let (address, there) = (host.as_ptr().as_ptr().addr(), DevicePtr::kept(host.as_ptr()));
        let access = |access| self.program.driver.host_access("host", access).unwrap();
        host.record_stream(stream).unwrap();
        if self.random.one_in(2) {
            access(KernelAccess::write(address, bytes));
            host.bytes_mut().unwrap().fill(3);
            // SAFETY: both have this many bytes, and are kept until the stream's work.
            unsafe { ops.copy(here, there, bytes, stream) }.unwrap();
        } else {
            // SAFETY: as above.
            unsafe { ops.copy(there, here, bytes, stream) }.unwrap();
            if self.random.one_in(4) {
                ops.synchronize(stream).unwrap();
                access(KernelAccess::read(address, bytes));
            }
        }
    }

    /// Captures a graph, whose memory is a private pool, while the other threads go on.
    fn capture(&mut self) {
        let Some(caching) = &self.program.caching else { return };
        if self.graphs.len() >= 3 {
            self.drop_graph();
        }
        let stream = self.captured.clone();
        let mode = self.random.below(3);
        let capture = caching.begin(&self.program.next_pool, &stream, mode);
        let mut kept = Vec::new();
        for _ in 0..10 {
            let bytes = 1 + if self.random.one_in(8) { 2 << 20 } else { self.random.below(1 << 18) };
            let request = Request::new(bytes).stream(stream.id());
            let request = if self.random.one_in(4) { request.zeroed() } else { request };
            // During a capture nothing is waited for: a request may find no memory.
            let Ok(block) = self.program.allocator.allocate(&request) else { continue };
            self.write(&stream, block.as_ptr().as_ptr().addr(), block.len());
            kept.push(block);
            if self.random.one_in(2) {
                // Freed in the capture, and reused in it.
                drop(kept.swap_remove(self.random.below(kept.len())));
            }
        }
        let graph = caching.end(capture, &stream, kept);
        increment(&self.program.counts.captures);
        if self.random.one_in(2) {
            graph.launch();
        }
        self.graphs.push_back(graph);
    }

    /// Drops the oldest graph, and its pool.
    fn drop_graph(&mut self) -> bool {
        let (Some(caching), Some(graph)) = (&self.program.caching, self.graphs.pop_front()) else {
            return false;
        };
        caching.release(graph);
        true
    }
}
