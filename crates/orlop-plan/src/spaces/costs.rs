//! The costs of buffers in spaces.

use super::{Space, SpaceError};
use crate::Problem;
use std::collections::BTreeMap;

/// The costs of a problem's buffers.
pub(super) struct Costs<'a> {
    pub(super) problem: &'a Problem,
    pub(super) spaces: &'a [Space],
    /// By buffer, the spaces in which it may be, the cheapest first, with its cost there.
    pub(super) choices: Vec<Vec<(usize, u64)>>,
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
            let cost = |space: usize| u64::try_from(accesses.saturating_mul(spaces[space].cost.into()));
            let of: Result<Vec<_>, _> = allowed.into_iter().map(|space| Ok((space, cost(space)?))).collect();
            let mut of = of.map_err(|_: std::num::TryFromIntError| SpaceError::CostOverflow)?;
            of.sort_unstable_by_key(|&(space, cost)| (cost, space));
            of.dedup();
            if of.is_empty() {
                let buffer = problem.buffer_ref(index);
                return Err(SpaceError::TooLarge { buffer, size: problem.buffers()[index].size });
            }
            choices.push(of);
        }
        let mut highest = choices.iter().filter_map(|of: &Vec<(usize, u64)>| of.last());
        let total = highest.try_fold(0_u64, |total, choice| total.checked_add(choice.1));
        total.ok_or(SpaceError::CostOverflow)?;
        Ok(Self { problem, spaces, choices })
    }

    /// Returns the cost of a buffer in a space in which it may be.
    pub(super) fn cost(&self, buffer: usize, space: usize) -> u64 {
        let choice = self.choices[buffer].iter().find(|choice| choice.0 == space);
        choice.map_or(0, |choice| choice.1)
    }

    /// Returns the cost of an assignment.
    pub(super) fn of(&self, assignment: &[usize]) -> u64 {
        assignment.iter().enumerate().map(|(buffer, &space)| self.cost(buffer, space)).sum()
    }

    /// Returns what it costs at least to have a buffer elsewhere than in its cheapest space. `None` if it may
    /// be nowhere else.
    fn regret(&self, buffer: usize) -> Option<u64> {
        let choices = &self.choices[buffer];
        Some(choices.get(1)?.1 - choices[0].1)
    }

    /// Returns a lower bound of the costs of all plans. Of the buffers that are live at one time and have the
    /// same cheapest space, those bytes are elsewhere for which it has no room: at best, those that cost the
    /// least there, even if only in part.
    pub(super) fn lower_bound(&self) -> u64 {
        let mut bound: u64 = self.choices.iter().map(|choices| choices[0].1).sum();
        for (space, of) in self.spaces.iter().enumerate() {
            let cheapest = |&buffer: &usize| self.choices[buffer][0].0 == space;
            let buffers: Vec<usize> = (0..self.choices.len()).filter(cheapest).collect();
            bound = bound.saturating_add(self.spilled(&buffers, of.capacity));
        }
        bound
    }

    /// Returns the greatest load of these buffers, and those that are live then for the first time.
    pub(super) fn peak(&self, buffers: &[usize]) -> (u64, Vec<usize>) {
        let problem = self.problem;
        let size = |buffer: usize| problem.buffers()[buffer].size;
        let mut events: Vec<(u64, bool, u64)> = Vec::new();
        for &buffer in buffers {
            for lifetime in problem.lifetimes(buffer) {
                events.extend([(lifetime.end, false, size(buffer)), (lifetime.start, true, size(buffer))]);
            }
        }
        events.sort_unstable();
        let (mut load, mut highest, mut time) = (0_u64, 0, 0);
        for (at, starts, size) in events {
            load = if starts { load + size } else { load - size };
            if load > highest {
                (highest, time) = (load, at);
            }
        }
        let is_live = |&buffer: &usize| {
            size(buffer) > 0 && problem.lifetimes(buffer).any(|lifetime| lifetime.contains(&time))
        };
        (highest, buffers.iter().copied().filter(is_live).collect())
    }

    /// Returns what it costs at least to have these buffers, whose cheapest space it is, in `capacity` bytes.
    fn spilled(&self, buffers: &[usize], capacity: u64) -> u64 {
        let size = |buffer: usize| self.problem.buffers()[buffer].size;
        let (most, at_peak) = self.peak(buffers);
        if most <= capacity {
            return 0;
        }
        // Those that cost the least for each byte, compared without division.
        let scaled = |one: &(u64, u64), by: u64| u128::from(one.0) * u128::from(by);
        let mut elsewhere: Vec<(u64, u64)> =
            at_peak.into_iter().filter_map(|buffer| Some((self.regret(buffer)?, size(buffer)))).collect();
        elsewhere.sort_by(|one, other| scaled(one, other.1).cmp(&scaled(other, one.1)));
        let (mut bytes, mut cost) = (most - capacity, 0_u64);
        for (regret, size) in elsewhere {
            let taken = bytes.min(size);
            let part = scaled(&(regret, size), taken) / u128::from(size);
            cost += u64::try_from(part).unwrap_or(regret);
            bytes -= taken;
        }
        cost
    }
}
