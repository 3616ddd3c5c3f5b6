//! A sequence over `kvbm-logical`: its blocks, and the steps that access them.

use super::{BLOCK, Ended, Unmanaged};
use dynamo_tokens::{TokenBlockSequence, compute_salt_hash_from_bytes};
use kvbm_logical::{BlockId, ImmutableBlock, MutableBlock};
use std::cell::RefCell;
use std::rc::Rc;

/// Returns the complete blocks of a tenant's tokens, with their hashes.
pub(crate) fn token_blocks(tokens: &[u32], tenant: &str) -> TokenBlockSequence {
    let salt = compute_salt_hash_from_bytes(tenant.as_bytes());
    TokenBlockSequence::from_slice(tokens, u32::try_from(BLOCK).unwrap_or(16), Some(salt))
}

pub(crate) enum HeldBlock {
    Mutable(MutableBlock<Unmanaged>),
    Registered(ImmutableBlock<Unmanaged>),
}

impl HeldBlock {
    pub(crate) fn id(&self) -> BlockId {
        match self {
            Self::Mutable(block) => block.block_id(),
            Self::Registered(block) => block.block_id(),
        }
    }
}

#[derive(Default)]
pub(crate) struct SequenceState {
    pub(crate) tenant: String,
    /// Tokens whose ids are known.
    pub(crate) known: Vec<u32>,
    /// Tokens scheduled, and of these, settled.
    pub(crate) len: usize,
    pub(crate) settled: usize,
    pub(crate) blocks: Vec<HeldBlock>,
    /// Blocks from the first that are registered.
    pub(crate) registered: usize,
    /// Steps that have not settled, with the length after each.
    steps: Vec<(u64, usize)>,
    /// The handle was dropped: nothing more is registered.
    pub(crate) is_dropped: bool,
}

impl SequenceState {
    pub(crate) fn new(tenant: &str, prompt: &[u32], hit: usize) -> Self {
        Self { tenant: tenant.to_owned(), known: prompt.to_vec(), len: hit, settled: hit, ..Self::default() }
    }

    pub(crate) fn schedule(&mut self, step: u64, len: usize) {
        self.len = len;
        self.steps.push((step, len));
    }

    pub(crate) fn settle(&mut self, step: u64) {
        while let Some(&(_, len)) = self.steps.first().filter(|&&(first, _)| first <= step) {
            self.settled = self.settled.max(len);
            self.steps.remove(0);
        }
    }

    pub(crate) fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.settled = self.settled.min(len);
        self.known.truncate(len);
        self.steps.iter_mut().for_each(|(_, end)| *end = (*end).min(len));
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        !self.steps.is_empty()
    }
}

/// A sequence. When it is dropped, its blocks are kept until no step accesses them.
pub struct KvbmSequence {
    state: Rc<RefCell<SequenceState>>,
    ended: Ended,
    is_finished: bool,
}

impl std::fmt::Debug for KvbmSequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvbmSequence").field("len", &self.state.borrow().len).finish_non_exhaustive()
    }
}

impl KvbmSequence {
    pub(crate) fn new(state: Rc<RefCell<SequenceState>>, ended: Ended) -> Self {
        Self { state, ended, is_finished: false }
    }

    pub(crate) fn state(&self) -> &RefCell<SequenceState> {
        &self.state
    }

    /// Ends the sequence; what settles later is still registered.
    pub(crate) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for KvbmSequence {
    fn drop(&mut self) {
        self.state.borrow_mut().is_dropped = !self.is_finished;
        self.ended.borrow_mut().push(Rc::clone(&self.state));
    }
}
