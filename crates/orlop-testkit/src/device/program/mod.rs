//! Random programs for the device engine.

mod blocks;
mod pools;
mod streams;

use self::blocks::ProgramBlock;
use self::streams::ProgramStream;
use super::WatchedDevice;
use super::random::Random;
use crate::fault::{ConformanceFault, equal, rule};
use orlop_device::{DeviceBlock, Engine, PoolId};
use std::collections::BTreeMap;

/// The engine's structures are walked once per this number of steps; the statistics are checked in each.
const VERIFY_EVERY: usize = 8;

/// How a device program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    /// All blocks are freed and the cache is emptied: nothing may stay reserved.
    Empty,
    /// All blocks are freed and the engine is dropped at once, with events that were not queried.
    Drop,
}

/// A random program, and the checks after each of its steps.
#[derive(Debug)]
pub struct DeviceProgram<B: WatchedDevice> {
    engine: Engine<B>,
    random: Random,
    streams: Vec<ProgramStream>,
    /// The distribution of sizes.
    sizes: usize,
    live: Vec<ProgramBlock>,
    /// The end of each live block by its address.
    ends: BTreeMap<usize, usize>,
    /// The private pools, once for each user.
    pools: Vec<PoolId>,
    /// The pools that requests go to.
    routes: Vec<PoolId>,
    /// The number of captures in progress.
    captures: usize,
    next_pool: u64,
    step: usize,
}

impl<B: WatchedDevice> DeviceProgram<B> {
    /// Creates a program from a seed over an engine with these live blocks.
    pub fn new(engine: Engine<B>, seed: u64, blocks: impl IntoIterator<Item = DeviceBlock>) -> Self {
        let mut random = Random::new(seed);
        let streams = random.pick(&[1, 2, 3, 5, 70]).unwrap_or(1);
        let mut program = Self {
            engine,
            streams: (0..streams).map(|place| ProgramStream::new(place, 0)).collect(),
            sizes: random.below(4),
            random,
            live: Vec::new(),
            ends: BTreeMap::new(),
            pools: Vec::new(),
            routes: Vec::new(),
            captures: 0,
            next_pool: 1 << 32,
            step: 0,
        };
        for block in blocks {
            let (address, bytes) = (program.engine.address(block), program.engine.size(block));
            program.ends.insert(address, address + bytes);
            program.live.push(ProgramBlock { block, address, bytes, streams: Vec::new() });
        }
        // By address: maps are unordered.
        program.live.sort_by_key(|block| block.address);
        program
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<B> {
        &self.engine
    }

    /// Runs steps.
    ///
    /// # Errors
    ///
    /// [`ConformanceFault::Step`] with the first violated rule.
    pub fn run(&mut self, steps: usize) -> Result<(), ConformanceFault> {
        for _ in 0..steps {
            let result = self.take_step().and_then(|()| self.check());
            result.map_err(|fault| ConformanceFault::Step { step: self.step, fault: Box::new(fault) })?;
            self.step += 1;
        }
        Ok(())
    }

    fn take_step(&mut self) -> Result<(), ConformanceFault> {
        // Alternates between phases that fill and that empty the memory.
        let allocate = [30, 45, 60][self.step / 100 % 3];
        match self.random.below(100) {
            kind if kind < allocate || self.live.is_empty() => self.allocate(),
            kind if kind < 90 => {
                let newest = self.live.len() - 1;
                let which = if self.random.one_in(3) { newest } else { self.random.below(newest + 1) };
                self.free(which)
            }
            kind if kind < 95 => {
                let (which, stream) = (self.random.below(self.live.len()), self.any_stream());
                let live = &mut self.live[which];
                live.streams.push(stream);
                Ok(self.engine.record_stream(live.block, stream)?)
            }
            _ => self.do_something_else(),
        }
    }

    fn do_something_else(&mut self) -> Result<(), ConformanceFault> {
        match self.random.below(16) {
            0 => {
                let emptied = self.engine.empty_cache();
                self.check_failure(emptied)?;
            }
            1 => self.trim()?,
            2 if self.random.one_in(4) => {
                let fraction = self.random.pick(&[0.0, 0.05, 0.5, 1.0, -1.0, f64::NAN]);
                self.engine.set_memory_fraction(fraction.unwrap_or(1.0));
            }
            3 => self.begin_route()?,
            4 | 5 => self.end_route()?,
            6 if !self.pools.is_empty() => {
                let pool = self.pools.swap_remove(self.random.below(self.pools.len()));
                self.engine.release_pool(pool)?;
            }
            7 if !self.pools.is_empty() => {
                let pool = self.pools[self.random.below(self.pools.len())];
                self.engine.use_pool_on_oom(pool, self.random.one_in(2))?;
            }
            8 => self.give_back(),
            9 => self.engine.reset_peaks(),
            10 => self.empty_pool()?,
            11 => self.begin_capture(),
            12 => self.end_capture()?,
            13 | 14 => self.end_stream()?,
            15 => self.adopt_stream()?,
            _ => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ConformanceFault> {
        let device = self.engine.backing();
        device.fault()?;
        let stats = self.engine.stats();
        equal("reserved bytes", device.reserved(), stats.reserved_bytes.all.current)?;
        equal("blocks", self.live.len() as u64, stats.allocation.all.current)?;
        let live: usize = self.live.iter().map(|block| block.bytes).sum();
        equal("bytes in blocks", live as u64, stats.allocated_bytes.all.current)?;
        for (name, stat) in stats.by_pool() {
            equal(name, stat.all.current, stat.small.current + stat.large.current)?;
        }
        let max_split = self.engine.policy().max_split;
        let oversize = self.live.iter().filter(|block| block.bytes >= max_split).count();
        equal("oversize blocks", oversize as u64, stats.oversize_allocations.current)?;
        if self.step.is_multiple_of(VERIFY_EVERY) { Ok(self.engine.verify()?) } else { Ok(()) }
    }

    /// Ends the program.
    ///
    /// # Errors
    ///
    /// The first violated rule.
    pub fn finish(mut self, ending: ProgramEnd) -> Result<(), ConformanceFault> {
        while self.captures > 0 {
            self.end_capture()?;
        }
        while !self.routes.is_empty() {
            self.end_route()?;
        }
        while !self.live.is_empty() {
            self.free(self.live.len() - 1)?;
        }
        self.engine.verify()?;
        self.check()?;
        if ending == ProgramEnd::Empty {
            for pool in std::mem::take(&mut self.pools) {
                self.engine.release_pool(pool)?;
            }
            let emptied = self.engine.empty_cache();
            self.check_failure(emptied)?;
            self.engine.verify()?;
            self.check()?;
            if self.engine.loss().is_some() {
                return Ok(());
            }
            let stats = self.engine.stats();
            let is_leaking = stats.leaked_bytes > 0;
            for (name, stat) in stats.by_pool() {
                match name {
                    "reserved_bytes" => equal(name, stats.leaked_bytes, stat.all.current)?,
                    "segment" if is_leaking => {}
                    _ => equal(name, 0, stat.all.current)?,
                }
            }
            rule("no oversize segment is left", is_leaking || stats.oversize_segments.current == 0)?;
        }
        Ok(())
    }
}
