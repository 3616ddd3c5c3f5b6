//! Programs on real memory: the contents of every block stay while pages of others move, every page has one
//! address, and nothing leaks. The order of streams is checked by the mock device of `orlop-testkit`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use super::{MIB, torch};
use crate::{
    BackingError, DeviceAllocator, DeviceBacking, DeviceBlock, DeviceError, DeviceRequest, Engine, Growth,
    HostPages, Policy,
};
use orlop_alloc::{Allocator, Request};
use orlop_core::StreamId;
use orlop_testkit::device::Random;
use orlop_testkit::pattern;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::Cell;

const PAGE: usize = 2 * MIB;

#[derive(Debug, Clone)]
enum Step {
    Allocate(usize, u64),
    Use(usize, u64),
    Free(usize),
    /// Whether events are complete when they are queried.
    EventsDone(bool),
    Empty,
    /// The system refuses some of the next calls that change mappings.
    Refuse(u64),
}

fn steps(refusals: u32) -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![2 => 1_usize..4096, 3 => 1_usize..(3 << 20), 3 => 1_usize..(12 << 20)];
    let step = prop_oneof![
        10 => (bytes, 0_u64..4).prop_map(|(bytes, stream)| Step::Allocate(bytes, stream)),
        7 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), 0_u64..5).prop_map(|(which, stream)| Step::Use(which, stream)),
        2 => any::<bool>().prop_map(Step::EventsDone),
        1 => Just(Step::Empty),
        refusals => any::<u64>().prop_map(|calls| Step::Refuse(calls & (calls >> 21))),
    ];
    prop::collection::vec(step, 0..120)
}

/// An engine, and its live blocks with the seeds of their contents.
struct Program {
    engine: Engine<HostPages>,
    live: Vec<(DeviceBlock, u64)>,
    blocks: u64,
}

impl Program {
    fn new(policy: Policy, memory: u64) -> Self {
        let memory = HostPages::new(memory).expect("Linux");
        Self { engine: Engine::new(memory, policy), live: Vec::new(), blocks: 0 }
    }

    fn place(&self, block: DeviceBlock) -> (usize, usize) {
        (self.engine.address(block), self.engine.size(block))
    }

    fn allocate(&mut self, bytes: usize, stream: StreamId) -> Result<(), DeviceError> {
        let block = self.engine.allocate(DeviceRequest::new(bytes, stream))?;
        let (address, size) = self.place(block);
        self.blocks += 1;
        fill(address, size, self.blocks);
        self.live.push((block, self.blocks));
        Ok(())
    }

    fn free(&mut self, which: usize) {
        let (block, seed) = self.live.swap_remove(which);
        let (address, size) = self.place(block);
        check(address, size, seed);
        self.engine.free(block).unwrap();
    }

    fn step(&mut self, step: Step) {
        let some = self.live.len();
        match step {
            Step::Allocate(bytes, stream) => {
                // It may fail: the memory is small.
                let _full = self.allocate(bytes, StreamId::from_raw(stream));
            }
            Step::Use(which, stream) if some > 0 => {
                self.engine.record_stream(self.live[which % some].0, StreamId::from_raw(stream)).unwrap();
            }
            Step::Free(which) if some > 0 => self.free(which % some),
            Step::Use(..) | Step::Free(_) => {}
            Step::EventsDone(done) => self.engine.backing().set_events_done(done),
            Step::Empty => self.engine.empty_cache().unwrap(),
            Step::Refuse(calls) => self.engine.backing().refuse(calls),
        }
        self.engine.verify().unwrap();
        self.engine.backing().prove();
        assert_eq!(self.engine.backing().used(), self.engine.stats().reserved_bytes.all.current);
    }

    fn check_all(&self) {
        for &(block, seed) in &self.live {
            let (address, size) = self.place(block);
            check(address, size, seed);
        }
    }

