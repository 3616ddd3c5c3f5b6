//! Placement in any order, each buffer into a hole between those that are live with it and placed already.

use crate::constraint::BlockLimit;
use crate::live::LiveIndex;
use crate::normal::{Normal, Placement, SectionSpan};
use crate::planner::{Fit, Stop};

/// The offset of a span that is not placed.
pub(crate) const UNPLACED: u64 = u64::MAX;

/// The space of a placed span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlacedInterval {
    pub(crate) offset: u64,
    /// Its end, rounded up to granules.
    pub(crate) end: u64,
    pub(crate) span: u32,
}

/// Calls `found` with the offset and the room of each hole between `placed`, which are sorted, for a span;
/// the room is counted from the aligned offset. The last hole ends at `end`. Holes end at the borders of
/// blocks. Ends early where `found` returns `false`.
pub(crate) fn for_each_hole(
    span: &SectionSpan,
    placed: &[PlacedInterval],
    (end, blocks): (u64, BlockLimit),
    mut found: impl FnMut(u64, u64) -> bool,
) {
    let mut offset = 0;
    for other in placed {
        if !blocks.parts_of_hole((offset, other.offset.min(end)), span.size, &mut found) {
            return;
        }
        offset = offset.max(span.offset_from(other.end));
    }
    blocks.parts_of_hole((offset, end), span.size, &mut found);
}

/// Returns the lowest or the tightest hole for a span, as [`for_each_hole`] finds them.
pub(crate) fn find_hole(
    span: &SectionSpan,
    placed: &[PlacedInterval],
    space: (u64, BlockLimit),
    fit: Fit,
) -> Option<u64> {
    let mut best = None;
    for_each_hole(span, placed, space, |offset, room| {
        if best.is_none_or(|(smallest, _)| room < smallest) {
            best = Some((room, offset));
        }
        fit == Fit::Tightest
    });
    best.map(|(_, offset)| offset)
}

/// Places all spans in an order, beside those at fixed offsets. Returns `None` as soon as one ends above
/// `limit`, or it is stopped.
pub(crate) fn first_fit(
    normal: &Normal,
    live: &LiveIndex,
    sorted: &[u32],
    fit: Fit,
    limit: u64,
    stop: &Stop<'_>,
) -> Option<Placement> {
    let mut placement = Placement { height: 0, offsets: vec![UNPLACED; normal.spans.len()] };
    if !normal.fixed.is_empty() {
        placement.offsets.clone_from(&normal.fixed);
        let fixed = normal.spans.iter().zip(&normal.fixed).filter(|&(_, &offset)| offset != UNPLACED);
        placement.height = fixed.map(|(span, &offset)| normal.end(span, offset)).max().unwrap_or(0);
    }
    let mut placed = Vec::new();
    let mut unchecked = 0;
    for number in sorted.iter().map(|&number| number as usize) {
        if normal.is_fixed(number) {
            continue;
        }
        let neighbors = collect_placed(normal, live, number, |other| placement.offsets[other], &mut placed);
        let span = &normal.spans[number];
        let offset = find_hole(span, &placed, (u64::MAX, normal.block_limit), fit)?;
        placement.offsets[number] = offset;
        placement.height = placement.height.max(offset + span.size);
        unchecked += 1 + neighbors;
        if placement.height > limit || (unchecked >= Stop::INTERVAL && stop.is_due()) {
            return None;
        }
        unchecked %= Stop::INTERVAL;
    }
    Some(placement)
}

/// Collects the space of the placed neighbours of a span, in order of offset. Returns the number of all its
/// neighbours.
pub(crate) fn collect_placed(
    normal: &Normal,
    live: &LiveIndex,
    number: usize,
    offset_of: impl Fn(usize) -> u64,
    placed: &mut Vec<PlacedInterval>,
) -> usize {
    placed.clear();
    let mut neighbors = 0;
    for other in live.neighbors(normal, number) {
        neighbors += 1;
        let offset = offset_of(other);
        if offset != UNPLACED {
            let end = normal.rounded_up(offset + normal.spans[other].size);
            #[expect(clippy::cast_possible_truncation, reason = "spans are numbered with 32 bits")]
            placed.push(PlacedInterval { offset, end, span: other as u32 });
        }
    }
    placed.sort_unstable_by_key(|other| (other.offset, other.span));
    neighbors
}
