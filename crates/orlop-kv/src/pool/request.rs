//! Requests, and what admission answers.

use super::lengths::RequestLengths;
use super::stats::MissCause;
use super::{Sequence, StepId};
use crate::DEFAULT_PRIORITY;
use crate::chain::ChainFields;

/// A request that is to be served.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest<'a> {
    /// The ids of the prompt's tokens.
    pub prompt: &'a [u32],
    /// What the content depends on besides the tokens.
    pub fields: ChainFields<'a>,
    /// The maximum of tokens to generate. All blocks for them are pledged: appending cannot fail within, in
    /// steps of one token and the drafts.
    pub max_new: u32,
    /// Draft tokens of a step.
    pub drafts: u32,
    /// The maximum of tokens in a step of the prompt; `None` for the whole prompt in one.
    pub chunk: Option<u32>,
    /// Tokens at the end of the prompt that are computed again in any case; at least 1.
    pub recompute: u32,
    /// Tokens of an encoder, for cross attention.
    pub encoder_tokens: u32,
    /// The priority of the blocks that the request leaves in the cache, from 0 to 100.
    pub priority: u8,
    /// After this time, in milliseconds, the priority is the default again.
    pub lifetime: Option<u64>,
    /// Whether a cached prefix may be reused.
    pub reuse: bool,
    /// Whether the request was admitted before, and preempted since. The tokens that it gets back are not
    /// counted as reuse, nor those that are computed again as misses: see
    /// [`KvStats::resumed_tokens`](crate::KvStats).
    pub resumed: bool,
}

impl<'a> AdmissionRequest<'a> {
    /// Creates a request for `max_new` tokens after a prompt.
    #[must_use]
    pub fn new(fields: ChainFields<'a>, prompt: &'a [u32], max_new: u32) -> Self {
        Self {
            prompt,
            fields,
            max_new,
            drafts: 0,
            chunk: None,
            recompute: 1,
            encoder_tokens: 0,
            priority: DEFAULT_PRIORITY,
            lifetime: None,
            reuse: true,
            resumed: false,
        }
    }
}

impl AdmissionRequest<'_> {
    pub(super) fn lengths(&self) -> RequestLengths {
        let prompt = u32::try_from(self.prompt.len()).unwrap_or(u32::MAX);
        let Self { max_new, drafts, chunk, encoder_tokens, .. } = *self;
        RequestLengths { chunk, encoder_tokens, ..RequestLengths::new(prompt, max_new, drafts) }
    }
}

/// Whether a request fits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionVerdict {
    /// It fits.
    Now {
        /// Tokens of the prompt that the device has. Tiers below may have more.
        hit: u32,
    },
    /// It will fit when others have ended.
    Later {
        /// Large pages that are missing.
        missing: u64,
        /// The group with the largest need.
        group: Box<str>,
        /// The step in flight after which enough pages are free; `None` if none of them suffices.
        after: Option<StepId>,
    },
    /// It will fit when others of the same tenant have ended.
    OverQuota {
        /// Bytes beyond the quota.
        missing: u64,
    },
    /// It exceeds its tenant's quota alone.
    AboveQuota {
        /// Bytes needed.
        need: u64,
        /// The quota in bytes.
        quota: u64,
    },
    /// The pool sleeps.
    Asleep,
    /// It can never fit.
    Never {
        /// Large pages needed.
        need: u64,
        /// Large pages of the pool.
        pool: u64,
    },
}

/// A started sequence.
#[derive(Debug)]
pub struct Admission {
    /// The sequence; its length is the hit.
    pub sequence: Sequence,
    /// Tokens of the prompt that need not be computed.
    pub hit: u32,
    /// Why the rest has to be; `None` if the hit is as long as it can be.
    pub miss: Option<MissCause>,
}