    /// Checks that all blocks are intact, and that nothing is left after they were freed. Returns the bytes
    /// of moved pages.
    fn finish(mut self) -> u64 {
        self.check_all();
        while !self.live.is_empty() {
            self.free(0);
        }
        self.engine.backing().refuse(0);
        self.engine.empty_cache().unwrap();
        let memory = self.engine.backing();
        memory.prove();
        assert_eq!(memory.used(), 0);
        assert_eq!(memory.resident().unwrap(), 0);
        self.engine.stats().remapped_bytes
    }
}

/// Returns the bytes of a block.
fn bytes<'a>(address: usize, bytes: usize) -> &'a mut [u8] {
    let start = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the callers pass live blocks: mapped, initialised, and not used elsewhere.
    unsafe { std::slice::from_raw_parts_mut(start, bytes) }
}

/// Writes every byte of a block.
fn fill(address: usize, len: usize, seed: u64) {
    bytes(address, len).chunks_mut(pattern::WHOLE).for_each(|part| pattern::fill(seed, part));
}

/// Checks every byte of a block.
fn check(address: usize, len: usize, seed: u64) {
    let mut parts = bytes(address, len).chunks(pattern::WHOLE);
    let is_intact = parts.all(|part| pattern::difference(seed, part).is_none());
    assert!(is_intact, "block {seed} at {address:#x} was overwritten");
}

