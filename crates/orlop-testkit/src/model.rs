//! The live blocks of an allocator as they should be, compared with the allocator after each step.

use crate::far::FarBacking;
use crate::fault::{ConformanceFault, at_least, equal, rule};
use crate::{ProgramOp, ProgramRequest, SuiteProfile, pattern};
use orlop_alloc::{Access, AllocationId, Allocator, AllocatorRef, Block, Error, Request, Stats};
use orlop_core::{MemoryKind, StreamId};
use std::collections::{BTreeMap, HashSet};
use std::slice;

/// The statistics that an allocator should report, for one kind or for all.
#[derive(Debug, Clone, Copy, Default)]
struct ExpectedStats {
    allocations: u64,
    frees: u64,
    live: u64,
    requested: u64,
    peak: u64,
}

impl ExpectedStats {
    fn enter(&mut self, granted: u64, requested: u64) {
        self.allocations += 1;
        self.live += granted;
        self.requested += requested;
        self.peak = self.peak.max(self.live);
    }

    fn leave(&mut self, granted: u64, requested: u64) {
        self.frees += 1;
        self.live -= granted;
        self.requested -= requested;
    }
}

#[derive(Debug)]
struct ModelBlock {
    block: Block,
    seed: u64,
}

/// Whether it is host memory that says it is a device's.
fn is_in_disguise(block: &Block) -> bool {
    block.access() == Access::Device && block.device() == FarBacking::DEVICE
}

/// A block's bytes, if a test can look at them.
fn contents(block: &Block) -> Option<&[u8]> {
    if is_in_disguise(block) {
        // SAFETY: host memory, valid as long as the block, and written by its owner only.
        return Some(unsafe { slice::from_raw_parts(block.as_ptr().as_ptr(), block.len()) });
    }
    block.bytes().ok()
}

/// [`contents`], to be written.
pub(crate) fn contents_mut(block: &mut Block) -> Option<&mut [u8]> {
    if is_in_disguise(block) {
        // SAFETY: as in `contents`, and the block is borrowed exclusively.
        return Some(unsafe { slice::from_raw_parts_mut(block.as_ptr().as_ptr(), block.len()) });
    }
    block.bytes_mut().ok()
}

/// The result of a request: granted or refused.
#[derive(Debug)]
pub enum RequestOutcome {
    /// The model holds the block.
    Granted,
    /// The allocator refused, with a proper report.
    Refused,
}

/// Drives an allocator and knows what it must say. For one thread: peaks are expected to be exact.
#[derive(Debug)]
pub struct Model {
    allocator: AllocatorRef,
    profile: SuiteProfile,
    /// Oldest first.
    live: Vec<ModelBlock>,
    /// Live blocks by address, with their ends.
    spans: BTreeMap<usize, usize>,
    ids: HashSet<AllocationId>,
    seeds: u64,
    all: ExpectedStats,
    kinds: [ExpectedStats; MemoryKind::COUNT],
    largest: u64,
    reserved_peak: u64,
    refused_frees: u64,
    before: Stats,
    verifies: bool,
}

impl Model {
    /// Of an allocator that nobody has used yet, or whose blocks have all come back.
    #[must_use]
    pub fn new(allocator: AllocatorRef, profile: SuiteProfile) -> Self {
        let before = allocator.stats();
        Self {
            allocator,
            profile,
            live: Vec::new(),
            spans: BTreeMap::new(),
            ids: HashSet::new(),
            seeds: 0,
            all: ExpectedStats::default(),
            kinds: Default::default(),
            largest: 0,
            reserved_peak: 0,
            refused_frees: 0,
            before,
            verifies: true,
        }
    }

    /// Without a walk of the engine's structures after each step: for long programs.
    #[must_use]
    pub fn without_verify(mut self) -> Self {
        self.verifies = false;
        self
    }

    /// The allocator.
    #[must_use]
    pub fn allocator(&self) -> &AllocatorRef {
        &self.allocator
    }

