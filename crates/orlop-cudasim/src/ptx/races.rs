//! Races between the threads of one launch: accesses of which one is a write, without a barrier between them.
//!
//! Threads of one block are ordered by its barriers. Nothing orders the blocks.

use crate::memory::MemoryAccess;

/// The part of a launch that makes an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Turn {
    pub(super) block: u64,
    pub(super) thread: u32,
    /// The number of barriers that the block has passed.
    pub(super) phase: usize,
}

/// An access by threads of one block between two of its barriers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadAccess {
    start: usize,
    end: usize,
    is_write: bool,
    block: u64,
    phase: usize,
    /// `None` if there are several.
    thread: Option<u32>,
}

impl ThreadAccess {
    pub(super) fn new(turn: Turn, (start, end): (usize, usize), is_write: bool) -> Self {
        Self { start, end, is_write, block: turn.block, phase: turn.phase, thread: Some(turn.thread) }
    }

    fn key(&self) -> (usize, usize, bool, u64, usize) {
        (self.start, self.end, self.is_write, self.block, self.phase)
    }

    fn races_with(&self, other: &Self) -> bool {
        let is_one_thread = self.thread.is_some() && self.thread == other.thread;
        let is_ordered = self.block == other.block && (self.phase != other.phase || is_one_thread);
        (self.is_write || other.is_write) && !is_ordered
    }

    fn of_bytes(&self, start: usize, end: usize) -> MemoryAccess {
        let access = if self.is_write { MemoryAccess::write } else { MemoryAccess::read };
        access(start, end - start)
    }
}

/// Returns two accesses to the same bytes that race, if there are any.
pub(super) fn race(mut accesses: Vec<ThreadAccess>) -> Option<(MemoryAccess, MemoryAccess)> {
    accesses.sort_unstable_by_key(|access| (access.key(), access.thread));
    accesses.dedup_by(|next, first| {
        let is_same = next.key() == first.key();
        if is_same && next.thread != first.thread {
            first.thread = None;
        }
        is_same
    });
    // Those that reach beyond the start of the next one.
    let mut open: Vec<ThreadAccess> = Vec::new();
    for access in accesses {
        open.retain(|earlier| earlier.end > access.start);
        let itself = Some(&access).filter(|access| access.is_write && access.thread.is_none());
        if let Some(earlier) = itself.or_else(|| open.iter().find(|earlier| earlier.races_with(&access))) {
            let end = earlier.end.min(access.end);
            return Some((earlier.of_bytes(access.start, end), access.of_bytes(access.start, end)));
        }
        open.push(access);
    }
    None
}
