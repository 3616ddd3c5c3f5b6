//! Which group has which bytes, at a time.

use std::ops::Range;

/// The occupant of bytes that no group has.
const NO_GROUP: u32 = u32::MAX;

/// That of bytes which several groups have.
const SEVERAL: u32 = u32::MAX - 1;

/// The groups of all slots, as a tree: node 1 is all slots, the children of `n` are `2n` and `2n + 1`.
/// Members of one group may have the same slots, those of different groups not.
pub(super) struct OccupiedSlots {
    /// By node, the number of members that have all of its slots, and not all of its parent's.
    members: Vec<u32>,
    /// By node, the group of these members.
    owner: Vec<u32>,
    /// By node, the group that has any of its slots.
    occupant: Vec<u32>,
}

impl OccupiedSlots {
    pub(super) fn new(slots: usize) -> Self {
        let nodes = 2 * slots.next_power_of_two().max(1);
        Self { members: vec![0; nodes], owner: vec![NO_GROUP; nodes], occupant: vec![NO_GROUP; nodes] }
    }

    /// Adds a member of a group. Returns `false` if another group has one of its slots; then nothing that is
    /// asked afterwards is right.
    pub(super) fn add(&mut self, slots: &Range<usize>, group: u32) -> bool {
        let all = 0..self.members.len() / 2;
        self.add_in(1, &all, slots, group)
    }

    /// Removes a member that was added.
    pub(super) fn remove(&mut self, slots: &Range<usize>) {
        let all = 0..self.members.len() / 2;
        self.remove_in(1, &all, slots);
    }

    fn add_in(&mut self, node: usize, of: &Range<usize>, slots: &Range<usize>, group: u32) -> bool {
        if slots.end <= of.start || of.end <= slots.start {
            return true;
        }
        if slots.start <= of.start && of.end <= slots.end {
            if self.occupant[node] != NO_GROUP && self.occupant[node] != group {
                return false;
            }
            self.members[node] += 1;
            (self.owner[node], self.occupant[node]) = (group, group);
            return true;
        }
        if self.members[node] > 0 && self.owner[node] != group {
            return false;
        }
        let middle = of.start + of.len() / 2;
        let is_added = self.add_in(2 * node, &(of.start..middle), slots, group)
            && self.add_in(2 * node + 1, &(middle..of.end), slots, group);
        self.update(node);
        is_added
    }

    fn remove_in(&mut self, node: usize, of: &Range<usize>, slots: &Range<usize>) {
        if slots.end <= of.start || of.end <= slots.start {
            return;
        }
        if slots.start <= of.start && of.end <= slots.end {
            self.members[node] -= 1;
        } else {
            let middle = of.start + of.len() / 2;
            self.remove_in(2 * node, &(of.start..middle), slots);
            self.remove_in(2 * node + 1, &(middle..of.end), slots);
        }
        self.update(node);
    }

    /// Derives the occupant of a node.
    fn update(&mut self, node: usize) {
        let own = if self.members[node] > 0 { self.owner[node] } else { NO_GROUP };
        let child = |child: usize| self.occupant.get(child).copied().unwrap_or(NO_GROUP);
        let both = |one: u32, other: u32| match (one, other) {
            (NO_GROUP, group) | (group, NO_GROUP) => group,
            (one, other) if one == other => one,
            _ => SEVERAL,
        };
        self.occupant[node] = both(own, both(child(2 * node), child(2 * node + 1)));
    }
}
