//! What the threads of a warp do together.

use super::arithmetic::binary;
use super::races::WARP;
use crate::codes::Failure;
use crate::ptx::instruction::{Collective, Shuffle};
use crate::ptx::types::FloatMode;

/// A value, or `None` if it depends on memory whose content is not known.
pub(super) type Known = Option<u64>;

/// A thread that waits for others of its warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) what: Collective,
    /// The threads that take part.
    pub(super) mask: u32,
    pub(super) from: [Known; 3],
}

/// The threads of a warp that wait, by their lanes.
pub(super) type Arrivals = [Option<Arrival>; WARP as usize];

/// What a thread gets: a value, and whether its source is in range, or all values match.
pub(super) type Received = (Known, Known);

/// Returns the threads that one of them can go on with: all that its mask names and that have not ended.
///
/// # Errors
///
/// The lane of a thread that is not in its own mask, which the architecture leaves undefined.
pub(super) fn complete(arrivals: &Arrivals, alive: u32) -> Result<Option<u32>, (usize, Failure)> {
    for (lane, arrival) in arrivals.iter().enumerate() {
        let Some(Arrival { what, mask, .. }) = arrival else { continue };
        if mask >> lane & 1 == 0 {
            return Err((lane, Failure::ILLEGAL_INSTRUCTION));
        }
        let members = mask & alive;
        let is_here =
            |other: usize| arrivals[other].is_some_and(|other| other.what == *what && other.mask == *mask);
        if (0..WARP as usize).filter(|other| members >> other & 1 == 1).all(is_here) {
            return Ok(Some(members));
        }
    }
    Ok(None)
}

/// Returns what a thread gets from these members of its warp, which all wait.
pub(super) fn receive(arrivals: &Arrivals, members: u32, lane: usize) -> Received {
    let Some(Arrival { what, from, .. }) = arrivals[lane] else { return (None, None) };
    let values = || arrivals.iter().enumerate().filter(|(other, _)| members >> other & 1 == 1);
    let first = |arrival: &Option<Arrival>| arrival.and_then(|arrival| arrival.from[0]);
    // One value that is not known makes the result unknown.
    let all = || values().map(|(lane, arrival)| Some((lane, first(arrival)?))).collect::<Option<Vec<_>>>();
    let lanes_with = |wanted: &dyn Fn(u64) -> bool| {
        let bits = |found, &(lane, value): &(usize, u64)| found | u64::from(wanted(value)) << lane;
        all().map(|all| all.iter().fold(0, bits))
    };
    match what {
        Collective::Barrier => (None, None),
        Collective::Shuffle(how) => {
            let Some((source, is_valid)) = source(how, lane, from[1], from[2]) else { return (None, None) };
            // The value of a thread that does not take part is undefined.
            let is_member = members >> source & 1 == 1;
            (is_member.then(|| first(&arrivals[source])).flatten(), Some(is_valid.into()))
        }
        Collective::Ballot => (lanes_with(&|value| value != 0), None),
        Collective::All => (lanes_with(&|value| value == 0).map(|lanes| u64::from(lanes == 0)), None),
        Collective::Any => (lanes_with(&|value| value != 0).map(|lanes| u64::from(lanes != 0)), None),
        Collective::Uniform => {
            let lanes = lanes_with(&|value| value != 0);
            (lanes.map(|lanes| u64::from(lanes == 0 || lanes == u64::from(members))), None)
        }
        Collective::MatchAny(_) => (from[0].and_then(|mine| lanes_with(&|value| value == mine)), None),
        Collective::MatchAll(_) => {
            let lanes = from[0].and_then(|mine| lanes_with(&|value| value == mine));
            let matches = lanes.map(|lanes| lanes == u64::from(members));
            (matches.map(|all| if all { members.into() } else { 0 }), matches.map(u64::from))
        }
        Collective::Reduce(what, of) => {
            let reduce = |a, b| binary(what, of, FloatMode::default(), a, b);
            (all().and_then(|all| all.into_iter().map(|(_, value)| value).reduce(reduce)), None)
        }
    }
}

/// Returns the lane that a thread reads in a shuffle, and whether it is in range; its own if it is not.
fn source(how: Shuffle, lane: usize, by: Known, bounds: Known) -> Option<(usize, bool)> {
    let (lane, by, bounds) = (lane as u64, by? & 31, bounds?);
    let (clamp, segment) = (bounds & 31, bounds >> 8 & 31);
    let (first, last) = (lane & segment, lane & segment | clamp & !segment);
    let (source, is_valid) = match how {
        // The clamp is the first lane then.
        Shuffle::Up => (lane.wrapping_sub(by), lane >= by + last),
        Shuffle::Down => (lane + by, lane + by <= last),
        Shuffle::Xor => (lane ^ by, (lane ^ by) <= last),
        Shuffle::Index => (first | by & !segment, (first | by & !segment) <= last),
    };
    let source = if is_valid { source } else { lane };
    Some((usize::try_from(source).ok()?, is_valid))
}
