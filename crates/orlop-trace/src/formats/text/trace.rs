//! A whole trace in memory, made to be replayed.
//!
//! Ids are resolved once, when the trace is read: each block gets a slot that no other block has while it
//! lives, the one that was emptied last if there is one. A replay then keeps its blocks in an array of as
//! many slots as blocks ever lived at once, and looks nothing up.

use super::replay_step::{PackedStep, ReplayStep};
use super::trace_builder::TraceBuilder;
use super::{Operation, Operations};
use crate::{Result, TraceError};
use orlop_core::StreamId;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What was live at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peak {
    /// Bytes, as asked for.
    pub bytes: u64,
    /// Blocks.
    pub blocks: usize,
}

/// A trace that makes sense: what is freed lives, and no id lives twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub(super) steps: Vec<PackedStep>,
    /// The distinct streams, by the number that steps use.
    pub(super) streams: Vec<StreamId>,
    /// The most bytes, and the most blocks, that lived at once; not always at the same moment.
    pub(super) peak: Peak,
    /// What lives after the last step.
    pub(super) end: Peak,
}

impl Trace {
    /// The most operations a trace may have. With it no input, however well compressed, takes more than a few
    /// gigabytes of memory.
    pub const MAX_OPERATIONS: usize = 1 << 26;

    /// Reads a file, plain or gzip.
    ///
    /// # Errors
    ///
    /// What [`Trace::parse`] says, with the file's name.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| TraceError::Open { path: path.to_owned(), error })?;
        Self::parse(file).map_err(|error| error.in_file(path))
    }

    /// Reads plain text or gzip.
    ///
    /// # Errors
    ///
    /// The first line that is not of the format or does not follow from the lines before, and why.
    pub fn parse(reader: impl Read) -> Result<Self> {
        let mut operations = Operations::new(reader)?;
        let mut builder = TraceBuilder::default();
        while let Some(operation) = operations.next() {
            builder.push(operation?, operations.line())?;
        }
        Ok(builder.finish())
    }

    /// From operations made otherwise. Errors count them from 1 as lines.
    ///
    /// # Errors
    ///
    /// The first operation that does not follow from those before.
    pub fn from_operations(operations: impl IntoIterator<Item = Operation>) -> Result<Self> {
        let mut builder = TraceBuilder::default();
        for (line, operation) in (1..).zip(operations) {
            builder.push(operation, line)?;
        }
        Ok(builder.finish())
    }

    /// How many operations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many slots a replay needs: the most blocks that lived at once.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.peak.blocks
    }

    /// The most bytes, and the most blocks, that lived at once; not always at the same moment.
    #[must_use]
    pub fn peak(&self) -> Peak {
        self.peak
    }

    /// What lives after the last operation.
    #[must_use]
    pub fn live_at_end(&self) -> Peak {
        self.end
    }

    /// The streams that are named, in the order of their first use.
    #[must_use]
    pub fn streams(&self) -> &[StreamId] {
        &self.streams
    }

    /// The operations in order, with slots in the place of ids.
    #[inline]
    pub fn steps(&self) -> impl ExactSizeIterator<Item = ReplayStep> + Clone + '_ {
        self.steps.iter().map(|packed| packed.unpack(&self.streams))
    }
}
