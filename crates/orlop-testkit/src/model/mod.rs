//! [`AllocatorModel`]: the expected live blocks of an allocator, compared with it after each step.

mod block;
mod statistics;

pub(crate) use self::block::{check_contents, contents_mut};

use self::block::ModelBlock;
use self::statistics::ExpectedStatistics;
use crate::fault::{ConformanceFault, equal, rule};
use crate::{ProgramOp, ProgramRequest, SuiteProfile, pattern};
use orlop_alloc::{Access, AllocationId, Allocator, AllocatorRef, Block, Error, Request};
use orlop_core::StreamId;
use std::collections::{BTreeMap, HashSet};

/// The result of a request: granted or refused.
#[derive(Debug)]
pub enum RequestOutcome {
    /// The request was granted; the model holds the block.
    Granted,
    /// The request failed with a valid report.
    Refused,
}

/// Drives an allocator and checks its results, on one thread.
#[derive(Debug)]
pub struct AllocatorModel {
    allocator: AllocatorRef,
    profile: SuiteProfile,
    /// The live blocks, oldest first.
    live: Vec<ModelBlock>,
    /// The end of each live block by its address.
    spans: BTreeMap<usize, usize>,
    ids: HashSet<AllocationId>,
    seeds: u64,
    expected: ExpectedStatistics,
    verifies: bool,
}

impl AllocatorModel {
    /// Creates a model of an allocator without live blocks.
    #[must_use]
    pub fn new(allocator: AllocatorRef, profile: SuiteProfile) -> Self {
        let expected = ExpectedStatistics::new(allocator.stats());
        Self {
            allocator,
            profile,
            live: Vec::new(),
            spans: BTreeMap::new(),
            ids: HashSet::new(),
            seeds: 0,
            expected,
            verifies: true,
        }
    }

    /// Disables the walk of the engine's structures after each step, for long programs.
    #[must_use]
    pub fn without_verify(mut self) -> Self {
        self.verifies = false;
        self
    }

    /// Returns the allocator.
    #[must_use]
    pub fn allocator(&self) -> &AllocatorRef {
        &self.allocator
    }