/// Runs random programs, the same each time. Returns the bytes of moved pages.
fn run(policy: &Policy, cases: u32, refusals: u32) -> u64 {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let moved = Cell::new(0);
    let outcome = runner.run(&steps(refusals), |steps| {
        let mut program = Program::new(policy.clone(), 32 << 20);
        steps.into_iter().for_each(|step| program.step(step));
        moved.set(moved.get() + program.finish());
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{}: {error}", policy.name));
    moved.get()
}

fn expandable() -> Policy {
    torch("expandable_segments:True,large_segment_size_mb:12")
}

#[test]
fn contents_stay_while_pages_move() {
    assert!(run(&Policy::orlop(), 12, 0) > 50 << 20, "pages move");
}

#[test]
fn contents_stay_under_other_policies() {
    for policy in [expandable(), torch(""), Policy::orlop_without_pages()] {
        assert_eq!(run(&policy, 4, 0), 0);
    }
}

/// If the system refuses a call, a request fails, and nothing else.
#[test]
fn contents_stay_when_the_system_refuses_calls() {
    assert!(run(&Policy::orlop(), 12, 3) > 0);
    run(&expandable(), 4, 3);
    run(&Policy::orlop_without_pages(), 4, 3);
}

/// Any free page can serve any request.
#[test]
fn the_largest_request_takes_all_free_pages() {
    let memory = 128 * MIB;
    let mut program = Program::new(Policy::orlop(), memory as u64);
    let mut random = Random::new(1);
    for round in 0..8 {
        while program
            .allocate(MIB + random.below(4 * MIB), StreamId::from_raw(random.below(3) as u64))
            .is_ok()
        {}
        for _ in 0..program.live.len() / 2 {
            program.free(random.below(program.live.len()));
        }
        program.engine.index_last_freed();
        let engine = &program.engine;
        let reserved = usize::try_from(engine.stats().reserved_bytes.all.current).unwrap();
        let whole = usize::try_from(engine.whole_free_pages()).unwrap() + memory - reserved;
        assert!(whole >= 8 * PAGE && engine.largest_free() < whole as u64, "it is fragmented: {whole}");
        let mut bytes = whole;
        while program.allocate(bytes, StreamId::HOST).is_err() {
            bytes -= MIB / 2;
        }
        assert!(bytes * 100 >= whole * 98, "round {round}: {bytes} of {whole}");
        program.check_all();
        program.free(program.live.len() - 1);
    }
    assert!(program.finish() > 0);
}

#[test]
fn requests_beyond_the_memory_are_refused() {
    let memory = HostPages::new(3 << 20).unwrap();
    assert_eq!(memory.memory(), 4 << 20, "rounded up");
    assert_eq!(memory.allocate(5 << 20), Err(BackingError::OutOfMemory));
    let address = memory.allocate(4 << 20).unwrap();
    assert_eq!(memory.allocate(1), Err(BackingError::OutOfMemory));
    // SAFETY: allocated above, and not used.
    unsafe { memory.release(address, 4 << 20) }.unwrap();
    assert_eq!(memory.used(), 0);
    let error = HostPages::new(u64::MAX).unwrap_err();
    assert!(matches!(error, DeviceError::NoMovablePages { bytes: u64::MAX, .. }), "{error}");
}

/// Multiples of the system's pages, not of 2 MiB: extents are split.
#[test]
fn any_whole_pages_can_be_moved() {
    let memory = HostPages::new(2 << 20).unwrap();
    let from = memory.reserve_addresses(1 << 20).unwrap();
    let to = memory.reserve_addresses(1 << 20).unwrap();
    let step = 64 << 10;
    // SAFETY: reserved above, without pages.
    unsafe { memory.map(from, 4 * step, step) }.unwrap();
    (0..4).for_each(|part| fill(from + part * step, step, part as u64));
    for part in [2, 0, 3, 1] {
        // SAFETY: mapped above and not moved yet; nothing is mapped there.
        unsafe { memory.remap(from + part * step, to + (3 - part) * step, step, step) }.unwrap();
        check(to + (3 - part) * step, step, part as u64);
        memory.prove();
    }
    // SAFETY: less than a page, which is refused.
    assert!(unsafe { memory.map(from, 100, 100) }.is_err());
    // SAFETY: mapped above.
    unsafe { memory.unmap(to, 4 * step, step) }.unwrap();
    for range in [from, to] {
        // SAFETY: reserved above, without pages.
        unsafe { memory.release_addresses(range, 1 << 20) }.unwrap();
    }
    assert_eq!((memory.used(), memory.resident().unwrap()), (0, 0));
}

/// The kernel closes whole pages: part of one would close it under a live block.
#[test]
fn a_part_of_a_page_is_neither_unmapped_nor_moved() {
    let memory = HostPages::new(2 << 20).unwrap();
    let [from, to] = [(); 2].map(|()| memory.reserve_addresses(1 << 20).unwrap());
    let page = memory.page_granularity().unwrap();
    // SAFETY: reserved above, without pages.
    unsafe { memory.map(from, page, page) }.unwrap();
    fill(from, page, 1);
    for (address, bytes) in [(from, page / 4), (from + page / 2, page / 2), (from, 0)] {
        // SAFETY: mapped, if it were whole; it is refused.
        let unmapped = unsafe { memory.unmap(address, bytes, page / 4) };
        // SAFETY: as above; nothing is mapped there.
        let moved = unsafe { memory.remap(address, to, bytes, page / 4) };
        assert_eq!((unmapped, moved), (Err(BackingError::Unsupported), Err(BackingError::Unsupported)));
    }
    check(from, page, 1);
    memory.prove();
    // SAFETY: mapped above.
    unsafe { memory.unmap(from, page, page) }.unwrap();
}

#[test]
fn pages_of_a_policy_are_whole_pages_of_the_system() {
    let mut policy = Policy::orlop();
    policy.growth = Growth::Pages { small: 512, large: 512 };
    let allocator = DeviceAllocator::new(HostPages::new(16 << 20).unwrap(), policy).into_ref();
    let bytes = |bytes| allocator.allocate(&Request::new(bytes)).unwrap();
    drop(bytes(4096));
    let (first, mut second) = (bytes(1024), bytes(512));
    second.bytes_mut().unwrap().fill(7);
    drop(first);
    allocator.trim(0);
    assert!(second.bytes().unwrap().iter().all(|&byte| byte == 7));
}
