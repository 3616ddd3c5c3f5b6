//! What is allocated on the heap: a step of running sequences allocates nothing once it is warm, and a long
//! run keeps nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use orlop_alloc::Request;
use orlop_alloc::bare::GlobalAllocator;
use orlop_context::Context;
use orlop_core::{Device, StreamId};
use orlop_kv::{
    Adapter, AdmissionRequest, ChainFields, DeviceTransfer, KvGeometry, KvPool, LayerGroup, MediaSpan,
    RowRange, Sequence, Tenant,
};
use std::sync::{Mutex, PoisonError};

/// Counts what is allocated.
#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

/// One test at a time: the heap is the process's.
static TURN: Mutex<()> = Mutex::new(());

fn geometry() -> KvGeometry {
    let groups = vec![
        LayerGroup::full("full", 4, 64),
        LayerGroup::window("window", 4, 64, 128),
        LayerGroup::state("state", 2, 4096),
    ];
    KvGeometry::new(groups).unwrap()
}

#[test]
fn a_step_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pool = KvPool::builder(geometry()).bytes(1 << 30).build_detached().unwrap();
    let fields = ChainFields::new(Tenant::Shared, "weights", "");
    let start = |family: u32| -> Sequence {
        let prompt: Vec<u32> = (0..100).map(|at| family * 1000 + at).collect();
        let admission = pool.admit(&AdmissionRequest::new(fields, &prompt, 8000)).unwrap();
        pool.append(&admission.sequence, 100).unwrap();
        admission.sequence
    };
    let sequences: Vec<Sequence> = (0..64).map(start).collect();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    let mut row = vec![0; 512];
    let mut run = |token: u32| {
        for sequence in &sequences {
            pool.append(sequence, 1).unwrap();
        }
        for sequence in &sequences {
            pool.write_block_table(sequence, 0, 0, u32::MAX, &mut row).unwrap();
            assert!(pool.state_page(sequence, 2, 0).unwrap().is_some());
        }
        let step = pool.close_step();
        pool.settle(step).unwrap();
        for sequence in &sequences {
            let (len, _) = pool.len(sequence).unwrap();
            pool.push_tokens(sequence, len - 1, &[token]).unwrap();
        }
    };
    (0..500).for_each(&mut run);
    let allocations = || GlobalAllocator::stats().totals.all.allocations;
    // Tables double now and then, and the harness allocates, too: 100 steps without any are proof.
    let is_steady = (0..20).any(|window| {
        let before = allocations();
        (0..100).for_each(|at| run(window * 100 + at));
        allocations() == before
    });
    assert!(is_steady);
}

#[test]
fn copies_of_rows_allocate_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let context = Context::new();
    let mut pool = KvPool::builder(geometry()).bytes(1 << 22).build(&context, Device::CPU).unwrap();
    let transfer = DeviceTransfer::new(context.ops(Device::CPU).unwrap(), StreamId::HOST);
    let mut host = context.allocate(Device::CPU, &Request::new(1 << 16)).unwrap();
    let prompt: Vec<u32> = (0..900).collect();
    let fields = ChainFields::new(Tenant::Shared, "weights", "");
    let sequence = pool.admit(&AdmissionRequest::new(fields, &prompt, 1)).unwrap().sequence;
    pool.append(&sequence, 900).unwrap();
    let rows = RowRange { group: 0, layer: 2, arena: 0, rows: 3..897 };
    let is_silent = (0..5).any(|_| {
        let before = GlobalAllocator::stats().totals.all.allocations;
        pool.run_copies(&transfer).unwrap();
        pool.write_rows(&transfer, &sequence, &rows, &host).unwrap();
        pool.read_rows(&transfer, &sequence, &rows, &mut host).unwrap();
        GlobalAllocator::stats().totals.all.allocations == before
    });
    assert!(is_silent);
}

/// An engine that serves prompts with shared beginnings, with drafts, forks, aborts and eviction.
struct Engine {
    pool: KvPool,
    running: Vec<(Sequence, u32)>,
    random: u64,
}

impl Engine {
    fn new() -> Self {
        let pool = KvPool::builder(geometry()).bytes(3 << 20).scan_resistant(true).build_detached().unwrap();
        Self { pool, running: Vec::new(), random: 1 }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.random >> 33).unwrap() % bound
    }

    /// Starts a request, if it fits: its prompt has one of 20 beginnings.
    fn admit(&mut self) {
        let (family, shared, own) = (self.below(20), 32 * self.below(8), self.below(60));
        let other = self.below(1_000_000);
        let prompt: Vec<u32> =
            (0..shared).map(|at| family << 20 | at).chain((0..=own).map(|at| other << 8 | at)).collect();
        let fields = ChainFields::new(Tenant::Shared, "weights", "");
        let mut request = AdmissionRequest::new(fields, &prompt, 1 + self.below(200));
        request.drafts = 3;
        if let Ok(admission) = self.pool.admit(&request) {
            let end = shared + own + request.max_new;
            let mut left = shared + own + 1 - admission.hit;
            while left > 0 {
                let next = self.pool.tokens_to_checkpoint(&admission.sequence).unwrap().unwrap_or(left);
                self.pool.append(&admission.sequence, next.min(left)).unwrap();
                let step = self.pool.close_step();
                self.pool.settle(step).unwrap();
                left -= next.min(left);
            }
            self.running.push((admission.sequence, end));
        }
    }

    fn step(&mut self) {
        if self.running.len() < 16 && self.below(4) == 0 {
            self.admit();
        }
        let mut drafted = None;
        for at in 0..self.running.len() {
            let (sequence, end) = &self.running[at];
            let (len, _) = self.pool.len(sequence).unwrap();
            if drafted.is_none() && len % 5 == 0 && len + 4 <= *end {
                self.pool.append_drafts(sequence, 3).unwrap();
                drafted = Some((at, len));
            } else {
                self.pool.append(sequence, 1).unwrap();
            }
        }
        let step = self.pool.close_step();
        if let Some((at, len)) = drafted {
            let kept = 1 + self.below(4);
            self.pool.truncate(&self.running[at].0, len + kept).unwrap();
        }
        self.pool.settle(step).unwrap();
        for at in (0..self.running.len()).rev() {
            let (sequence, end) = &self.running[at];
            let (len, _) = self.pool.len(sequence).unwrap();
            if len < *end {
                continue;
            }
            let (ended, _) = self.running.swap_remove(at);
            match self.below(10) {
                0 => drop(ended),
                1 if self.running.len() < 16 => {
                    if let Ok(fork) = self.pool.fork(&ended, len + 20) {
                        self.running.push((fork, len + 20));
                    }
                    self.pool.finish(ended).unwrap();
                }
                _ => self.pool.finish(ended).unwrap(),
            }
        }
    }

    /// Ends everything, and returns the bytes on the heap.
    fn rest(&mut self) -> u64 {
        self.running.clear();
        let step = self.pool.close_step();
        self.pool.settle(step).unwrap();
        self.pool.discard_cache();
        let stats = self.pool.stats();
        assert_eq!((stats.free_bytes, stats.in_flight_bytes), (stats.total_bytes, 0));
        assert_eq!(self.pool.verify(), Ok(()));
        GlobalAllocator::stats().live()
    }
}

