//! Perfect packings: plans without any free byte, where the load is the bound at all times.
//!
//! If no byte may stay free, the lowest valley of the skyline has to be filled from its start to its end by a
//! chain of spans, each of which begins where the one before ends. So the first link of such a chain is
//! placed at the valley's start, and a span that is no first link of any chain is never tried there. Of
//! several,
//! those are preferred that end flush with a wall of the valley, which is rarely a coincidence; then long
//! ones. A valley without a chain is a dead end, and the last placement is undone. After a number of dead
//! ends
//! the rest is placed without this rule, so that each round gives a plan.

mod links;
mod skyline;

use self::links::{Links, WallHeights};
use self::skyline::{PackingSkyline, SkylineChange};
use crate::normal::{Normal, Placement};
use crate::planner::{Keys, Stop};
use orlop_core::SplitMix64;

/// The dead ends of the first round, and how many more each later round may have.
const DEAD_ENDS: usize = 200;
const MORE_DEAD_ENDS: usize = 50;

/// The number of first links that are tried in a valley.
const TRIED_LINKS: usize = 3;

/// Returns `true` if a plan at the bound has no free bytes.
pub(crate) fn is_perfect(normal: &Normal) -> bool {
    normal.load.iter().all(|&load| load == normal.lower_bound)
}

/// A placement that can be undone, and the links that have not been tried in its place.
#[derive(Debug)]
struct Frame {
    placed: usize,
    change: SkylineChange,
    untried: Vec<u32>,
}

/// Packs all spans. The first round has no randomness, the next ones have some. Returns `None` if it is
/// stopped; and the work done.
pub(crate) fn pack(
    normal: &Normal,
    keys: &Keys<'_>,
    round: usize,
    seed: u64,
    stop: &Stop<'_>,
) -> (Option<Placement>, u64) {
    let mut random = SplitMix64::new(seed);
    let noise = if round == 0 { 0.0 } else { f64::from(1_u32 << (round % 6)) / 160.0 };
    let mut links = Links::new(normal, keys);
    let mut skyline = PackingSkyline::new(normal.sections());
    let mut offsets = vec![0; normal.spans.len()];
    let (mut frames, mut left, mut dead_ends): (Vec<Frame>, _, _) = (Vec::new(), normal.spans.len(), 0);
    let mut is_strict = true;
    while left > 0 {
        if stop.is_due() {
            return (None, links.work);
        }
        let (index, valley) = skyline.lowest();
        let walls = WallHeights::of(&skyline, index, normal.lower_bound);
        let mut found = links.first_links(valley, walls, noise, &mut random);
        if found.is_empty() && is_strict {
            dead_ends += 1;
            is_strict = dead_ends < DEAD_ENDS + MORE_DEAD_ENDS * round;
            // Back to the last placement with an alternative.
            while is_strict {
                let Some(mut frame) = frames.pop() else {
                    is_strict = false;
                    break;
                };
                skyline.undo(frame.change);
                links.restore(frame.placed);
                left += 1;
                if frame.untried.is_empty() {
                    continue;
                }
                found = std::mem::take(&mut frame.untried);
                break;
            }
        }
        let (index, valley) = skyline.lowest();
        let next = found.pop().map(|number| number as usize).or_else(|| links.longest_inside(valley));
        let Some(number) = next else {
            skyline.raise(index);
            continue;
        };
        let span = &normal.spans[number];
        let offset = span.offset_from(valley.level);
        offsets[number] = offset;
        let change = skyline.place(index, span.first..span.behind, offset + normal.rounded(span));
        links.remove(number);
        left -= 1;
        if is_strict {
            frames.push(Frame { placed: number, change, untried: found });
        } else {
            frames.clear();
        }
    }
    (Some(normal.placed(offsets)), links.work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Plan, Problem, verify};

    /// Cuts a rectangle into pieces, always the largest, and shuffles them.
    fn pieces(count: usize, seed: u64) -> Vec<Buffer> {
        let mut random = SplitMix64::new(seed);
        let mut pieces = vec![(0..1_u64 << 20, 1_u64 << 20)];
        while pieces.len() < count {
            let area =
                |&(ref lifetime, size): &(std::ops::Range<u64>, u64)| (lifetime.end - lifetime.start) * size;
            pieces.sort_by_key(area);
            let Some((lifetime, size)) = pieces.pop() else { continue };
            let part = (1 + random.below(1023)) as u64;
            if random.below(2) == 0 {
                let cut = (size * part / 1024).max(1);
                pieces.extend([(lifetime.clone(), cut), (lifetime, size - cut)]);
            } else {
                let cut = lifetime.start + ((lifetime.end - lifetime.start) * part / 1024).max(1);
                pieces.extend([(lifetime.start..cut, size), (cut..lifetime.end, size)]);
            }
        }
        for index in (1..pieces.len()).rev() {
            pieces.swap(index, random.below(index + 1));
        }
        pieces.into_iter().map(|(lifetime, size)| Buffer::unaligned(lifetime, size)).collect()
    }

    #[test]
    fn guillotine_cuts_are_packed_without_a_free_byte() {
        for seed in 0..5 {
            let problem = Problem::new(pieces(400, seed)).unwrap();
            let normal = Normal::new(&problem);
            assert!(is_perfect(&normal));
            let keys = Keys::new(&problem, &normal);
            let heights = (0..8).map(|round| {
                let packed = pack(&normal, &keys, round, 7, &Stop::NEVER).0.unwrap();
                let mut offsets = vec![0; problem.len()];
                for (span, &offset) in normal.spans.iter().zip(&packed.offsets) {
                    offsets[span.index as usize] = offset;
                }
                let plan = Plan::new(&problem, offsets).unwrap();
                verify(&problem, &plan).unwrap();
                assert_eq!(plan.height(), packed.height);
                packed.height
            });
            assert_eq!(heights.min(), Some(1 << 20), "seed {seed}");
        }
    }
}