    /// How many blocks live.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Does one step and compares. `None` where the step did not ask for memory.
    ///
    /// # Errors
    ///
    /// The first promise that does not hold. [`ProgramOp::InjectFailure`] does nothing here: whoever has the
    /// backing in hand does it.
    pub fn step(&mut self, op: &ProgramOp) -> Result<Option<RequestOutcome>, ConformanceFault> {
        let mut outcome = None;
        match *op {
            ProgramOp::Allocate(ask) => outcome = Some(self.allocate(&ask)?),
            ProgramOp::Free(number) => self.free(self.number(number))?,
            ProgramOp::FreeOldest => self.free(self.number(0))?,
            ProgramOp::FreeNewest => self.free(self.live.len().checked_sub(1))?,
            ProgramOp::FreeRaw(number) => self.free_raw(self.number(number))?,
            ProgramOp::Trim(target) => self.trim(target)?,
            ProgramOp::RecordStream { block, stream } => {
                if let Some(held) = self.number(block).and_then(|at| self.live.get(at)) {
                    let recorded = held.block.record_stream(StreamId::new(stream));
                    let waits = held.block.is_empty() || self.allocator.semantics().stream_ordered;
                    rule("a use is recorded where it is waited for", recorded.is_ok() == waits)?;
                }
            }
            ProgramOp::CheckContents => self.check_contents()?,
            ProgramOp::InjectFailure(_) => {}
        }
        self.check()?;
        Ok(outcome)
    }

    fn number(&self, number: u16) -> Option<usize> {
        usize::from(number).checked_rem(self.live.len())
    }

    /// Asks for a block and keeps it.
    ///
    /// # Errors
    ///
    /// A promise that the answer breaks.
    pub fn allocate(&mut self, ask: &ProgramRequest) -> Result<RequestOutcome, ConformanceFault> {
        let request = ask.request();
        let refusal = match self.allocator.allocate(&request) {
            Ok(block) => {
                let possible = request.kind.check_on(self.allocator.device()).is_ok();
                rule("host kinds are refused on other devices", possible)?;
                self.admit(block, &request)?;
                return Ok(RequestOutcome::Granted);
            }
            Err(error) => error,
        };
        match refusal {
            Error::OutOfMemory(report) => {
                equal("requested bytes in the report", request.bytes as u64, report.requested as u64)?;
                rule("the report names the kind", report.kind == request.kind)?;
                rule("the report names the tag", report.tag == request.tag)?;
                rule("the report names the device", report.device == self.allocator.device())?;
                rule("the report says something", !report.report().is_empty() && !report.hint().is_empty())?;
                rule("a request for zero bytes is not refused", request.bytes > 0)?;
                Ok(RequestOutcome::Refused)
            }
            // What was free was dirty, and the backing did not zero it.
            Error::CannotZero { device } => {
                rule("only requests for zeros cannot be zeroed", request.zeroed && request.bytes > 0)?;
                rule("the error names the device", device == self.allocator.device())?;
                Ok(RequestOutcome::Refused)
            }
            // Impossible whatever is free: a host kind on a device, or a size that cannot be rounded.
            Error::InvalidRequest(_) => {
                let host_kind = request.kind.check_on(self.allocator.device()).is_err();
                rule(
                    "only impossible requests are refused as such",
                    host_kind || request.bytes > usize::MAX >> 2,
                )?;
                Ok(RequestOutcome::Refused)
            }
            other => Err(other.into()),
        }
    }

    /// Checks a new block against the request and the live ones, and keeps it.
    fn admit(&mut self, mut block: Block, request: &Request) -> Result<(), ConformanceFault> {
        let (start, granted) = (block.as_ptr().as_ptr().addr(), block.capacity());
        if !request.align.is_aligned(start) {
            return Err(ConformanceFault::Misaligned { address: start, align: request.align.bytes() });
        }
        if granted < request.bytes {
            return Err(ConformanceFault::Short { requested: request.bytes, granted });
        }
        equal("the block's length", request.bytes as u64, block.len() as u64)?;
        rule("the block knows its device", block.device() == self.allocator.device())?;
        rule("the block knows its kind", block.kind() == request.kind)?;
        rule("the block knows its tag", block.tag() == request.tag)?;
        rule("the block knows its alignment", block.align() == request.align)?;
        rule("the block knows its stream", block.stream() == request.stream)?;
        rule("no other stream has used the block", block.stream_uses().next().is_none())?;
        if request.bytes == 0 && !self.allocator.has_opaque_handles() {
            rule("an empty block belongs to nobody", !block.has_allocator())?;
            return rule("an empty block has no id", block.id() == AllocationId::NONE);
        }
        rule("ids are not used twice", block.id() != AllocationId::NONE && self.ids.insert(block.id()))?;
        let Some(end) = start.checked_add(granted) else {
            return Err(ConformanceFault::Rule("a block does not wrap around the address space"));
        };
        let before = self.spans.range(..end).next_back().filter(|&(_, &other_end)| other_end > start);
        if let Some((&other_start, &other_end)) = before {
            return Err(ConformanceFault::Overlap { start, end, other_start, other_end });
        }
        self.spans.insert(start, end);
        self.check_found(&block)?;
        self.seeds += 1;
        let seed = self.seeds;
        if block.access() != Access::Host {
            let refused = matches!(block.bytes(), Err(Error::NotHostAccessible { .. }));
            rule("bytes out of the host's reach are not lent out", refused)?;
        }
        if let Some(bytes) = contents_mut(&mut block) {
            if let (true, Some((offset, found))) = (request.zeroed, pattern::nonzero(bytes)) {
                return Err(ConformanceFault::NotZero { address: start, offset, found });
            }
            pattern::fill(seed, bytes);
        }
        let (granted, requested) = (granted as u64, request.bytes as u64);
        self.largest = self.largest.max(granted);
        self.all.enter(granted, requested);
        self.kinds[request.kind.index()].enter(granted, requested);
        self.live.push(ModelBlock { block, seed });
        Ok(())
    }