/// `cargo xtask kv-drift` runs ten million steps.
#[test]
fn a_long_run_keeps_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let steps: u64 = std::env::var("ORLOP_KV_STEPS").map_or(20_000, |steps| steps.parse().unwrap());
    let mut engine = Engine::new();
    let mut live = Vec::new();
    for _ in 0..10 {
        (0..steps / 10).for_each(|_| engine.step());
        live.push(engine.rest());
    }
    let stats = engine.pool.stats();
    println!(
        "{steps} steps, {} requests, {} evictions, live bytes {live:?}",
        stats.requests, stats.evictions
    );
    assert!(stats.requests * 100 > steps && stats.evictions > 100, "{stats:?}");
    // The first tenths find the sizes of tables and lists.
    let before = live[..5].iter().max().copied().unwrap_or_default();
    let after = live[5..].iter().max().copied().unwrap_or_default();
    assert!(after <= before + before / 50, "the heap grows: {live:?}");
}

/// Requests of tenants, adapters and media that come once. `ORLOP_KV_STEPS` sets the number of operations.
#[test]
fn a_flood_of_names_keeps_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let operations: u32 = std::env::var("ORLOP_KV_STEPS").map_or(40_000, |steps| steps.parse().unwrap());
    let mut pool = KvPool::builder(geometry()).bytes(3 << 20).build_detached().unwrap();
    let mut serve = |at: u32| {
        let name = format!("tenant {at}, with a name that is not short");
        let digest = at.to_le_bytes().repeat(8).into();
        let mut fields = ChainFields::new(Tenant::Named(&name), "weights", "");
        fields.adapter = Some(Adapter { name: &name, generation: at.into() });
        let media = [MediaSpan { position: 8, tokens: 16, digest }];
        fields.media = &media;
        let prompt: Vec<u32> = (0..64 + at % 64).collect();
        let mut request = AdmissionRequest::new(fields, &prompt, 1);
        // The cause of a miss is looked for among all tenants, which takes long.
        request.reuse = at.is_multiple_of(100);
        let admission = pool.admit(&request).unwrap();
        assert_eq!(admission.hit, 0, "nothing is shared");
        pool.append(&admission.sequence, 64 + at % 64).unwrap();
        let step = pool.close_step();
        pool.settle(step).unwrap();
        pool.finish(admission.sequence).unwrap();
    };
    let mut peaks = [0; 4];
    for (part, peak) in (0..).zip(&mut peaks) {
        // An admission, an append, a step that is closed and settled, and the end.
        for at in 0..operations / 20 {
            serve(part * (operations / 20) + at);
            *peak = GlobalAllocator::stats().live().max(*peak);
        }
    }
    println!("{operations} operations, peaks of live bytes {peaks:?}");
    // Tenants are forgotten by the thousand; the first half finds the sizes of tables and lists.
    let (before, after) = (peaks[0].max(peaks[1]), peaks[2].max(peaks[3]));
    assert!(after <= before + before / 50, "the heap grows: {peaks:?}");
    assert_eq!(pool.verify(), Ok(()));
}

/// A fork has room up to its limit, as its parent has.
#[test]
fn the_steps_of_a_fork_allocate_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pool = KvPool::builder(geometry()).bytes(1 << 26).compare_tokens(true).build_detached().unwrap();
    let prompt: Vec<u32> = (0..100).collect();
    let fields = ChainFields::new(Tenant::Shared, "weights", "");
    // The first rounds find the sizes of what the pool keeps, and the harness allocates, too.
    let is_silent = (0..5).any(|_| {
        let parent = pool.admit(&AdmissionRequest::new(fields, &prompt, 1)).unwrap();
        pool.append(&parent.sequence, 100 - parent.hit).unwrap();
        let step = pool.close_step();
        pool.settle(step).unwrap();
        let fork = pool.fork(&parent.sequence, 600).unwrap();
        let before = GlobalAllocator::stats().totals.all.allocations;
        for token in 0..500 {
            pool.append(&fork, 1).unwrap();
            let step = pool.close_step();
            pool.settle(step).unwrap();
            pool.push_tokens(&fork, 100 + token, &[token]).unwrap();
        }
        GlobalAllocator::stats().totals.all.allocations == before
    });
    assert!(is_silent);
}
