//! The ranking: which of two replays costs less memory.
//!
//! The peak of reserved bytes in normal operation counts first: other programs cannot use these bytes, and
//! they reduce the reserve for larger inputs. Next is the memory in which the run needs no retry, because
//! each retry releases all cached memory and waits for the device; then the number of retries. The smallest
//! memory in which a run succeeds says little: at that limit some settings succeed with thousands of retries
//! and reserve most in normal operation. Differences of less than one percent are not significant, because
//! replays are not more accurate.

use super::what_if_report::WhatIfRow;
use std::cmp::Ordering;

/// A difference is significant from the fraction `1 / SIGNIFICANT` of a figure.
const SIGNIFICANT: u128 = 100;

/// The cost of a setting or allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SettingCost {
    failed: bool,
    reserved: u64,
    /// The memory that it needs to run without a retry, if that was searched; the maximum if there is none.
    without_retry: Option<u64>,
    retries: u64,
}

/// The reason why one setting is better than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advantage {
    Runs,
    ReservesLess,
    NeedsLess,
    RetriesLess,
}

impl SettingCost {
    pub(super) fn of(row: &WhatIfRow) -> Self {
        Self {
            failed: row.outcome.out_of_memory.is_some(),
            reserved: row.outcome.peak_reserved,
            without_retry: row.without_retry,
            retries: row.outcome.retries,
        }
    }

    /// Orders by cost: less is better.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.difference(other).map_or(Ordering::Equal, |(order, _)| order)
    }

    /// Returns the advantage over another, if there is a significant one.
    pub(super) fn advantage(&self, over: &Self) -> Option<Advantage> {
        self.difference(over).filter(|(order, _)| order.is_lt()).map(|(_, advantage)| advantage)
    }

    fn difference(&self, other: &Self) -> Option<(Ordering, Advantage)> {
        let without_retry = self
            .without_retry
            .zip(other.without_retry)
            .map_or(Ordering::Equal, |(here, there)| compare(here, there));
        let orders = [
            (self.failed.cmp(&other.failed), Advantage::Runs),
            (compare(self.reserved, other.reserved), Advantage::ReservesLess),
            (without_retry, Advantage::NeedsLess),
            (self.retries.cmp(&other.retries), Advantage::RetriesLess),
        ];
        orders.into_iter().find(|(order, _)| order.is_ne())
    }
}

/// Returns `true` if two figures differ by less than one percent of the larger one.
pub(super) fn is_same(one: u64, other: u64) -> bool {
    u128::from(one.abs_diff(other)) * SIGNIFICANT < u128::from(one.max(other).max(1))
}

fn compare(one: u64, other: u64) -> Ordering {
    if is_same(one, other) { Ordering::Equal } else { one.cmp(&other) }
}

/// Sorts rows, best first.
///
/// Significance is not transitive: of three figures each may be equivalent to the next, and the first better
/// than the last. So the best is selected repeatedly: the rows equivalent to the one with the least reserved
/// bytes, of these the rows equivalent to the one that needs the least memory, and so on.
pub(super) fn sort(rows: Vec<WhatIfRow>) -> Vec<WhatIfRow> {
    let mut rest: Vec<(SettingCost, WhatIfRow)> =
        rows.into_iter().map(|row| (SettingCost::of(&row), row)).collect();
    let mut sorted = Vec::with_capacity(rest.len());
    while let Some(best) = best(&rest) {
        sorted.push(rest.remove(best).1);
    }
    sorted
}

/// Returns the index of the best row.
fn best(rows: &[(SettingCost, WhatIfRow)]) -> Option<usize> {
    let mut left: Vec<usize> = (0..rows.len()).collect();
    let figures: [fn(&SettingCost) -> Option<u64>; 3] =
        [|cost| Some(cost.failed.into()), |cost| Some(cost.reserved), |cost| cost.without_retry];
    for figure in figures {
        // A figure that was not searched for all of them does not decide.
        let known: Option<Vec<u64>> = left.iter().map(|&index| figure(&rows[index].0)).collect();
        if let Some(min) = known.and_then(|known| known.into_iter().min()) {
            left.retain(|&index| figure(&rows[index].0).is_some_and(|figure| is_same(figure, min)));
        }
    }
    let min = left.iter().map(|&index| rows[index].0.retries).min()?;
    left.retain(|&index| rows[index].0.retries == min);
    left.into_iter().min_by_key(|&index| {
        let row = &rows[index].1;
        // Without an advantage, settings are not changed.
        (!row.is_baseline, row.settings, row.since, row.outcome.peak_reserved, row.outcome.rules.len())
    })
}

#[cfg(test)]
mod tests {
    use super::super::smallest_memory::SmallestMemory;
    use super::super::{MAX_SEARCHED_STEPS, WhatIf};
    use super::*;
    use crate::simulate::{AllocatorRules, FailedRequest, Simulation};
    use orlop_core::StreamId;
    use orlop_trace::history::{DeviceHistory, WorkBlock, WorkStep, Workload};

    const MIB: u64 = 1 << 20;