    /// What the allocator knows of a live block is true.
    fn check_found(&self, block: &Block) -> Result<(), ConformanceFault> {
        let found = self.allocator.find(block.as_ptr().as_ptr().addr());
        match found {
            Some(found) => {
                equal("the requested size found", block.len() as u64, found.requested as u64)?;
                equal("the granted size found", block.capacity() as u64, found.granted as u64)?;
                rule("the id found is the block's", found.id == block.id())?;
                rule("the kind found is the block's", found.kind == block.kind())
            }
            None => {
                rule("a live block is found where sizes are tracked", !self.allocator.has_tracked_sizes())
            }
        }
    }

    fn check_held(held: &ModelBlock) -> Result<(), ConformanceFault> {
        let Some(bytes) = contents(&held.block) else { return Ok(()) };
        match pattern::difference(held.seed, bytes) {
            None => Ok(()),
            Some((offset, expected, found)) => {
                let address = held.block.as_ptr().as_ptr().addr();
                Err(ConformanceFault::Changed { address, offset, expected, found })
            }
        }
    }

    /// Checks the contents of all live blocks.
    ///
    /// # Errors
    ///
    /// [`ConformanceFault::Changed`].
    pub fn check_contents(&self) -> Result<(), ConformanceFault> {
        self.live.iter().try_for_each(Self::check_held)
    }

    /// Takes a block out of the model, with its contents checked.
    fn dismiss(&mut self, at: Option<usize>) -> Result<Option<Block>, ConformanceFault> {
        let Some(at) = at.filter(|&at| at < self.live.len()) else { return Ok(None) };
        let held = self.live.remove(at);
        Self::check_held(&held)?;
        self.check_found(&held.block)?;
        let block = held.block;
        self.spans.remove(&block.as_ptr().as_ptr().addr());
        let (granted, requested) = (block.capacity() as u64, block.len() as u64);
        self.all.leave(granted, requested);
        self.kinds[block.kind().index()].leave(granted, requested);
        Ok(Some(block))
    }

    /// Returns a live block, by number.
    ///
    /// # Errors
    ///
    /// A promise that does not hold.
    pub fn free(&mut self, at: Option<usize>) -> Result<(), ConformanceFault> {
        let Some(block) = self.dismiss(at)? else { return Ok(()) };
        let address = block.as_ptr().as_ptr().addr();
        drop(block);
        rule("a returned block is not found", self.allocator.find(address).is_none())
    }

    /// Returns a live block by its bare address, telling a size that is wrong every other time (L11).
    ///
    /// # Errors
    ///
    /// A promise that does not hold.
    pub fn free_raw(&mut self, at: Option<usize>) -> Result<(), ConformanceFault> {
        let Some(block) = self.dismiss(at)? else { return Ok(()) };
        let told = [None, Some(block.len()), Some(block.len() / 2 + 1)][block.len() % 3];
        match block.into_raw_ptr() {
            Err(block) => {
                rule("a raw deleter takes blocks apart", !self.allocator.has_raw_deleter())?;
                drop(block);
            }
            Ok(ptr) => {
                rule("only a raw deleter takes blocks apart", self.allocator.has_raw_deleter())?;
                // SAFETY: the block gave its memory away just now, nobody uses it, and it is freed once.
                unsafe { self.allocator.free(ptr, told) }?;
                rule("a freed block is not found", self.allocator.find(ptr.as_ptr().addr()).is_none())?;
            }
        }
        Ok(())
    }

