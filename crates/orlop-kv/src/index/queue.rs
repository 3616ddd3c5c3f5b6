//! [`EvictionQueue`]: candidates in the order in which they are evicted.
//!
//! Most candidates come in order: a boundary that is registered or used is the last one of its class. These
//! wait in a queue, whose ends are all that is read of it. The others are in a heap.

use super::evict::Candidate;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Candidates, the smallest first.
#[derive(Debug, Default)]
pub(super) struct EvictionQueue {
    in_order: VecDeque<Candidate>,
    others: BinaryHeap<Reverse<Candidate>>,
}

impl EvictionQueue {
    pub(super) fn push(&mut self, candidate: Candidate) {
        if self.in_order.back().is_none_or(|last| *last <= candidate) {
            self.in_order.push_back(candidate);
        } else {
            self.others.push(Reverse(candidate));
        }
    }

    /// Returns the next candidate.
    pub(super) fn peek(&self) -> Option<Candidate> {
        let (first, other) = (self.in_order.front(), self.others.peek().map(|Reverse(other)| other));
        first.into_iter().chain(other).min().copied()
    }

    /// Returns the candidate after the next one, if it waits in order.
    pub(super) fn second(&self) -> Option<Candidate> {
        self.in_order.get(1).copied()
    }

    /// Takes the next candidate out.
    pub(super) fn pop(&mut self) -> Option<Candidate> {
        let next = self.peek()?;
        if self.in_order.front() == Some(&next) {
            self.in_order.pop_front()
        } else {
            self.others.pop().map(|Reverse(other)| other)
        }
    }

    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }

    /// Takes all candidates out, in no order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Candidate> {
        self.in_order.drain(..).chain(self.others.drain().map(|Reverse(other)| other))
    }
}

#[cfg(test)]
mod tests {
    use super::super::evict::Candidate;
    use super::EvictionQueue;

    #[test]
    fn candidates_come_out_in_order() {
        let mut queue = EvictionQueue::default();
        let mut ids: Vec<u32> = (0..100).map(|at| at * 37 % 101).collect();
        ids.extend(200..300);
        ids.iter().for_each(|&id| queue.push(Candidate::of_tick(id)));
        assert_eq!(queue.len(), ids.len());
        ids.sort_unstable();
        for id in ids {
            assert_eq!(queue.pop(), Some(Candidate::of_tick(id)));
        }
        assert_eq!((queue.pop(), queue.len()), (None, 0));
        queue.push(Candidate::of_tick(5));
        queue.push(Candidate::of_tick(3));
        assert_eq!(queue.drain().count(), 2);
        assert_eq!(queue.peek(), None);
    }
}
