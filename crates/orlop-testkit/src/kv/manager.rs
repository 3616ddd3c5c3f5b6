//! [`KvManager`]: what the suite needs of a manager.

use super::device::{HostKvDevice, KvDevice};

/// Which tokens a group keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvLayers {
    /// Every token.
    Full,
    /// The last `tokens` tokens, the present one included.
    Window {
        /// Tokens of the window.
        tokens: u32,
    },
    /// A state that each step rewrites. It takes one block.
    State,
}

/// A group of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvGroupSpec {
    /// Which tokens it keeps.
    pub layers: KvLayers,
    /// Tokens of a block; 16 in all cases. The blocks of all groups have the same bytes.
    pub block_tokens: u32,
}

/// The pool of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvSetup {
    /// The groups.
    pub groups: Vec<KvGroupSpec>,
    /// Blocks of the pool, for all groups together.
    pub blocks: u32,
    /// Tokens of a match unit: hits end on multiples.
    pub unit: u32,
    /// Steps in flight when the next one is scheduled.
    pub lag: u32,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct KvPrompt<'a> {
    /// Whose prefixes it may reuse.
    pub tenant: &'a str,
    /// The tokens.
    pub tokens: &'a [u32],
    /// Tokens to generate at most. The last one is not written.
    pub max_new: u32,
    /// Draft tokens of a step.
    pub drafts: u32,
}

/// Why a manager refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvRefusal {
    /// It does not fit now.
    NoRoom,
    /// It can never fit.
    Never,
    /// The tokens cannot be taken back.
    CannotReturn,
    /// The manager has no such function.
    Unsupported,
}

/// A copy that the device makes before the kernels of the open step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvCopy {
    /// The group.
    pub group: usize,
    /// The page to copy from.
    pub from: u32,
    /// The page to copy to.
    pub to: u32,
    /// Tokens to copy, from the start; for a state any number.
    pub tokens: u32,
}

/// What taking tokens back did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvTruncation {
    /// The length of the sequence; less than asked for if a state had to go back further.
    pub len: u32,
    /// Tokens whose ids the manager still knows.
    pub known: u32,
}

/// Where the blocks of a pool are. Each is in one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvBooks {
    /// All blocks.
    pub total: u64,
    /// Free blocks.
    pub free: u64,
    /// Blocks of sequences.
    pub used: u64,
    /// Blocks that only the cache has.
    pub cached: u64,
    /// Blocks that steps in flight keep.
    pub in_flight: u64,
}

/// A manager of paged KV memory. A function that it does not have returns [`KvRefusal::Unsupported`].
///
/// One step is open: appends belong to it. [`close_step`](Self::close_step) hands it to the device;
/// [`settle`](Self::settle) says that the device has finished it. Dropping a sequence ends it.
pub trait KvManager: Sized {
    /// A sequence.
    type Sequence;

    /// Makes a pool; `None` if the manager does not have such groups.
    fn make(setup: &KvSetup) -> Option<Self>;

    /// Makes the device whose memory the pool's pages are in; by default one in host memory.
    #[must_use]
    fn device(_setup: &KvSetup) -> Box<dyn KvDevice> {
        Box::new(HostKvDevice::default())
    }

    /// Starts a sequence. Returns it with the tokens of its hit.
    ///
    /// # Errors
    /// If it does not fit.
    fn admit(&mut self, prompt: &KvPrompt<'_>) -> Result<(Self::Sequence, u32), KvRefusal>;

    /// Schedules tokens.
    ///
    /// # Errors
    /// If they do not fit. `self` is then unchanged.
    fn append(&mut self, sequence: &Self::Sequence, tokens: u32) -> Result<(), KvRefusal>;

    /// Schedules a token and drafts, which can be taken back.
    ///
    /// # Errors
    /// If they do not fit. `self` is then unchanged.
    fn append_drafts(&mut self, sequence: &Self::Sequence, drafts: u32) -> Result<(), KvRefusal>;

    /// Takes tokens back.
    ///
    /// # Errors
    /// If that is not possible. `self` is then unchanged.
    fn truncate(&mut self, sequence: &Self::Sequence, len: u32) -> Result<KvTruncation, KvRefusal>;

    /// Tells the ids of tokens behind the known ones.
    fn push_tokens(&mut self, sequence: &Self::Sequence, position: u32, tokens: &[u32]);

    /// Starts a sequence with the same tokens.
    ///
    /// # Errors
    /// If it does not fit.
    fn fork(&mut self, sequence: &Self::Sequence, max_tokens: u32) -> Result<Self::Sequence, KvRefusal>;

    /// Returns the tokens after which a step should end, so that the state can be kept there.
    fn tokens_to_checkpoint(&self, _sequence: &Self::Sequence) -> Option<u32> {
        None
    }

    /// Returns the row of a kernel's block table: the pages by absolute index, `None` for those that were
    /// returned. A state has one.
    fn table(&self, sequence: &Self::Sequence, group: usize) -> Vec<Option<u32>>;

    /// Returns the place of a page in the device's memory, in blocks. By default every group has memory of
    /// its own.
    fn place(&self, group: usize, page: u32) -> u64 {
        (group as u64) << 32 | u64::from(page)
    }

    /// Returns the copies of the open step.
    fn copies(&self) -> Vec<KvCopy>;

    /// Closes the open step, and returns its number.
    fn close_step(&mut self) -> u64;

    /// Declares a step as finished. They finish in order.
    fn settle(&mut self, step: u64);

    /// Ends a sequence, and leaves it in the cache.
    fn finish(&mut self, sequence: Self::Sequence);

    /// Returns the tokens that a prompt would reuse. It changes nothing.
    fn probe(&mut self, prompt: &KvPrompt<'_>) -> u32;

    /// Evicts the least valuable cached block. Returns `false` if nothing is cached.
    fn evict(&mut self) -> bool;

    /// Returns where the blocks are.
    fn books(&mut self) -> KvBooks;

    /// Checks what the manager can check of itself.
    ///
    /// # Errors
    /// The first violation.
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
}
