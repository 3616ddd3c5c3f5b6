//! [`KvPool`]: one budget of KV memory for all layer groups of a model, and what is done with it.
//!
//! `builder` makes it; `admit` starts sequences; `append` schedules tokens in the open step, `growth`
//! is its fast path; `step` closes and settles steps; `rewind` forks and truncates; `register` feeds the
//! index; `export` writes what kernels read; `rows` copies for engines without kernels of their own.

mod admit;
mod append;
mod builder;
mod capacity;
mod events;
mod export;
mod growth;
mod kernel_blocks;
mod kernel_integer;
mod layers;
mod lengths;
mod miss;
mod prefix;
mod prefix_blocks;
mod register;
mod request;
mod rewind;
mod rows;
mod sequence;
mod shrink;
mod sleep;
mod stats;
mod step;
mod tenants;
mod ticket;
mod tiers;

pub use self::builder::{CheckpointPolicy, KvPoolBuilder, Visibility};
pub use self::capacity::LengthMix;
pub use self::kernel_blocks::KernelBlocks;
pub use self::kernel_integer::KernelInteger;
pub use self::layers::KvLayer;
pub use self::prefix::{HashedRequest, PrefixHasher, PrefixPin};
pub use self::request::{Admission, AdmissionRequest, AdmissionVerdict};
pub use self::rewind::Truncation;
pub use self::rows::RowRange;
pub use self::sequence::Sequence;
pub use self::stats::{KvStats, MissCause};
pub use self::step::{FreshPage, PageCopy, StepId};
pub use self::ticket::{StorePage, TicketId};

use self::append::NewBlock;
use self::builder::Settings;
use self::growth::GrowingGroups;
use self::sequence::{DroppedSequences, SequenceState};
use self::sleep::SleepRecord;
use self::stats::Counters;
use self::step::StepRecord;
use self::tenants::Tenants;
use self::ticket::Tickets;
use crate::blocks::Blocks;
use crate::geometry::{GroupKind, KvGeometry};
use crate::index::{PrefixIndex, RecentHashes, Tail};
use crate::memory::PoolMemory;
use crate::tier::KvTiers;
use crate::{KvError, Result};
use orlop_alloc::Block;
use std::collections::VecDeque;
use std::sync::Arc;

/// Paged KV memory. See the [crate's documentation](crate).
#[derive(Debug)]
pub struct KvPool {
    geometry: Arc<KvGeometry>,
    settings: Settings,
    memory: PoolMemory,
    sleep: Option<SleepRecord>,
    blocks: Blocks,
    index: PrefixIndex,
    /// Groups of the index that do not keep every token.
    tail_groups: Vec<usize>,
    /// Groups with states that a hit needs.
    state_groups: Vec<usize>,
    growing: GrowingGroups,
    sequences: Vec<SequenceState>,
    unused_sequences: Vec<u32>,
    drops: Arc<DroppedSequences>,
    tenants: Tenants,
    /// The step that is being scheduled.
    open: StepRecord,
    /// Closed steps that have not settled, the oldest first.
    in_flight: VecDeque<StepRecord>,
    spare_steps: Vec<StepRecord>,
    tickets: Tickets,
    tiers: Option<Box<KvTiers>>,
    counters: Counters,
    /// Units whose load failed lately.
    failed_loads: RecentHashes,
    now: u64,
    // Scratch memory, kept so that a step allocates none.
    dropped: Vec<(u32, u32)>,
    new_blocks: Vec<NewBlock>,
    pages_needed: Vec<u64>,
    demand: Vec<u64>,
    tails: Vec<Tail>,
}

impl KvPool {
    /// Starts the construction of a pool for this geometry.
    pub fn builder(geometry: KvGeometry) -> KvPoolBuilder {
        KvPoolBuilder::new(geometry)
    }

    /// Returns the geometry.
    #[must_use]
    pub fn geometry(&self) -> &KvGeometry {
        &self.geometry
    }

    /// Returns the memory of the pages; `None` if the pool was built without, has several
    /// [segments](KvPoolBuilder::segment), or sleeps.
    #[must_use]
    pub fn memory(&self) -> Option<&Block> {
        self.memory.segment(0).filter(|_| self.memory.segments() == 1)
    }

    /// Returns the segments of the pages' memory.
    #[must_use]
    pub fn segments(&self) -> &PoolMemory {
        &self.memory
    }

    /// Returns the tokens of a match unit: hits end on multiples of it.
    #[must_use]
    pub fn match_unit(&self) -> u32 {
        self.settings.keys.unit
    }