    /// Returns the number of live blocks.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Runs a step and checks its result. Returns `None` for a step without a request.
    ///
    /// # Errors
    ///
    /// The first violated rule. [`ProgramOp::InjectFailure`] does nothing here: the owner of the backing
    /// implements it.
    pub fn step(&mut self, op: &ProgramOp) -> Result<Option<RequestOutcome>, ConformanceFault> {
        let mut outcome = None;
        match *op {
            ProgramOp::Allocate(request) => outcome = Some(self.allocate(&request)?),
            ProgramOp::Free(number) => self.free(self.number(number))?,
            ProgramOp::FreeOldest => self.free(self.number(0))?,
            ProgramOp::FreeNewest => self.free(self.live.len().checked_sub(1))?,
            ProgramOp::FreeRaw(number) => self.free_raw(self.number(number))?,
            ProgramOp::Trim(target) => self.trim(target)?,
            ProgramOp::RecordStream { block, stream } => {
                if let Some(live) = self.number(block).and_then(|at| self.live.get(at)) {
                    let recorded = live.block.record_stream(self.profile.stream(stream));
                    let waits = live.block.is_empty() || self.allocator.semantics().stream_ordered;
                    rule("a use is recorded exactly if it is honoured", recorded.is_ok() == waits)?;
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

    /// Requests a block and keeps it.
    ///
    /// # Errors
    ///
    /// The first violated rule.
    pub fn allocate(&mut self, request: &ProgramRequest) -> Result<RequestOutcome, ConformanceFault> {
        let request = request.request().stream(self.profile.stream(request.stream));
        let refusal = match self.allocator.allocate(&request) {
            Ok(block) => {
                let possible = request.kind.check_on(self.allocator.device()).is_ok();
                rule("host kinds fail on other devices", possible)?;
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
                rule("the report is not empty", !report.report().is_empty() && !report.hint().is_empty())?;
                rule("a request for zero bytes does not fail", request.bytes > 0)?;
                Ok(RequestOutcome::Refused)
            }
            // Reused memory was dirty, and the backing could not zero it.
            Error::CannotZero { device } => {
                rule(
                    "only requests for zeroed memory fail to be zeroed",
                    request.zeroed && request.bytes > 0,
                )?;
                rule("the error names the device", device == self.allocator.device())?;
                Ok(RequestOutcome::Refused)
            }
            // Impossible requests: a host kind on a device, or a size that cannot be rounded.
            Error::InvalidRequest(_) => {
                let host_kind = request.kind.check_on(self.allocator.device()).is_err();
                rule("only impossible requests fail as such", host_kind || request.bytes > usize::MAX >> 2)?;
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
        let own_default =
            request.stream == StreamId::HOST && block.stream() == StreamId::default_of(block.device());
        rule("the block knows its stream", block.stream() == request.stream || own_default)?;
        rule("no other stream has used the block", block.stream_uses().next().is_none())?;
        if request.bytes == 0 && !self.allocator.has_opaque_handles() {
            rule("an empty block has no allocator", !block.has_allocator())?;
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
            rule("inaccessible bytes are not handed out", refused)?;
        }
        if let Some(bytes) = contents_mut(&mut block) {
            if let (true, Some((offset, found))) = (request.zeroed, pattern::nonzero(bytes)) {
                return Err(ConformanceFault::NotZero { address: start, offset, found });
            }
            pattern::fill(seed, bytes);
        }
        self.expected.enter(&block);
        self.live.push(ModelBlock { block, seed });
        Ok(())
    }

    /// Checks what the allocator reports about a live block.
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

    /// Checks the contents of all live blocks.
    ///
    /// # Errors
    ///
    /// [`ConformanceFault::Changed`].
    pub fn check_contents(&self) -> Result<(), ConformanceFault> {
        self.live.iter().try_for_each(ModelBlock::check)
    }

    /// Removes a block from the model and checks its contents.
    fn dismiss(&mut self, at: Option<usize>) -> Result<Option<Block>, ConformanceFault> {
        let Some(at) = at.filter(|&at| at < self.live.len()) else { return Ok(None) };
        let live = self.live.remove(at);
        live.check()?;
        let block = live.block;
        self.check_found(&block)?;
        self.spans.remove(&block.as_ptr().as_ptr().addr());
        self.expected.leave(&block);
        Ok(Some(block))
    }

    /// Frees a live block, by index.
    ///
    /// # Errors
    ///
    /// The first violated rule.
    pub fn free(&mut self, at: Option<usize>) -> Result<(), ConformanceFault> {
        let Some(block) = self.dismiss(at)? else { return Ok(()) };
        let address = block.as_ptr().as_ptr().addr();
        drop(block);
        rule("a freed block is not found", self.allocator.find(address).is_none())
    }

    /// Frees a live block by its raw address, every other time with a wrong size.
    ///
    /// # Errors
    ///
    /// The first violated rule.
    pub fn free_raw(&mut self, at: Option<usize>) -> Result<(), ConformanceFault> {
        let Some(block) = self.dismiss(at)? else { return Ok(()) };
        let size = [None, Some(block.len()), Some(block.len() / 2 + 1)][block.len() % 3];
        match block.into_raw_ptr() {
            Err(block) => {
                rule("a raw deleter accepts raw pointers", !self.allocator.has_raw_deleter())?;
                drop(block);
            }
            Ok(ptr) => {
                rule("only a raw deleter accepts raw pointers", self.allocator.has_raw_deleter())?;
                // SAFETY: the block was just converted to this pointer, is not in use, and is freed once.
                unsafe { self.allocator.free(ptr, size) }?;
                rule("a freed block is not found", self.allocator.find(ptr.as_ptr().addr()).is_none())?;
            }
        }
        Ok(())
    }

    /// Trims the allocator and checks the reported bytes.
    ///
    /// # Errors
    ///
    /// The first violated rule.
    pub fn trim(&mut self, target: u64) -> Result<(), ConformanceFault> {
        let before = self.allocator.stats().usage.reserved;
        let given = self.allocator.trim(target);
        let after = self.allocator.stats().usage.reserved;
        equal("reserved bytes before trimming, less the released bytes", before.wrapping_sub(given), after)?;
        if target == 0 && self.live.is_empty() && self.profile.trims_to_zero {
            equal("reserved bytes without live blocks after trim(0)", 0, after)?;
        }
        Ok(())
    }

    /// Checks all statistics and the engine's invariants.
    ///
    /// # Errors
    ///
    /// The first violated rule.
    pub fn check(&mut self) -> Result<(), ConformanceFault> {
        self.expected.check(self.allocator.stats(), &self.profile)?;
        if self.verifies {
            self.allocator.verify()?;
        }
        Ok(())
    }

    /// Frees everything, trims, and drops the allocator.
    ///
    /// # Errors
    ///
    /// The first violated rule.
    pub fn finish(mut self) -> Result<(), ConformanceFault> {
        self.check_contents()?;
        while !self.live.is_empty() {
            // From both ends and the middle, so that chunks merge in different ways.
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

    fn model() -> AllocatorModel {
        AllocatorModel::new(Direct::new(System::new()).into_ref().erase(), SuiteProfile::strict())
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
        assert!(matches!(model.check(), Err(ConformanceFault::Statistic { what: "allocations", .. })));
    }
}
