//! Random programs for the device engine.

use super::WatchedDevice;
use super::random::Random;
use crate::fault::{ConformanceFault, equal, rule};
use orlop_core::{Device, StreamId};
use orlop_device::{DeviceBlock, DeviceError, DeviceRequest, Engine, Growth, PoolId, StreamFilter};
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

#[derive(Debug)]
struct ProgramBlock {
    block: DeviceBlock,
    address: usize,
    bytes: usize,
    /// The stream of the allocation, and the recorded ones.
    streams: Vec<StreamId>,
}

/// A stream of a program.
#[derive(Debug, Clone, Copy)]
struct ProgramStream {
    id: StreamId,
    /// The number of streams that were in its place before.
    generation: u64,
    is_foreign: bool,
}

impl ProgramStream {
    /// Creates the default stream, or another one whose id is as large as a handle.
    fn new(place: usize, generation: u64) -> Self {
        let id = match place {
            0 => StreamId::default_of(Device::cuda(0)),
            _ => StreamId::from_raw(0x1000 + 0x10 * place as u64 + (generation << 32)),
        };
        Self { id, generation, is_foreign: false }
    }
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

    fn bytes(&mut self) -> usize {
        let random = &mut self.random;
        1 + match (self.sizes, random.below(4)) {
            (0, _) => random.below(4096),
            (1, _) | (_, 1) => random.below(1 << 20),
            (_, 0) => random.below(1 << 14),
            (_, 2) => random.below(12 << 20),
            (2, _) => random.below(100 << 20),
            _ => random.below(40) << 20,
        }
    }

    fn allocate(&mut self) -> Result<(), ConformanceFault> {
        let requested = self.bytes();
        let stream = self.any_stream();
        let mut request = DeviceRequest::new(requested, stream);
        request.long_lived = self.random.one_in(8);
        let loss = self.engine.loss();
        let block = match self.engine.allocate(request) {
            Ok(_) if loss.is_some() => return rule("a lost device serves no request", false),
            Ok(block) => block,
            Err(error) if loss.is_some() => return rule("a request says why", loss == Some(error)),
            Err(error) => return self.check_refusal(requested, error),
        };
        let (address, bytes) = (self.engine.address(block), self.engine.size(block));
        if bytes < requested {
            return Err(ConformanceFault::Short { requested, granted: bytes });
        }
        let (start, end) = (address, address + bytes);
        if let Some((&other_start, &other_end)) = self.ends.range(..end).next_back()
            && other_end > start
        {
            return Err(ConformanceFault::Overlap { start, end, other_start, other_end });
        }
        self.ends.insert(start, end);
        self.engine.backing().begin_use(address, bytes, stream);
        self.live.push(ProgramBlock { block, address, bytes, streams: vec![stream] });
        Ok(())
    }

    /// Checks that a policy that searches again after a wait refuses a request only if nothing fits: neither
    /// a free chunk nor, together, the free pages and the rest of the device.
    fn check_refusal(&self, requested: usize, error: DeviceError) -> Result<(), ConformanceFault> {
        let device = self.engine.backing();
        if matches!(error, DeviceError::Backing { .. }) && !device.never_fails() {
            return rule("an engine knows its last failed call", self.engine.last_failure().is_some());
        }
        if error == DeviceError::DuringCapture {
            return rule("only during a capture no stream waits", self.captures > 0);
        }
        let DeviceError::OutOfMemory { rounded, limit, reserved, pending, .. } = error else {
            return Err(error.into());
        };
        let policy = self.engine.policy();
        let is_limited = limit < device.memory() || !device.never_fails();
        if is_limited || !self.routes.is_empty() || self.captures > 0 || !policy.extensions.search_after_wait
        {
            return Ok(());
        }
        equal("pending bytes after a wait", 0, pending)?;
        rule("a request is served while a free chunk fits", self.engine.largest_fit(requested) < rounded)?;
        let Growth::Pages { large: page, .. } = policy.growth else { return Ok(()) };
        let left = limit - reserved + self.engine.whole_free_pages();
        let is_large = requested > policy.small_limit;
        rule("a request is served while free pages suffice", !is_large || left < rounded + page as u64)
    }