    /// A row with the peak of reserved bytes, the smallest memory in which it runs, both in MiB, and the
    /// retries there.
    fn row(conf: &str, reserved: u64, runs: u64, retries: u64) -> WhatIfRow {
        let rules = AllocatorRules::torch(conf).unwrap();
        let mut outcome = Simulation::new(&Workload::default()).run(&rules);
        (outcome.peak_live, outcome.peak_reserved) = (MIB, reserved * MIB);
        let (fails, without_retry) = (None, Some(reserved * MIB));
        WhatIfRow {
            outcome,
            saves: None,
            without_retry,
            smallest: Some(SmallestMemory { runs: runs * MIB, retries, fails, without_retry, tried: 1 }),
            is_baseline: conf.is_empty(),
            settings: rules.settings(),
            since: rules.since(),
            needs_device: false,
        }
    }

    fn order(rows: Vec<WhatIfRow>) -> Vec<String> {
        sort(rows).into_iter().filter_map(|row| row.outcome.conf).collect()
    }

    /// A training step of a large model: the setting that succeeds in the least memory reserves half as much
    /// again otherwise.
    #[test]
    fn the_peak_counts_before_the_smallest_memory() {
        let rows = vec![
            row("max_split_size_mb:32", 82_982, 51_000, 400),
            row("", 60_114, 52_500, 12),
            row("expandable_segments:True", 53_098, 52_800, 1),
        ];
        assert_eq!(order(rows), ["expandable_segments:True", "", "max_split_size_mb:32"]);
    }

    #[test]
    fn small_differences_are_not_significant() {
        assert!(is_same(1000, 991) && !is_same(1000, 990) && is_same(0, 0) && !is_same(u64::MAX, 0));
        // Equivalent to the present settings: nothing is changed.
        let rows = vec![row("roundup_power2_divisions:4", 992, 900, 0), row("", 1000, 950, 3)];
        assert_eq!(order(rows), ["", "roundup_power2_divisions:4"]);
        // Equivalent to each other and better than the baseline: the fewest settings, then the oldest.
        let rows = vec![
            row("", 1200, 1100, 0),
            row("expandable_segments:True,large_segment_size_mb:12", 1000, 990, 0),
            row("expandable_segments:True", 1004, 990, 0),
            row("large_segment_size_mb:12", 996, 990, 2),
        ];
        assert_eq!(
            order(rows),
            [
                "expandable_segments:True",
                "large_segment_size_mb:12",
                "expandable_segments:True,large_segment_size_mb:12",
                ""
            ]
        );
    }

    /// The first is equivalent to the present settings, and those to the last, which is no better than the
    /// first.
    #[test]
    fn better_settings_are_found_behind_the_baseline() {
        let mut rows = vec![
            row("large_segment_size_mb:12", 1000, 900, 0),
            row("", 1005, 900, 0),
            row("max_split_size_mb:20", 1012, 900, 0),
        ];
        rows[2].without_retry = Some(900 * MIB);
        let history = DeviceHistory::default();
        let mut report = WhatIf::new(&Workload::of(&history)).rules(Vec::new()).run();
        report.rows = sort(rows);
        let better: Vec<_> =
            report.better_rows().map(|(row, advantage)| (row.outcome.conf.as_deref(), advantage)).collect();
        assert_eq!(better, [(Some("max_split_size_mb:20"), Advantage::NeedsLess)]);
    }

    /// A short run and one that is too long for searches, with two settings of the same peak.
    #[test]
    fn memories_are_searched_for_short_runs() {
        for (steps, is_searched) in [(MAX_SEARCHED_STEPS, true), (MAX_SEARCHED_STEPS + 2, false)] {
            let mut work =
                Workload { blocks: vec![WorkBlock::new(512, StreamId::default())], ..Workload::default() };
            work.steps = [WorkStep::Allocate(0), WorkStep::Free(0)].repeat(steps / 2);
            let rules = ["", "max_split_size_mb:20"].map(|conf| AllocatorRules::torch(conf).unwrap());
            let report = WhatIf::new(&work).rules(rules.into()).run();
            assert_eq!(report.rows.len(), 2);
            assert!(report.rows.iter().all(|row| row.without_retry.is_some() == is_searched), "{steps}");
        }
    }

    #[test]
    fn the_first_significant_criterion_decides() {
        let (mut failed, mut late, base) = (row("", 10, 10, 0), row("", 1000, 10, 0), row("", 1000, 10, 0));
        failed.outcome.out_of_memory = Some(FailedRequest {
            step: None,
            event: None,
            bytes: 1,
            live: 1,
            reserved: 0,
            cached: 0,
            largest_free: 0,
        });
        let advantage =
            |row: &WhatIfRow, over: &WhatIfRow| SettingCost::of(row).advantage(&SettingCost::of(over));
        assert_eq!((advantage(&base, &failed), advantage(&failed, &base)), (Some(Advantage::Runs), None));
        assert_eq!(advantage(&row("", 900, 10, 0), &base), Some(Advantage::ReservesLess));
        late.without_retry = Some(u64::MAX);
        assert_eq!((advantage(&base, &late), advantage(&late, &base)), (Some(Advantage::NeedsLess), None));
        let mut retries = base.clone();
        retries.outcome.retries = 1;
        assert_eq!(
            (advantage(&base, &retries), advantage(&base, &base)),
            (Some(Advantage::RetriesLess), None)
        );
        assert!(SettingCost::of(&retries).compare(&SettingCost::of(&base)).is_gt());
    }
}
