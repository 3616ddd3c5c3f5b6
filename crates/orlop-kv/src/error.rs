//! [`KvError`]: the errors of this crate.

use crate::TicketId;
use orlop_alloc::Block;

/// The result of functions of this crate.
pub type Result<T, E = KvError> = std::result::Result<T, E>;

/// Errors of paged KV memory. A failed call leaves the pool and its sequences as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// A layer group has settings that do not fit together.
    #[error("layer group \"{group}\": {problem}")]
    InvalidGroup {
        /// The name of the group.
        group: Box<str>,
        /// What is wrong.
        problem: GroupProblem,
    },
    /// The pool is too small for a single large page, or the geometry has no bytes.
    #[error("{bytes} B are less than one large page of {large_page} B")]
    PoolTooSmall {
        /// The bytes of the pool.
        bytes: u64,
        /// The bytes of a large page.
        large_page: u64,
    },
    /// A size or a count exceeds the range of its type.
    #[error("{what} exceeds the range of its type")]
    OutOfRange {
        /// The size or the count.
        what: &'static str,
    },
    /// No free page, and evicting the whole cache would not free enough.
    #[error("{needed} large pages are needed, and {available} can be freed; \"{group}\" is short")]
    OutOfPages {
        /// The group whose pages are missing.
        group: Box<str>,
        /// Large pages needed, reservations included.
        needed: u64,
        /// Large pages that are free, or would be after evicting the whole cache.
        available: u64,
    },
    /// The tenant's quota is exhausted.
    #[error("the quota of {quota} B is exhausted: {used} B are in use or pledged, {needed} B are needed")]
    QuotaExceeded {
        /// The quota in bytes.
        quota: u64,
        /// Bytes in use or pledged.
        used: u64,
        /// Bytes needed besides.
        needed: u64,
    },
    /// The request alone exceeds the tenant's quota.
    #[error("{needed} B are needed, and the quota is {quota} B")]
    AboveQuota {
        /// The quota in bytes.
        quota: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The sequence belongs to another pool or has ended.
    #[error("the sequence is not one of this pool")]
    UnknownSequence,
    /// The sequence is longer than its reservation allows.
    #[error("{tokens} tokens are more than the {limit} that were admitted")]
    BeyondReservation {
        /// The tokens after the operation.
        tokens: u64,
        /// The admitted tokens.
        limit: u64,
    },
    /// The request can never fit.
    #[error("{need} large pages are needed, and the pool has {pool}")]
    NeverFits {
        /// Large pages needed.
        need: u64,
        /// Large pages of the pool.
        pool: u64,
    },
    /// The tokens cannot be dropped: memory of tokens before them is already free.
    #[error("tokens before {first} of group \"{group}\" are gone, and position {position} needs them")]
    WindowGone {
        /// The group.
        group: Box<str>,
        /// The position to return to.
        position: u32,
        /// The first token that the group still has.
        first: u32,
    },
    /// A state group has no saved state at or before the position.
    #[error("group \"{group}\" has no saved state at or before token {position}")]
    StateNotSaved {
        /// The group.
        group: Box<str>,
        /// The position to return to.
        position: u32,
    },
    /// A position is beyond the end of the sequence.
    #[error("position {position} is beyond the end, {end}")]
    BeyondEnd {
        /// The position.
        position: u32,
        /// The end of the sequence.
        end: u32,
    },
    /// The tokens do not follow those whose ids are known.
    #[error("the ids of {known} tokens are known: the next one is at {known}, not at {position}")]
    NotNextToken {
        /// The position of the first token given.
        position: u32,
        /// The tokens whose ids are known.
        known: u32,
    },
    /// A step that has not settled still accesses the sequence: settle it first.
    #[error("step {step} accesses the sequence and has not settled")]
    StepInFlight {
        /// The step.
        step: u64,
    },
    /// The open step writes to the sequence: close it first. The blocks are not there yet that a fork or the
    /// return from drafts would copy.
    #[error("the sequence is in the open step, {step}")]
    InOpenStep {
        /// The open step.
        step: u64,
    },
    /// The step is not in flight.
    #[error("step {step} is not in flight")]
    UnknownStep {
        /// The step.
        step: u64,
    },
    /// The caller's buffer is too small.
    #[error("the buffer has room for {room} entries, and {needed} are needed")]
    BufferTooSmall {
        /// The buffer's entries.
        room: usize,
        /// The entries needed.
        needed: usize,
    },
    /// Kernel blocks of this size do not fill the pages of a group, or do not lie on one grid.
    #[error("kernel blocks of {tokens} tokens do not fit the pages of group `{group}`")]
    KernelBlockSize {
        /// The name of the group.
        group: Box<str>,
        /// The tokens of a kernel block.
        tokens: u32,
    },
    /// The group has no entry of this kind.
    #[error("group {group} has no {what}")]
    NoSuchPart {
        /// The index of the group.
        group: usize,
        /// The missing part.
        what: &'static str,
    },
    /// The sequence has no block for an entry: it was returned, or never there.
    #[error("the sequence has no entry {row} in group {group}")]
    NoSuchRow {
        /// The index of the group.
        group: usize,
        /// The entry.
        row: u32,
    },
    /// The cache, another sequence or a store refers to an entry, which therefore cannot be written.
    #[error("entry {row} of group {group} is shared")]
    SharedRow {
        /// The index of the group.
        group: usize,
        /// The entry.
        row: u32,
    },
    /// The sequence does not have the blocks of windows and states that a prefix of this length needs.
    #[error("the sequence has no checkpoint at token {position}")]
    NoCheckpoint {
        /// The position.
        position: u32,
    },
    /// The pool sleeps: wake it first.
    #[error("the pool sleeps")]
    Asleep,
    /// The pool cannot sleep or wake at this moment.
    #[error("the pool has {what}")]
    NotQuiet {
        /// What is in the way.
        what: &'static str,
    },
    /// The pool has no tiers.
    #[error("the pool has no tiers")]
    NoTiers,
    /// Nothing of the prompt is cached.
    #[error("nothing of the prompt is cached")]
    NotCached,
    /// The keys were computed for a pool with another secret, match unit or geometry.
    #[error("the keys were computed for a pool with other settings")]
    ForeignKeys,
    /// The ticket was completed, cancelled, or its lease has ended.
    #[error("ticket {0:?} is not open")]
    TicketClosed(TicketId),
    /// The ticket is not one of a transfer by layers in this direction.
    #[error("ticket {0:?} is of another kind of transfer")]
    WrongTicket(TicketId),
    /// A layer has not been transferred.
    #[error("layer {layer} of group {group} has not been transferred")]
    LayerMissing {
        /// The index of the group.
        group: usize,
        /// The layer.
        layer: u32,
    },
    /// The allocator failed.
    #[error(transparent)]
    Allocation(#[from] orlop_alloc::Error),
}

/// A layer that was not stored, with the block that it was to be stored to.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct NotStored {
    /// The block, whose content does not matter. `None` if a copy to it could not be waited for: its memory
    /// leaks.
    pub host: Option<Block>,
    /// Why.
    pub source: KvError,
}

impl From<NotStored> for KvError {
    fn from(error: NotStored) -> Self {
        error.source
    }
}

/// What is wrong with a layer group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupProblem {
    /// A block has no tokens.
    #[error("a block needs at least one token")]
    EmptyBlock,
    /// A window or a chunk has no tokens.
    #[error("a window or chunk needs at least one token")]
    EmptyWindow,
    /// The ratio of a compressed group does not divide its block.
    #[error("the ratio must be positive and divide the tokens of a block")]
    Ratio,
    /// The shard count is zero, or does not divide the bytes of an arena.
    #[error("the shards must be positive and divide the bytes of each arena")]
    Shards,
    /// The match unit and the tokens of a block do not divide each other.
    #[error("the match unit and the tokens of a block must divide each other")]
    MatchUnit,
    /// More groups than the pool can number.
    #[error("there are too many groups or page sizes")]
    TooMany,
}
