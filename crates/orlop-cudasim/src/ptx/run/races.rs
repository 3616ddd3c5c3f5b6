//! Races between the threads of one launch: accesses of which one is a write, with nothing that orders them.
//!
//! Barriers order the threads of a block, `bar.warp.sync` those of a warp that take part. Nothing orders the
//! blocks; votes, shuffles and atomic operations order nothing. Atomic operations race with other accesses,
//! and with each other only if they are not of the same bytes, or a scope does not include both threads.

use crate::memory::MemoryAccess;
use crate::ptx::instruction::Scope;

/// The threads of a warp.
pub(in crate::ptx) const WARP: u32 = 32;

/// The part of a launch that makes an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Turn {
    pub(super) block: u64,
    pub(super) thread: u32,
    /// The number of barriers that the block has passed.
    pub(super) phase: usize,
    /// The last barrier of a part of its warp since then: its number, or 0.
    pub(super) meeting: usize,
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ThreadAccessKind {
    Read,
    Write,
    Atomic(Scope),
}

/// Where an access is in the order of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    block: u64,
    phase: usize,
    warp: u32,
    meeting: usize,
}

/// An access by threads of one warp between two barriers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadAccess {
    start: usize,
    end: usize,
    kind: ThreadAccessKind,
    place: Place,
    /// The threads, by their bits.
    lanes: u32,
}

impl ThreadAccess {
    pub(super) fn new(turn: Turn, (start, end): (usize, usize), kind: ThreadAccessKind) -> Self {
        let Turn { block, thread, phase, meeting } = turn;
        let place = Place { block, phase, warp: thread / WARP, meeting };
        Self { start, end, kind, place, lanes: 1 << (thread % WARP) }
    }

    fn key(&self) -> (usize, usize, ThreadAccessKind, Place) {
        (self.start, self.end, self.kind, self.place)
    }

    fn is_one_thread(&self) -> bool {
        self.lanes.is_power_of_two()
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        use ThreadAccessKind::{Atomic, Read};
        match (self.kind, other.kind) {
            (Read, Read) => false,
            (Atomic(one), Atomic(another)) => {
                let is_same = (self.start, self.end) == (other.start, other.end);
                let is_block = self.place.block == other.place.block;
                !is_same || !is_block && one.min(another) == Scope::Block
            }
            _ => true,
        }
    }

    fn of_bytes(&self, start: usize, end: usize) -> MemoryAccess {
        let access = match self.kind {
            ThreadAccessKind::Read => MemoryAccess::read,
            ThreadAccessKind::Write => MemoryAccess::write,
            ThreadAccessKind::Atomic(_) => MemoryAccess::atomic,
        };
        access(start, end - start)
    }
}

/// What each lane of a warp had done when some of them met: for each lane, the number of barriers that it had
/// been at.
type LaneClock = [u32; WARP as usize];

/// The barriers of parts of warps.
#[derive(Debug)]
pub(super) struct Meetings(Vec<LaneClock>);

impl Default for Meetings {
    fn default() -> Self {
        // Before all of them.
        Self(vec![[0; WARP as usize]])
    }
}

impl Meetings {
    /// Adds one of these lanes, each with its last one. Returns its number.
    pub(super) fn add(&mut self, lanes: &[(usize, usize)]) -> usize {
        let mut clock = [0; WARP as usize];
        for &(lane, last) in lanes {
            let before = &self.0[last];
            for (known, &new) in clock.iter_mut().zip(before) {
                *known = new.max(*known);
            }
            clock[lane] = clock[lane].max(before[lane] + 1);
        }
        self.0.push(clock);
        self.0.len() - 1
    }

    /// Returns `true` if what all these lanes did after one meeting was done before another one.
    fn is_before(&self, lanes: u32, first: usize, second: usize) -> bool {
        let (first, second) = (&self.0[first], &self.0[second]);
        (0..WARP as usize).filter(|lane| lanes >> lane & 1 == 1).all(|lane| first[lane] < second[lane])
    }

    fn are_ordered(&self, one: &ThreadAccess, other: &ThreadAccess) -> bool {
        let (first, second) = (one.place, other.place);
        if first.block != second.block || first.phase != second.phase {
            return first.block == second.block;
        }
        let is_one_thread = one.is_one_thread() && one.lanes == other.lanes;
        first.warp == second.warp
            && (is_one_thread
                || self.is_before(one.lanes, first.meeting, second.meeting)
                || self.is_before(other.lanes, second.meeting, first.meeting))
    }

    /// Returns two accesses to the same bytes that race, if there are any.
    pub(super) fn race(&self, mut accesses: Vec<ThreadAccess>) -> Option<(MemoryAccess, MemoryAccess)> {
        accesses.sort_unstable_by_key(ThreadAccess::key);
        accesses.dedup_by(|next, first| {
            let is_same = next.key() == first.key();
            if is_same {
                first.lanes |= next.lanes;
            }
            is_same
        });
        // Those that reach beyond the start of the next one.
        let mut open = OpenAccesses::default();
        for access in accesses {
            let itself = access.kind == ThreadAccessKind::Write && !access.is_one_thread();
            let earlier = if itself { Some(access) } else { open.race_with(&access, self) };
            if let Some(earlier) = earlier {
                let end = earlier.end.min(access.end);
                return Some((earlier.of_bytes(access.start, end), access.of_bytes(access.start, end)));
            }
            open.push(access);
        }
        None
    }
}

/// Accesses that end behind the start of the next one, by kind: those that cannot conflict are not compared.
#[derive(Debug, Default)]
struct OpenAccesses {
    reads: Vec<ThreadAccess>,
    writes: Vec<ThreadAccess>,
    atomics: Vec<ThreadAccess>,
    /// Some of the atomic operations can race with others.
    has_mixed_atomics: bool,
}

impl OpenAccesses {
    fn race_with(&mut self, access: &ThreadAccess, meetings: &Meetings) -> Option<ThreadAccess> {
        let is_open = |earlier: &ThreadAccess| earlier.end > access.start;
        let races = |earlier: &&ThreadAccess| {
            access.conflicts_with(earlier) && !meetings.are_ordered(earlier, access)
        };
        self.writes.retain(is_open);
        self.atomics.retain(is_open);
        if access.kind != ThreadAccessKind::Read {
            self.reads.retain(is_open);
        }
        if let ThreadAccessKind::Atomic(scope) = access.kind {
            let differs = |other: &ThreadAccess| (other.start, other.end) != (access.start, access.end);
            let is_first = self.atomics.is_empty();
            self.has_mixed_atomics &= !is_first;
            self.has_mixed_atomics |= scope == Scope::Block || self.atomics.first().is_some_and(differs);
        }
        let (atomics, reads): (&[_], &[_]) = match access.kind {
            ThreadAccessKind::Read => (&self.atomics, &[]),
            ThreadAccessKind::Atomic(_) if !self.has_mixed_atomics => (&[], &self.reads),
            _ => (&self.atomics, &self.reads),
        };
        self.writes.iter().chain(atomics).chain(reads).find(races).copied()
    }

    fn push(&mut self, access: ThreadAccess) {
        match access.kind {
            ThreadAccessKind::Read => &mut self.reads,
            ThreadAccessKind::Write => &mut self.writes,
            ThreadAccessKind::Atomic(_) => &mut self.atomics,
        }
        .push(access);
    }
}
