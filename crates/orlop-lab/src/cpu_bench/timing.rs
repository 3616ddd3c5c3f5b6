//! The run of a [`Replay`] through an allocator, timed.
//!
//! A *pass* replays the whole trace once and is timed as a whole: reading the clock costs more than many
//! allocations. The first pass begins with an empty allocator and is reported separately as *cold*; the
//! others show the steady state of a program that repeats itself. Blocks that the trace never frees are freed
//! between passes, untimed.
//!
//! The loop around the allocator reads 16 bytes for an operation and moves a block into an array;
//! [`Replay::overhead`] measures the loop alone. It is not subtracted.

use super::replay::Replay;
use super::replay_report::ReplayReport;
use super::{pass, workers};
use crate::Result;
use orlop_alloc::{Allocator as _, AllocatorRef};
use std::time::{Duration, Instant};

impl Replay<'_> {
    /// Runs the replay. The allocator should be new, or trimmed: its reserved bytes count from the beginning.
    /// All blocks are freed on return.
    ///
    /// # Errors
    ///
    /// [`LabError::Replay`](crate::LabError::Replay) if the allocator fails;
    /// [`LabError::Untouchable`](crate::LabError::Untouchable) at the first block, if blocks are to be
    /// written that the host cannot access.
    pub fn run(&self, allocator: &AllocatorRef) -> Result<ReplayReport> {
        allocator.reset_peaks();
        let costs = workers::run(self, allocator)?;
        let ns: Vec<f64> = costs.times.iter().map(|&time| self.per_operation(time)).collect();
        let (cold, steady) = split_cold(&ns);
        let (cold_faults, steady_faults) = split_cold(&costs.faults);
        let peak_live = self.trace.peak().bytes.saturating_mul(self.threads as u64);
        let peak_reserved = allocator.usage().peak_reserved;
        Ok(ReplayReport {
            trace: self.name.to_owned(),
            allocator: allocator.name().to_owned(),
            threads: self.threads,
            touch: self.touch,
            operations: self.trace.len(),
            ns_per_op: median(steady),
            peak_live,
            peak_reserved,
            ratio: if peak_live == 0 { 1.0 } else { peak_reserved as f64 / peak_live as f64 },
            page_faults: steady_faults.iter().sum::<u64>().checked_div(steady_faults.len() as u64),
            rss: costs.resident,
            cold_ns_per_op: cold,
            cold_page_faults: cold_faults,
            passes: ns.len(),
        })
    }

    /// Returns the nanoseconds for an operation without an allocator: the same loop by one thread.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        let mut slots = pass::slots(self.trace);
        let mut times = Vec::new();
        for _ in 0..self.repeat.clamp(2, 64) {
            let begin = Instant::now();
            pass::idle(self.trace, &mut slots);
            times.push(self.per_operation(begin.elapsed()));
        }
        median(split_cold(&times).1)
    }

    fn per_operation(&self, time: Duration) -> f64 {
        if self.trace.is_empty() { 0.0 } else { time.as_nanos() as f64 / self.trace.len() as f64 }
    }
}

/// Splits off the first of several values; a single value is not split off.
fn split_cold<T: Copy>(values: &[T]) -> (Option<T>, &[T]) {
    match values {
        [cold, steady @ ..] if !steady.is_empty() => (Some(*cold), steady),
        all => (None, all),
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_is_cold() {
        assert_eq!(split_cold(&[1, 2, 3]), (Some(1), &[2, 3][..]));
        assert_eq!(split_cold(&[1]), (None, &[1][..]));
        assert_eq!(split_cold::<u64>(&[]), (None, &[][..]));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        for (values, middle) in
            [(vec![], 0.0), (vec![5.0], 5.0), (vec![9.0, 1.0], 5.0), (vec![9.0, 1.0, 2.0], 2.0)]
        {
            assert!((median(&values) - middle).abs() < 1e-12);
        }
    }
}
