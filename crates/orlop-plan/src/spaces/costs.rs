//! The costs of buffers in spaces.

use super::{Space, SpaceError};
use crate::Problem;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The costs of a problem's buffers.
pub(super) struct Costs<'a> {
    pub(super) problem: &'a Problem,
    pub(super) spaces: &'a [Space],
    /// By buffer, the spaces in which it may be, the cheapest first, with its cost there.
    pub(super) choices: Vec<Vec<(usize, u128)>>,
}

impl<'a> Costs<'a> {
    pub(super) fn new(problem: &'a Problem, spaces: &'a [Space]) -> Result<Self, SpaceError> {
        if spaces.is_empty() {
            return Err(SpaceError::NoSpaces);
        }
        let mut numbers = BTreeMap::new();
        for (number, space) in spaces.iter().enumerate() {
            if numbers.insert(&*space.name, number).is_some() {
                return Err(SpaceError::NameTwice { name: space.name.clone() });
            }
        }
        let constraints = &problem.constraints;
        let is_anywhere = constraints.fixed.is_empty() && constraints.parts.is_empty();
        if !is_anywhere || !constraints.reserved.is_empty() || problem.block_limit().is_some() {
            return Err(SpaceError::Constrained);
        }
        let mut choices = Vec::with_capacity(problem.len());
        for (index, buffer) in problem.buffers().iter().enumerate() {
            let mut allowed: Vec<usize> = Vec::new();
            for name in problem.spaces(index) {
                let number = numbers.get(&**name).copied();
                let unknown =
                    || SpaceError::UnknownSpace { buffer: problem.buffer_ref(index), name: name.clone() };
                allowed.push(number.ok_or_else(unknown)?);
            }
            if allowed.is_empty() {
                allowed.extend(0..spaces.len());
            }
            let accesses = u128::from(buffer.size).saturating_mul(problem.accesses(index).into());
            allowed.retain(|&space| buffer.size <= spaces[space].capacity);
            let cost = |space: usize| accesses.saturating_mul(spaces[space].cost.into());
            let mut of: Vec<_> = allowed.into_iter().map(|space| (space, cost(space))).collect();
            of.sort_unstable_by_key(|&(space, cost)| (cost, space));
            of.dedup();
            if of.is_empty() {
                let buffer = problem.buffer_ref(index);
                return Err(SpaceError::TooLarge { buffer, size: problem.buffers()[index].size });
            }
            choices.push(of);
        }
        Ok(Self { problem, spaces, choices })
    }

    /// Returns the cost of a buffer in a space in which it may be.
    pub(super) fn cost(&self, buffer: usize, space: usize) -> u128 {
        let choice = self.choices[buffer].iter().find(|choice| choice.0 == space);
        choice.map_or(u128::MAX, |choice| choice.1)
    }

    /// Returns the cost of an assignment.
    pub(super) fn of(&self, assignment: &[usize]) -> u128 {
        let costs = assignment.iter().enumerate().map(|(buffer, &space)| self.cost(buffer, space));
        costs.fold(0, u128::saturating_add)
    }

    /// Returns what it costs at least to have a buffer elsewhere than in its cheapest space. `None` if it may
    /// be nowhere else.
    fn regret(&self, buffer: usize) -> Option<u128> {
        let choices = &self.choices[buffer];
        Some(choices.get(1)?.1 - choices[0].1)
    }

    /// Returns a lower bound of the costs of all plans. Of the buffers that are live at one time and have the
    /// same cheapest space, those bytes are elsewhere for which it has no room: at best, those that cost the
    /// least there, even if only in part.
    pub(super) fn lower_bound(&self) -> u128 {
        let mut bound = self.choices.iter().map(|choices| choices[0].1).fold(0, u128::saturating_add);
        for (space, of) in self.spaces.iter().enumerate() {
            let cheapest = |&buffer: &usize| self.choices[buffer][0].0 == space;
            let buffers: Vec<usize> = (0..self.choices.len()).filter(cheapest).collect();
            bound = bound.saturating_add(self.spilled(&buffers, of.capacity));
        }
        bound
    }

    /// Returns what it costs at least to have these buffers, whose cheapest space it is, in `capacity` bytes.
    fn spilled(&self, buffers: &[usize], capacity: u64) -> u128 {
        let size = |buffer: usize| self.problem.buffers()[buffer].size;
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for &buffer in buffers.iter().filter(|&&buffer| size(buffer) > 0) {
            for lifetime in self.problem.lifetimes(buffer) {
                events.extend([(lifetime.end, false, buffer), (lifetime.start, true, buffer)]);
            }
        }
        events.sort_unstable();
        let mut live = BTreeSet::new();
        let (mut load, mut most) = (0_u64, capacity);
        let mut at_peak = Vec::new();
        for (_, starts, buffer) in events {
            if starts {
                live.insert(buffer);
                load += size(buffer);
            } else {
                live.remove(&buffer);
                load -= size(buffer);
            }
            if load > most {
                most = load;
                at_peak = live.iter().copied().collect();
            }
        }
        // Those that cost the least for each byte, compared without division.
        let regret = |buffer: usize| self.regret(buffer).unwrap_or(u128::MAX);
        let mut elsewhere: Vec<usize> = at_peak;
        elsewhere.sort_by(|&one, &other| {
            let scaled = |it: usize, by: usize| regret(it).saturating_mul(size(by).into());
            scaled(one, other).cmp(&scaled(other, one)).then(Reverse(size(one)).cmp(&Reverse(size(other))))
        });
        let (mut bytes, mut cost) = (most - capacity, 0_u128);
        for buffer in elsewhere {
            let taken = bytes.min(size(buffer));
            let part = match regret(buffer).checked_mul(taken.into()) {
                Some(product) => product / u128::from(size(buffer)),
                None => 0,
            };
            cost = cost.saturating_add(part);
            bytes -= taken;
            if bytes == 0 {
                break;
            }
        }
        cost
    }
}
