//! A complete trace in memory, prepared for replays.
//!
//! Ids are resolved once, when the trace is read: each block gets a slot that no other live block has, the
//! last one that was emptied if there is one. A replay keeps its blocks in an array with as many slots as the
//! peak of live blocks, and needs no lookup.

use super::replay_step::{PackedStep, ReplayStep};
use super::trace_builder::TraceBuilder;
use super::{Operation, Operations};
use crate::Result;
use crate::files::read_file;
use orlop_core::StreamId;
use std::io::Read;
use std::path::Path;

/// The number of live bytes and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveTotals {
    /// Requested bytes.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: usize,
}

/// A consistent trace: only live blocks are freed, and no id is live twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub(super) steps: Vec<PackedStep>,
    /// The distinct streams, indexed by the numbers in steps.
    pub(super) streams: Vec<StreamId>,
    /// The peaks of live bytes and of live blocks, which may be at different instants.
    pub(super) peak: LiveTotals,
    /// The live blocks after the last step.
    pub(super) end: LiveTotals,
}

impl Trace {
    /// The maximum number of operations in a trace. It limits the memory of a trace to a few gigabytes.
    pub const MAX_OPERATIONS: usize = 1 << 26;

    /// Reads a file, plain or gzip.
    ///
    /// # Errors
    ///
    /// The errors of [`Trace::parse`], with the file's path.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        read_file(path.as_ref(), Self::parse)
    }

    /// Reads plain text or gzip.
    ///
    /// # Errors
    ///
    /// The first line that is malformed or contradicts earlier lines.
    pub fn parse(reader: impl Read) -> Result<Self> {
        let mut operations = Operations::new(reader)?;
        let mut builder = TraceBuilder::default();
        while let Some(operation) = operations.next() {
            builder.push(operation?, operations.line())?;
        }
        Ok(builder.finish())
    }

    /// Creates a trace from operations. Errors number them from 1 as lines.
    ///
    /// # Errors
    ///
    /// The first operation that contradicts earlier ones.
    pub fn from_operations(operations: impl IntoIterator<Item = Operation>) -> Result<Self> {
        let mut builder = TraceBuilder::default();
        for (line, operation) in (1..).zip(operations) {
            builder.push(operation, line)?;
        }
        Ok(builder.finish())
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns `true` if there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the number of slots that a replay needs: the peak of live blocks.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.peak.blocks
    }

    /// Returns the peaks of live bytes and of live blocks, which may be at different instants.
    #[must_use]
    pub fn peak(&self) -> LiveTotals {
        self.peak
    }

    /// Returns the live bytes and blocks after the last operation.
    #[must_use]
    pub fn live_at_end(&self) -> LiveTotals {
        self.end
    }

    /// Returns the streams in order of first use.
    #[must_use]
    pub fn streams(&self) -> &[StreamId] {
        &self.streams
    }

    /// Returns the operations in order, with slots in place of ids.
    #[inline]
    pub fn steps(&self) -> impl ExactSizeIterator<Item = ReplayStep> + Clone + '_ {
        self.steps.iter().map(|packed| packed.unpack(&self.streams))
    }
}
