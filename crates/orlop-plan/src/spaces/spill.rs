//! Assignments of many buffers: out of spaces that are too full, and back where there is room.

use super::costs::Costs;
use super::fit::{Fits, SpaceFit, members};
use std::collections::BTreeSet;

/// The number of buffers that are tried in a cheaper space.
const MAX_RETURNS: usize = 200;

/// Returns an assignment in which all buffers fit, if one is found.
pub(super) fn spill(costs: &Costs<'_>, fits: &mut Fits<'_>) -> Option<Vec<usize>> {
    let mut assignment: Vec<usize> = costs.choices.iter().map(|choices| choices[0].0).collect();
    // A buffer never goes back to a space that it had to leave, so that this ends.
    let mut is_left = vec![BTreeSet::new(); assignment.len()];
    while let Some((space, mut excess)) = excess(costs, fits, &assignment) {
        let (_, mut live) = costs.peak(&members(&assignment, space));
        while excess > 0 {
            let (buffer, next) = cheapest_move(costs, &is_left, &live, space)?;
            is_left[buffer].insert(space);
            assignment[buffer] = next;
            live.retain(|&other| other != buffer);
            excess = excess.saturating_sub(costs.problem.buffers()[buffer].size);
        }
    }
    bring_back(costs, fits, &mut assignment);
    Some(assignment)
}

/// Returns a space that is too full, and the bytes for which it has no room.
fn excess(costs: &Costs<'_>, fits: &mut Fits<'_>, assignment: &[usize]) -> Option<(usize, u64)> {
    let mut spaces = 0..costs.spaces.len();
    spaces.find_map(|space| {
        let buffers = members(assignment, space);
        let excess = costs.peak(&buffers).0.saturating_sub(costs.spaces[space].capacity);
        if excess > 0 {
            return Some((space, excess));
        }
        match fits.check(space, buffers) {
            SpaceFit::Fits => None,
            SpaceFit::Infeasible { missing } | SpaceFit::Unproven { missing } => Some((space, missing)),
        }
    })
}

/// Returns the buffer that costs the least for each byte in another space, and that space.
fn cheapest_move(
    costs: &Costs<'_>,
    is_left: &[BTreeSet<usize>],
    live: &[usize],
    from: usize,
) -> Option<(usize, usize)> {
    let size = |buffer: usize| costs.problem.buffers()[buffer].size;
    let moves = live.iter().filter_map(|&buffer| {
        let mut elsewhere = costs.choices[buffer].iter();
        let &(space, cost) =
            elsewhere.find(|(space, _)| *space != from && !is_left[buffer].contains(space))?;
        Some((cost.saturating_sub(costs.cost(buffer, from)), buffer, space))
    });
    let cheapest = moves.min_by(|one, other| {
        let scaled = |one: &(u64, usize, usize), by: usize| u128::from(one.0) * u128::from(size(by));
        scaled(one, other.1).cmp(&scaled(other, one.1)).then(size(other.1).cmp(&size(one.1)))
    });
    cheapest.map(|(_, buffer, space)| (buffer, space))
}

/// Moves buffers to cheaper spaces where they fit, those that save most first.
fn bring_back(costs: &Costs<'_>, fits: &mut Fits<'_>, assignment: &mut [usize]) {
    let saving = |buffer: usize, space: usize| costs.cost(buffer, space) - costs.choices[buffer][0].1;
    let mut spilled: Vec<usize> =
        (0..assignment.len()).filter(|&buffer| saving(buffer, assignment[buffer]) > 0).collect();
    spilled.sort_by_key(|&buffer| (std::cmp::Reverse(saving(buffer, assignment[buffer])), buffer));
    for buffer in spilled.into_iter().take(MAX_RETURNS) {
        let before = assignment[buffer];
        for &(space, cost) in &costs.choices[buffer] {
            if cost >= costs.cost(buffer, before) {
                break;
            }
            assignment[buffer] = space;
            let buffers = members(assignment, space);
            let has_room = costs.peak(&buffers).0 <= costs.spaces[space].capacity;
            if has_room && fits.check(space, buffers) == SpaceFit::Fits {
                break;
            }
            assignment[buffer] = before;
        }
    }
}
