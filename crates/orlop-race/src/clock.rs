//! [`VectorClock`]: for each queue, how much of its work is ordered before a point.

/// For each queue, the position of its last work that is ordered before a point in another queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VectorClock(Vec<u64>);

impl VectorClock {
    /// Returns the position of the last work of `queue` that this clock covers; 0 for none.
    #[must_use]
    pub fn at(&self, queue: usize) -> u64 {
        self.0.get(queue).copied().unwrap_or(0)
    }

    /// Adds everything that `other` covers.
    pub fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (ours, theirs) in self.0.iter_mut().zip(&other.0) {
            *ours = (*ours).max(*theirs);
        }
    }

    /// Returns `true` if everything that `other` covers is covered by this clock too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().enumerate().all(|(queue, &position)| position <= self.at(queue))
    }

    /// Advances one queue by one position and returns it.
    pub(crate) fn tick(&mut self, queue: usize) -> u64 {
        if self.0.len() <= queue {
            self.0.resize(queue + 1, 0);
        }
        self.0[queue] += 1;
        self.0[queue]
    }
}