    /// Returns the number of page ids of a group: every id in its tables is below.
    #[must_use]
    pub fn page_ids(&self, group: usize) -> u32 {
        let Some(pages) = self.geometry.pages().get(group).filter(|pages| pages.parts > 0) else { return 0 };
        self.blocks.pages.count() * self.blocks.pages.classes()[pages.class as usize].per_large
    }

    /// Sets the time, in milliseconds of the caller's clock: priorities and leases end by it.
    pub fn set_time(&mut self, now: u64) {
        self.now = self.now.max(now);
        self.index.expire(self.now, 1 + crate::DEFAULT_PRIORITY);
        self.expire_tickets();
    }

    /// Forgets every cached prefix. Sequences keep their blocks.
    pub fn discard_cache(&mut self) {
        self.collect_drops();
        self.index.clear(&mut self.blocks);
    }

    /// Evicts the least valuable cached block. Returns `false` if nothing is cached.
    pub fn evict(&mut self) -> bool {
        self.collect_drops();
        self.index.evict(&mut self.blocks)
    }

    /// Checks every invariant: each page is in one place, the books add up, no cached block is out of reach.
    /// It walks everything, for tests.
    ///
    /// # Errors
    /// The first violation.
    pub fn verify(&self) -> Result<(), &'static str> {
        self.blocks.verify()?;
        self.index.verify(&self.blocks)?;
        let mut demand = Vec::new();
        let none = vec![0; self.geometry.classes().len()];
        self.blocks.demand(crate::pages::NO_OWNER, &none, &mut demand);
        if self.blocks.pages.shortage(&demand).fits() { Ok(()) } else { Err("a pledge cannot be kept") }
    }

    /// Returns an error that names the group with the largest need.
    fn out_of_pages(&self, shortage: crate::pages::Shortage, largest: usize) -> KvError {
        KvError::OutOfPages {
            group: self.geometry.groups()[largest].name.clone(),
            needed: shortage.needed,
            available: shortage.available,
        }
    }

    fn kind(&self, group: usize) -> GroupKind {
        self.geometry.groups()[group].kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdmissionRequest, ChainFields, LayerGroup, Tenant};

    /// A question, or a request that is refused, leaves no trace of its tenant.
    #[test]
    fn a_tenant_is_remembered_when_it_is_admitted() {
        let geometry = KvGeometry::new(vec![LayerGroup::full("full", 1, 8)]).unwrap();
        let mut pool = KvPool::builder(geometry).large_pages(2).build_detached().unwrap();
        let prompt = [1; 64];
        let request = |count| {
            AdmissionRequest::new(ChainFields::new(Tenant::Named("a"), "w", "l"), &prompt[..count], 1)
        };
        assert!(pool.can_admit(&request(32)) == AdmissionVerdict::Now { hit: 0 });
        assert!(pool.admit(&request(64)).is_err());
        assert_eq!(pool.tenants.len(), 0);
        pool.admit(&request(32)).unwrap();
        assert_eq!(pool.tenants.len(), 1);
    }

    /// The numbers of tenants that have ended serve others; those with a quota, a weight, a sequence or
    /// something cached keep theirs.
    #[test]
    fn tenants_are_forgotten_when_nothing_is_theirs() {
        let geometry = KvGeometry::new(vec![LayerGroup::full("full", 1, 8)]).unwrap();
        let mut pool = KvPool::builder(geometry).large_pages(8).build_detached().unwrap();
        let prompt = [1; 40];
        pool.set_quota("limited", 1 << 30);
        pool.set_weight("weighted", 3);
        fn fields(name: &str) -> ChainFields<'_> {
            ChainFields::new(Tenant::Named(name), "w", "l")
        }
        let running = pool.admit(&AdmissionRequest::new(fields("running"), &prompt, 1)).unwrap().sequence;
        pool.append(&running, 40).unwrap();
        for at in 0..5000 {
            let name = format!("tenant {at}");
            let mut request = AdmissionRequest::new(fields(&name), &prompt, 1);
            // The cause of a miss is looked for among all tenants.
            request.reuse = at % 100 == 99;
            let admission = pool.admit(&request).unwrap();
            assert_eq!(admission.hit, 0, "another tenant's prefix");
            pool.append(&admission.sequence, 40).unwrap();
            let step = pool.close_step();
            pool.settle(step).unwrap();
            pool.finish(admission.sequence).unwrap();
            if request.reuse {
                assert_eq!(pool.verify(), Ok(()));
            }
        }
        assert!(pool.tenants.len() <= 1024 && pool.blocks.tenants.len() <= 1025);
        for kept in ["limited", "weighted", "running", "tenant 4999"] {
            assert_ne!(pool.known_tenant(Tenant::Named(kept)), 0, "{kept}");
        }
        assert_eq!(pool.probe(&AdmissionRequest::new(fields("tenant 4999"), &prompt, 1)), 32);
    }
}
