//! The verdicts on plans, in the three lines of a [`RunVerdict`]: what a plan takes, whether a smaller one
//! can exist, and what to do.

use super::{PlanFile, SpacesFile, Unplanned};
use crate::verdict::{RunVerdict, counted};
use orlop_core::ByteSize;

impl PlanFile {
    /// Judges the plan beside the same buffers without one. `next` is the third line, what to do next.
    #[must_use]
    pub fn judge(&self, unplanned: Unplanned, next: &str) -> RunVerdict {
        let (buffers, peak) = (counted(self.buffers.len(), "buffer"), ByteSize(self.peak));
        let apart = ByteSize(unplanned.sum);
        let bound = match self.gap > 0.0 {
            true => format!("It is {} of the lower bound, {}.", self.verdict, ByteSize(self.bound)),
            false => "It is optimal: no plan with these lifetimes is smaller.".to_owned(),
        };
        RunVerdict::new(
            format!("One block of {peak} is enough for {buffers}, which take {apart} apart."),
            bound,
            next.to_owned(),
        )
    }

    /// Judges plans for several sizes of the same buffers. `next` is the third line.
    #[must_use]
    pub fn judge_all<'a>(plans: impl IntoIterator<Item = &'a Self>, next: &str) -> RunVerdict {
        let (mut count, mut optimal, mut peak) = (0, 0, 0);
        for plan in plans {
            (count, peak) = (count + 1, plan.peak.max(peak));
            optimal += usize::from(plan.gap <= 0.0);
        }
        RunVerdict::new(
            format!("One block of {} is enough for each of {count} plans.", ByteSize(peak)),
            format!("{optimal} of them are optimal: no plan with these lifetimes is smaller."),
            next.to_owned(),
        )
    }
}

impl SpacesFile {
    /// Judges the plan. `next` is the third line, what to do next.
    #[must_use]
    pub fn judge(&self, next: &str) -> RunVerdict {
        let used = self.spaces.iter().filter(|space| space.plan.peak > 0);
        let used: Vec<String> =
            used.map(|space| format!("{} of {}", ByteSize(space.plan.peak), space.name)).collect();
        let used = if used.is_empty() { "no memory".to_owned() } else { used.join(", ") };
        RunVerdict::new(
            format!("The buffers fit in {used}."),
            format!("The cost is {}: {}.", self.cost, self.verdict),
            next.to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_plan::{Buffer, Planner, Problem};

    #[test]
    fn a_plan_is_judged_by_its_bound() {
        let buffers = [(0..2, 100), (1..3, 100), (2..4, 100)];
        let problem =
            Problem::new(buffers.map(|(time, bytes)| Buffer::unaligned(time, bytes))).expect("a problem");
        let mut plan = PlanFile::new(&problem, &Planner::new().plan(&problem));
        let unplanned = Unplanned::of(&problem);
        let verdict = plan.judge(unplanned, "Write it.");
        assert_eq!(verdict.finding, "One block of 200 B is enough for 3 buffers, which take 300 B apart.");
        assert!(verdict.remedy.starts_with("It is optimal"), "{verdict}");
        assert_eq!(verdict.next, "Write it.");
        let optimal = plan.clone();
        (plan.peak, plan.gap, plan.verdict) = (250, 0.25, "within 25.00 %".to_owned());
        assert_eq!(plan.judge(unplanned, "a").remedy, "It is within 25.00 % of the lower bound, 200 B.");
        let both = PlanFile::judge_all([&plan, &optimal], "a");
        assert_eq!(both.finding, "One block of 250 B is enough for each of 2 plans.");
        assert!(both.remedy.starts_with("1 of them"), "{both}");
    }
}