    fn free(&mut self, which: usize) -> Result<(), ConformanceFault> {
        let ProgramBlock { block, address, bytes, streams } = self.live.swap_remove(which);
        let is_where_it_was = (self.engine.address(block), self.engine.size(block)) == (address, bytes);
        rule("blocks do not move", is_where_it_was)?;
        self.ends.remove(&address);
        for stream in streams {
            self.engine.backing().go_on(address, bytes, stream);
        }
        self.engine.free(block)?;
        rule("a block is freed only once", !self.random.one_in(50) || self.engine.free(block).is_err())
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

    fn trim(&mut self) -> Result<(), ConformanceFault> {
        let before = self.reserved();
        let target = before / 4 * self.random.below(5) as u64;
        let released = self.engine.trim(target);
        if let Ok(released) = released {
            equal("released bytes", before - self.reserved(), released)?;
        }
        self.check_failure(released)
    }

    /// Checks that only a device whose calls can fail fails a release.
    fn check_failure<R>(&self, result: Result<R, DeviceError>) -> Result<(), ConformanceFault> {
        match result {
            Err(DeviceError::Backing { .. }) if !self.engine.backing().never_fails() => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    fn reserved(&self) -> u64 {
        self.engine.stats().reserved_bytes.all.current
    }

    fn empty_pool(&mut self) -> Result<(), ConformanceFault> {
        let pool = self.random.below(3) as u64;
        let emptied = self.engine.empty_pool((self.next_pool.saturating_sub(pool), 1));
        self.check_failure(emptied)
    }

    fn begin_route(&mut self) -> Result<(), ConformanceFault> {
        let known = self.random.one_in(2).then(|| self.random.pick(&self.pools)).flatten();
        let pool = known.unwrap_or_else(|| {
            self.next_pool += 1;
            (self.next_pool, 1)
        });
        let of_one = StreamFilter::only([self.any_stream()]);
        let streams = if self.random.one_in(2) { StreamFilter::All } else { of_one };
        self.engine.begin_allocate_to_pool(pool, streams)?;
        self.pools.push(pool);
        self.routes.push(pool);
        Ok(())
    }

    fn end_route(&mut self) -> Result<(), ConformanceFault> {
        self.routes.pop().map_or(Ok(()), |pool| Ok(self.engine.end_allocate_to_pool(pool)?))
    }

    fn any_stream(&mut self) -> StreamId {
        self.streams[self.random.below(self.streams.len())].id
    }

    /// Destroys a stream, other than the default stream, and creates another in its place: after it was
    /// retired, or a foreign one when no block is for it.
    fn end_stream(&mut self) -> Result<(), ConformanceFault> {
        let place = self.random.below(self.streams.len());
        let ProgramStream { id, generation, is_foreign } = self.streams[place];
        let is_used = self.live.iter().any(|block| block.streams.contains(&id));
        if place == 0 || is_foreign && (is_used || self.captures > 0 || self.engine.last_failure().is_some())
        {
            return Ok(());
        }
        if !is_foreign {
            match self.engine.retire_stream(id) {
                Err(DeviceError::DuringCapture) if self.captures > 0 => return Ok(()),
                Err(error) => return self.check_failure::<()>(Err(error)),
                Ok(()) => {}
            }
            for block in &mut self.live {
                block.streams.retain(|&stream| stream != id);
            }
        }
        self.engine.backing().end_stream(id);
        self.streams[place] = ProgramStream::new(place, generation + 1);
        Ok(())
    }

    fn adopt_stream(&mut self) -> Result<(), ConformanceFault> {
        let place = self.random.below(self.streams.len());
        if place == 0 || self.captures > 0 {
            return Ok(());
        }
        let adopted = self.engine.adopt_foreign_stream(self.streams[place].id);
        self.streams[place].is_foreign |= adopted.is_ok();
        self.check_failure(adopted)
    }

    fn begin_capture(&mut self) {
        self.engine.mark_capture_begin();
        self.captures += 1;
        self.engine.backing().set_capturing(true);
    }

    fn end_capture(&mut self) -> Result<(), ConformanceFault> {
        let Some(left) = self.captures.checked_sub(1) else {
            return rule("only a capture can end", self.engine.mark_capture_end().is_err());
        };
        self.captures = left;
        self.engine.backing().set_capturing(left > 0);
        Ok(self.engine.mark_capture_end()?)
    }

    /// Releases memory as a recorded PyTorch did: a segment, or a free part of one.
    fn give_back(&mut self) {
        let segments = self.engine.segments();
        let Some(segment) = segments.get(self.random.below(segments.len())) else { return };
        let chunk = segment.chunks[self.random.below(segment.chunks.len())];
        let whole = self.random.one_in(2);
        let (address, bytes) =
            if whole { (segment.address, segment.bytes) } else { (chunk.address, chunk.bytes) };
        self.engine.release_segment(segment.stream, address, bytes);
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
