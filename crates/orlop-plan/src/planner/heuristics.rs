//! The heuristics: each places all buffers once, in a fixed way.

use super::budget::Stop;
use super::orders::{BufferOrder, Keys, OrderKey, ranks};
use crate::capacity::Ranking;
use crate::first_fit::first_fit;
use crate::live::LiveIndex;
use crate::normal::{Normal, Placement};
use crate::ring::ring;
use crate::skyline::{Candidates, Decoder};
use crate::sweep::{Direction, SweepRule, sweep, sweep_from_peak};
use std::sync::OnceLock;

/// The choice between the holes in which a buffer fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    Lowest,
    Tightest,
}

/// A way to place all buffers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Heuristic {
    Ring,
    Skyline(Candidates, BufferOrder),
    Sweep(OrderKey, Fit, Direction),
    SweepFromPeak(OrderKey, OrderKey, Fit),
    FirstFit(BufferOrder, Fit),
}

/// The orders of the skyline, sorted by the number of problems in `testdata/plan` on which they were best.
/// Searches begin with them.
pub(super) const ORDERS: [BufferOrder; 6] = [
    [OrderKey::Load, OrderKey::Width, OrderKey::Area],
    [OrderKey::Area, OrderKey::Size, OrderKey::Load],
    [OrderKey::Load, OrderKey::Area, OrderKey::Width],
    [OrderKey::Width, OrderKey::Area, OrderKey::Load],
    [OrderKey::Size, OrderKey::Width, OrderKey::Load],
    [OrderKey::Load, OrderKey::Size, OrderKey::Width],
];

/// The number of heuristics that are executed in parallel. It does not depend on the machine.
const PARALLEL: usize = 4;

/// The number of pairs of buffers that are live together up to which first fit is tried. With more, it takes
/// longer than all others together.
const MAX_PAIRS: u64 = 1 << 25;

/// The number of spans up to which all heuristics are tried. With more, searches find lower plans in the same
/// time.
const MAX_SPANS: usize = 1 << 17;

/// The index of the heuristics with first fit.
const FIRST_FIT: usize = 22;

/// All heuristics, the most useful first.
pub(super) const HEURISTICS: [Heuristic; 27] = {
    use Direction::{Backwards, Forwards};
    use Fit::{Lowest, Tightest};
    use Heuristic::{FirstFit, Ring, Skyline, Sweep, SweepFromPeak};
    use OrderKey::{Area, Load, PeakSize, Size, Start, Width};
    [
        Sweep(Size, Tightest, Forwards),
        Ring,
        Skyline(Candidates::Inside, ORDERS[0]),
        Sweep(Size, Lowest, Forwards),
        Skyline(Candidates::Inside, ORDERS[1]),
        Skyline(Candidates::LeftEnd, [Width, Width, Width]),
        SweepFromPeak(Size, Size, Tightest),
        SweepFromPeak(Start, Size, Tightest),
        SweepFromPeak(Start, Width, Tightest),
        SweepFromPeak(Start, Size, Lowest),
        SweepFromPeak(Width, Size, Tightest),
        Sweep(Width, Lowest, Forwards),
        Sweep(Width, Tightest, Forwards),
        Sweep(Area, Tightest, Forwards),
        Skyline(Candidates::Inside, ORDERS[2]),
        Skyline(Candidates::Inside, ORDERS[3]),
        Skyline(Candidates::Inside, ORDERS[4]),
        Skyline(Candidates::Inside, ORDERS[5]),
        Sweep(Size, Lowest, Backwards),
        Sweep(Size, Tightest, Backwards),
        Sweep(Width, Tightest, Backwards),
        Sweep(Area, Tightest, Backwards),
        FirstFit([PeakSize, Start, Size], Lowest),
        FirstFit([Size, Size, Size], Tightest),
        FirstFit([Size, Width, Width], Tightest),
        FirstFit([Load, Size, Start], Lowest),
        FirstFit([Area, Size, Start], Tightest),
    ]
};

/// What heuristics and searches share.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) normal: &'a Normal,
    pub(super) keys: Keys<'a>,
    live: OnceLock<LiveIndex>,
}

impl<'a> Shared<'a> {
    pub(super) fn new(normal: &'a Normal, keys: Keys<'a>) -> Self {
        Self { normal, keys, live: OnceLock::new() }
    }

    pub(super) fn live(&self) -> &LiveIndex {
        self.live.get_or_init(|| LiveIndex::new(self.normal))
    }

    /// Returns the ranks of searches at a capacity.
    pub(super) fn ranking(&self) -> Ranking {
        let orders = ORDERS.iter().map(|order| self.keys.sorted(order)).collect();
        Ranking::new(self.normal, &self.keys, orders)
    }
}

impl Heuristic {
    /// Returns a plan, unless its height would exceed `limit`, or it is stopped.
    pub(super) fn place(self, shared: &Shared<'_>, limit: u64, stop: &Stop<'_>) -> Option<Placement> {
        let Shared { normal, keys, .. } = shared;
        // Before anything is sorted.
        if stop.is_due() {
            return None;
        }
        match self {
            Self::Ring => ring(normal, limit, stop),
            Self::Skyline(candidates, order) => {
                Decoder::new(normal).decode(&ranks(&keys.sorted(&order)), candidates, keys, limit, stop)
            }
            Self::Sweep(key, fit, direction) => {
                sweep(keys, normal, direction, SweepRule { key, fit }, limit, stop)
            }
            Self::SweepFromPeak(first, key, fit) => {
                sweep_from_peak(keys, normal, first, SweepRule { key, fit }, limit, stop)
            }
            Self::FirstFit(..) if normal.is_free() && normal.pairs() > MAX_PAIRS => None,
            Self::FirstFit(order, fit) => {
                first_fit(normal, shared.live(), &keys.sorted(&order), fit, limit, stop)
            }
        }
    }

    /// Returns the heuristics for a problem, in the groups that are executed in parallel. The first group is
    /// the fastest heuristic, alone.
    pub(super) fn groups(normal: &Normal) -> impl Iterator<Item = &'static [Self]> {
        let is_large = normal.spans.len() > MAX_SPANS;
        let all = match normal.is_free() {
            true if is_large => &HEURISTICS[..=PARALLEL + 1],
            true => &HEURISTICS[..],
            // Only first fit places spans between those that are placed already, and looks at all conflicts.
            false => &HEURISTICS[FIRST_FIT..],
        };
        let (first, others) = all.split_at(1);
        std::iter::once(first).chain(others.chunks(PARALLEL))
    }
}
