//! `kvbm-logical` as a manager of the testkit's suite for KV memory.
//!
//! It has block ids of one size, and neither steps nor reservations. The adaptor adds what an engine over it
//! needs at least: all blocks of a request are allocated at its admission, blocks are registered when the
//! step that fills them has settled, and those that a sequence leaves are kept until the last step that
//! accesses them has settled. Windows, states, match units below a block and forks are not there.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod sequence;

pub use self::sequence::KvbmSequence;

use self::sequence::{HeldBlock, SequenceState, token_blocks};
use kvbm_logical::blocks::BlockDuplicationPolicy;
use kvbm_logical::{BlockManager, BlockRegistry, KvbmSequenceHashProvider as _, SequenceHash};
use orlop_testkit::kv::{KvBooks, KvCopy, KvLayers, KvManager, KvPrompt, KvRefusal, KvSetup, KvTruncation};
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// Tokens of a block.
const BLOCK: usize = 16;

/// The content that a block is managed for: none.
#[derive(Debug, Clone, Copy)]
pub struct Unmanaged;

/// Sequences whose handles were dropped, until no step accesses their blocks.
type Ended = Rc<RefCell<Vec<Rc<RefCell<SequenceState>>>>>;

/// A pool of `kvbm-logical`.
pub struct KvbmPool {
    manager: BlockManager<Unmanaged>,
    live: Vec<Weak<RefCell<SequenceState>>>,
    ended: Ended,
    /// The open step.
    open: u64,
}

impl std::fmt::Debug for KvbmPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvbmPool").field("open", &self.open).finish_non_exhaustive()
    }
}

impl KvbmPool {
    /// Returns the hashes of the blocks that a prompt may reuse: its last token is computed again.
    fn hashes(prompt: &KvPrompt<'_>) -> Vec<SequenceHash> {
        let reusable = &prompt.tokens[..prompt.tokens.len().saturating_sub(1)];
        token_blocks(reusable, prompt.tenant)
            .blocks()
            .iter()
            .map(|block| block.kvbm_sequence_hash())
            .collect()
    }

    /// Registers the blocks of a sequence whose tokens are known and have settled.
    fn register(&self, state: &mut SequenceState) {
        let complete = state.settled.min(state.known.len()) / BLOCK;
        if complete <= state.registered {
            return;
        }
        let tokens = token_blocks(&state.known, &state.tenant);
        for index in state.registered..complete {
            let block = state.blocks.remove(index);
            let block = match block {
                HeldBlock::Mutable(block) => match block.complete(&tokens.blocks()[index]) {
                    Ok(block) => HeldBlock::Registered(self.manager.register_block(block)),
                    Err(_) => unreachable!("the blocks have one size"),
                },
                registered => registered,
            };
            state.blocks.insert(index, block);
        }
        state.registered = complete;
    }

    /// Allocates blocks for up to `tokens` tokens.
    fn grow(&self, state: &mut SequenceState, tokens: usize) -> Result<(), KvRefusal> {
        let missing = tokens.div_ceil(BLOCK).saturating_sub(state.blocks.len());
        if missing > 0 {
            let blocks = self.manager.allocate_blocks(missing).ok_or(KvRefusal::NoRoom)?;
            state.blocks.extend(blocks.into_iter().map(HeldBlock::Mutable));
        }
        Ok(())
    }
}

impl KvManager for KvbmPool {
    type Sequence = KvbmSequence;

    fn make(setup: &KvSetup) -> Option<Self> {
        let [group] = setup.groups.as_slice() else { return None };
        let is_served = group.layers == KvLayers::Full && group.block_tokens == 16 && setup.unit == 16;
        let builder = BlockManager::builder().block_count(setup.blocks as usize).block_size(BLOCK);
        let builder = builder.registry(BlockRegistry::new()).with_lru_backend();
        let builder = builder.duplication_policy(BlockDuplicationPolicy::Allow);
        let manager = is_served.then(|| builder.build().ok())??;
        Some(Self { manager, live: Vec::new(), ended: Ended::default(), open: 1 })
    }