    /// Gives cached memory back and checks what is said about it.
    ///
    /// # Errors
    ///
    /// A promise that does not hold.
    pub fn trim(&mut self, target: u64) -> Result<(), ConformanceFault> {
        let before = self.allocator.stats().usage.reserved;
        let given = self.allocator.trim(target);
        let after = self.allocator.stats().usage.reserved;
        equal("reserved bytes before trimming, less what it gave back", before.wrapping_sub(given), after)?;
        if target == 0 && self.live.is_empty() && self.profile.trims_to_zero {
            equal("reserved bytes when nothing lives, after trim(0)", 0, after)?;
        }
        Ok(())
    }

    /// Tells the model that the allocator refused frees on purpose.
    pub fn expect_refused_frees(&mut self, count: u64) {
        self.refused_frees += count;
    }

    /// Compares every figure, and has the engine prove its structures.
    ///
    /// # Errors
    ///
    /// The first that is wrong.
    pub fn check(&mut self) -> Result<(), ConformanceFault> {
        let stats = self.allocator.stats();
        let (all, usage) = (&stats.totals.all, &stats.usage);
        equal("allocations", self.all.allocations, all.allocations)?;
        equal("frees", self.all.frees, all.frees)?;
        equal("refused frees", self.refused_frees, stats.refused_frees)?;
        if self.profile.counted {
            equal("live bytes", self.all.live, stats.live())?;
            equal("requested bytes", self.all.requested, all.requested_bytes)?;
            equal("allocated less freed bytes", self.all.live, all.allocated_bytes - all.freed_bytes)?;
            equal("the peak of live bytes", self.all.peak, all.peak_bytes)?;
            equal("the largest block", self.largest, stats.totals.largest)?;
            for (kind, expected) in MemoryKind::ALL.into_iter().zip(&self.kinds) {
                let account = stats.kind(kind);
                equal("a kind's live blocks", expected.allocations - expected.frees, account.live_blocks())?;
                equal("a kind's live bytes", expected.live, account.live_bytes)?;
                equal("a kind's requested bytes", expected.requested, account.requested_bytes)?;
                equal("a kind's peak", expected.peak, account.peak_bytes)?;
            }
            equal(
                "live + deferred + cached",
                usage.reserved,
                stats.live() + usage.deferred + stats.cached(),
            )?;
            let before = &self.before.totals.all;
            at_least("allocated bytes, ever", before.allocated_bytes, all.allocated_bytes)?;
            at_least("freed bytes, ever", before.freed_bytes, all.freed_bytes)?;
        }
        at_least("reserved bytes", self.all.live + usage.deferred, usage.reserved)?;
        self.reserved_peak = self.reserved_peak.max(usage.reserved);
        at_least("the peak of reserved bytes", self.reserved_peak, usage.peak_reserved)?;
        rule("regions and reserved bytes come together", (usage.regions > 0) == (usage.reserved > 0))?;
        self.before = stats;
        if self.verifies {
            self.allocator.verify()?;
        }
        Ok(())
    }

    /// Returns everything, trims, and lets go of the allocator.
    ///
    /// # Errors
    ///
    /// A promise that does not hold.
    pub fn finish(mut self) -> Result<(), ConformanceFault> {
        self.check_contents()?;
        while !self.live.is_empty() {
            // From both ends and the middle, so that merging is not always of the same kind.
            self.free(Some([0, self.live.len() - 1, self.live.len() / 2][self.live.len() % 3]))?;
        }
        self.check()?;
        self.trim(0)?;
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_alloc::backing::System;
    use orlop_alloc::engine::Direct;

    fn model() -> Model {
        Model::new(Direct::new(System::new()).erase(), SuiteProfile::strict())
    }

    #[test]
    fn frees_raw_where_it_can_and_whole_where_not() {
        let mut model = model();
        model.step(&ProgramOp::Allocate(ProgramRequest::new(100))).unwrap();
        model.step(&ProgramOp::FreeRaw(0)).unwrap();
        assert_eq!(model.live(), 0);
        model.finish().unwrap();
    }

    #[test]
    fn notices_a_foreign_write_and_a_foreign_allocation() {
        let mut model = model();
        model.step(&ProgramOp::Allocate(ProgramRequest::new(100))).unwrap();
        model.live[0].block.bytes_mut().unwrap()[99] ^= 1;
        assert!(matches!(model.check_contents(), Err(ConformanceFault::Changed { offset: 99, .. })));
        model.live.clear();
        let mut model = self::model();
        let _elsewhere = model.allocator().allocate(&Request::new(8)).unwrap();
        assert!(matches!(model.check(), Err(ConformanceFault::Figure { what: "allocations", .. })));
    }
}