    fn admit(&mut self, prompt: &KvPrompt<'_>) -> Result<(KvbmSequence, u32), KvRefusal> {
        let new = (prompt.max_new + prompt.drafts).saturating_sub(1) as usize;
        let tokens = prompt.tokens.len() + new;
        if tokens.div_ceil(BLOCK) > self.manager.total_blocks() {
            return Err(KvRefusal::Never);
        }
        let hit = self.manager.match_blocks(&Self::hashes(prompt));
        let matched = hit.len();
        let mut state = SequenceState::new(prompt.tenant, prompt.tokens, matched * BLOCK);
        state.registered = matched;
        state.blocks.extend(hit.into_iter().map(HeldBlock::Registered));
        self.grow(&mut state, tokens)?;
        let state = Rc::new(RefCell::new(state));
        self.live.retain(|state| state.strong_count() > 0);
        self.live.push(Rc::downgrade(&state));
        Ok((KvbmSequence::new(state, Rc::clone(&self.ended)), u32::try_from(matched * BLOCK).unwrap_or(0)))
    }

    fn append(&mut self, sequence: &KvbmSequence, tokens: u32) -> Result<(), KvRefusal> {
        let state = &mut *sequence.state().borrow_mut();
        let len = state.len + tokens as usize;
        self.grow(state, len)?;
        state.schedule(self.open, len);
        Ok(())
    }

    fn append_drafts(&mut self, sequence: &KvbmSequence, drafts: u32) -> Result<(), KvRefusal> {
        self.append(sequence, drafts + 1)
    }

    fn truncate(&mut self, sequence: &KvbmSequence, len: u32) -> Result<KvTruncation, KvRefusal> {
        let state = &mut *sequence.state().borrow_mut();
        if (len as usize) < state.registered * BLOCK {
            return Err(KvRefusal::CannotReturn);
        }
        state.cut(len as usize);
        Ok(KvTruncation { len, known: u32::try_from(state.known.len()).unwrap_or(0) })
    }

    fn push_tokens(&mut self, sequence: &KvbmSequence, position: u32, tokens: &[u32]) {
        let state = &mut *sequence.state().borrow_mut();
        assert_eq!(position as usize, state.known.len());
        state.known.extend_from_slice(tokens);
        self.register(state);
    }

    fn fork(&mut self, _: &KvbmSequence, _: u32) -> Result<KvbmSequence, KvRefusal> {
        Err(KvRefusal::Unsupported)
    }

    fn table(&self, sequence: &KvbmSequence, _: usize) -> Vec<Option<u32>> {
        let state = sequence.state().borrow();
        let blocks = state.blocks[..state.len.div_ceil(BLOCK)].iter();
        blocks.map(|block| u32::try_from(block.id()).ok()).collect()
    }

    fn copies(&self) -> Vec<KvCopy> {
        Vec::new()
    }

    fn close_step(&mut self) -> u64 {
        self.open += 1;
        self.open - 1
    }

    fn settle(&mut self, step: u64) {
        let mut ended = std::mem::take(&mut *self.ended.borrow_mut());
        for state in self.live.iter().filter_map(Weak::upgrade) {
            let state = &mut *state.borrow_mut();
            state.settle(step);
            if !state.is_dropped {
                self.register(state);
            }
        }
        ended.retain(|state| state.borrow().is_in_flight());
        self.ended.borrow_mut().extend(ended);
    }

    fn finish(&mut self, sequence: KvbmSequence) {
        sequence.finish();
    }

    fn probe(&mut self, prompt: &KvPrompt<'_>) -> u32 {
        let hashes = Self::hashes(prompt);
        let presence = self.manager.block_registry().check_presence::<Unmanaged>(&hashes);
        let hit = presence.iter().take_while(|(_, is_present)| *is_present).count();
        u32::try_from(hit * BLOCK).unwrap_or(0)
    }

    fn evict(&mut self) -> bool {
        // There is no function that evicts one block: the whole cache goes.
        let had_cached = self.books().cached > 0;
        let _left = self.manager.reset_inactive_pool();
        had_cached
    }

    fn books(&mut self) -> KvBooks {
        self.ended.borrow_mut().retain(|state| state.borrow().is_in_flight());
        let total = self.manager.total_blocks() as u64;
        let metrics = self.manager.metrics().snapshot();
        let [free, cached] = [metrics.reset_pool_size, metrics.inactive_pool_size];
        let [free, cached] = [free, cached].map(|count| u64::try_from(count).unwrap_or(0));
        let ended: usize = self.ended.borrow().iter().map(|state| state.borrow().blocks.len()).sum();
        let in_flight = ended as u64;
        KvBooks { total, free, used: total - free - cached - in_flight, cached, in_flight }
    }
}
