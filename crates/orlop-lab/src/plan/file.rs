//! A plan with its problem, as JSON.

use orlop_core::Alignment;
use orlop_plan::{
    Buffer, Plan, PlanError, Planner, Problem, ProblemBuilder, ProblemError, SearchBudget, Verdict, verify,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A plan with its problem: what a program needs to use the plan, and to check it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanFile {
    /// The bytes that all buffers need.
    pub peak: u64,
    /// The lower bound of all plans, in bytes.
    pub bound: u64,
    /// The peak over the bound, less 1: 0 is optimal.
    pub gap: f64,
    /// `optimal`, or within how many per cent of it.
    pub verdict: String,
    /// The offset of each buffer in bytes, in the order of `buffers`.
    pub offsets: Vec<u64>,
    /// The buffers.
    pub buffers: Vec<PlannedBuffer>,
    /// Ranges of bytes in which no buffer may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<Range<u64>>,
    /// Pairs of buffers that may not share bytes, whenever they are live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<(usize, usize)>,
    /// The maximum size of a block in bytes: no buffer crosses a multiple of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_limit: Option<u64>,
}

/// A buffer of a [`PlanFile`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedBuffer {
    /// The name; may be empty.
    pub name: String,
    /// The first time at which it is live.
    pub start: u64,
    /// The first time at which it is no longer live.
    pub end: u64,
    /// Bytes.
    pub size: u64,
    /// The alignment of its offset in bytes.
    pub alignment: u64,
    /// Whether it has to be at its offset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
    /// The buffer in which it has to be, if it is a part of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<PartOf>,
    /// Times in between at which it is not live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Range<u64>>,
}

/// The place of a [`PlannedBuffer`] in another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PartOf {
    /// The index of the other buffer.
    pub buffer: usize,
    /// The offset in that in bytes.
    pub offset: u64,
}

/// Why a plan that was read is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFileError {
    /// A buffer is not valid.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// An alignment is not valid.
    #[error("buffer {index}: {error}")]
    Alignment {
        /// The index of the buffer.
        index: usize,
        /// The cause.
        error: orlop_core::Error,
    },
    /// The offsets are not valid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The gap or the verdict is not that of the peak and the bound.
    #[error("the verdict is {verdict:?}, not {in_file:?} with a gap of {gap}")]
    Verdict {
        /// The verdict on the offsets.
        verdict: String,
        /// The verdict in the file.
        in_file: String,
        /// The gap in the file.
        gap: String,
    },
    /// There is a plan below the bound.
    #[error("the bound is {bound}, but there is a plan of {height} bytes")]
    BoundRefuted {
        /// The bound in the file.
        bound: u64,
        /// The height of a lower plan.
        height: u64,
    },
    /// The peak is not that of the offsets, or the bound is below the load of the buffers or above the peak.
    #[error("the peak is {peak} and the bound {bound}, not {} and {}", .in_file.0, .in_file.1)]
    Figures {
        /// The end of the highest buffer.
        peak: u64,
        /// The lower bound of all plans.
        bound: u64,
        /// Peak and bound in the file.
        in_file: (u64, u64),
    },
}

/// How the bound of a [`PlanFile`] was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoundCheck {
    /// It is the greatest load.
    Load,
    /// It is above the load, and a complete search has proven it again.
    Search,
    /// It is above the load, and was neither proven nor refuted.
    Unchecked,
}

/// The number of buffers up to which a bound above the load is proven again. No search proves one of more.
const MAX_PROOF: usize = 1000;

/// The number of buffers that such a search places, all iterations together.
const PROOF: u64 = 2_000_000;

/// Returns the height over the lower bound, less 1.
fn gap(height: u64, lower_bound: u64) -> f64 {
    match Verdict::of(height, lower_bound) {
        Verdict::Within(ratio) => ratio - 1.0,
        _ => 0.0,
    }
}

impl PlanFile {
    /// Describes a plan.
    #[must_use]
    pub fn new(problem: &Problem, plan: &Plan) -> Self {
        let buffers = problem.buffers().iter().enumerate().map(|(index, buffer)| PlannedBuffer {
            name: problem.name(index).unwrap_or_default().to_owned(),
            start: buffer.start,
            end: buffer.end,
            size: buffer.size,
            alignment: buffer.alignment.bytes() as u64,
            fixed: problem.fixed_offset(index).is_some(),
            part_of: problem.part_of(index).map(|(buffer, offset)| PartOf { buffer, offset }),
            gaps: problem.gaps(index).to_vec(),
        });
        Self {
            peak: plan.height(),
            bound: plan.lower_bound(),
            gap: gap(plan.height(), plan.lower_bound()),
            verdict: plan.verdict().to_string(),
            offsets: plan.offsets().to_vec(),
            buffers: buffers.collect(),
            reserved: problem.reserved().to_vec(),
            exclusions: problem.exclusions().collect(),
            block_limit: problem.block_limit(),
        }
    }

    /// Checks that buffers which are live at the same time share no bytes, and that peak, bound, gap and
    /// verdict are right. A bound above the load is not refused because a search gave up: the result says
    /// whether it was proven.
    ///
    /// # Errors
    ///
    /// [`PlanFileError`]
    pub fn verify(&self) -> Result<BoundCheck, PlanFileError> {
        let problem = self.problem()?;
        let plan = Plan::new(&problem, self.offsets.clone())?;
        verify(&problem, &plan)?;
        let peak = plan.height();
        let figures = |bound| PlanFileError::Figures { peak, bound, in_file: (self.peak, self.bound) };
        if self.peak != peak || self.bound < plan.lower_bound() || self.bound > peak {
            return Err(figures(plan.lower_bound()));
        }
        let check = self.check_bound(&problem, &plan)?;
        let verdict = Verdict::of(peak, self.bound);
        if (verdict.to_string(), gap(peak, self.bound)) == (self.verdict.clone(), self.gap) {
            return Ok(check);
        }
        let (in_file, gap) = (self.verdict.clone(), self.gap.to_string());
        Err(PlanFileError::Verdict { verdict: verdict.to_string(), in_file, gap })
    }

    /// Returns the problem.
    fn problem(&self) -> Result<Problem, PlanFileError> {
        let mut builder = ProblemBuilder::new();
        for (index, buffer) in self.buffers.iter().enumerate() {
            let bytes = usize::try_from(buffer.alignment).unwrap_or(usize::MAX);
            let alignment =
                Alignment::new(bytes).map_err(|error| PlanFileError::Alignment { index, error })?;
            let lifetime = buffer.start..buffer.end;
            builder.push_named(&buffer.name, Buffer::unaligned(lifetime, buffer.size).aligned(alignment))?;
            builder.gaps(index, buffer.gaps.iter().cloned())?;
        }
        for range in &self.reserved {
            builder.reserve(range.clone())?;
        }
        for (index, buffer) in self.buffers.iter().enumerate() {
            if let Some(PartOf { buffer, offset }) = buffer.part_of {
                builder.place_in(index, buffer, offset)?;
            }
        }
        let offsets = self.buffers.iter().zip(&self.offsets).enumerate();
        let fixed =
            offsets.filter(|(_, (buffer, _))| buffer.fixed).map(|(index, (_, &offset))| (index, offset));
        builder.fix_all(&fixed.collect::<Vec<_>>()).map_err(|(_, error)| error)?;
        for &(one, other) in &self.exclusions {
            builder.exclude(one, other)?;
        }
        let problem = builder.finish();
        Ok(match self.block_limit {
            Some(limit) => problem.limit_blocks(limit)?,
            None => problem,
        })
    }

    /// Checks a bound that is not below the load. With constraints no search proves one: heuristics may
    /// refute it.
    fn check_bound(&self, problem: &Problem, plan: &Plan) -> Result<BoundCheck, PlanFileError> {
        if self.bound == plan.lower_bound() {
            return Ok(BoundCheck::Load);
        }
        if problem.len() > MAX_PROOF {
            return Ok(BoundCheck::Unchecked);
        }
        let is_constrained = !(self.reserved.is_empty() && self.exclusions.is_empty())
            || self.block_limit.is_some()
            || self.buffers.iter().any(|buffer| buffer.fixed || !buffer.gaps.is_empty());
        let budget = match is_constrained {
            true => SearchBudget::HEURISTICS,
            false => SearchBudget::iterations(PROOF / problem.len().max(1) as u64),
        };
        let found = Planner::new().budget(budget).capacity(self.bound - 1).plan_from(problem, plan)?;
        if found.height() < self.bound {
            return Err(PlanFileError::BoundRefuted { bound: self.bound, height: found.height() });
        }
        let is_proven = found.lower_bound() >= self.bound;
        Ok(if is_proven { BoundCheck::Search } else { BoundCheck::Unchecked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_plan::Planner;

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let problem = Problem::new([Buffer::new(0..2, 256), Buffer::new(1..3, 256)]).unwrap();
        let good = PlanFile::new(&problem, &Planner::new().plan(&problem));
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<PlanFile>(&text).unwrap(), good);
        assert_eq!((good.verify(), good.gap, &*good.verdict), (Ok(BoundCheck::Load), 0.0, "optimal"));
        let wrong = |change: fn(&mut PlanFile)| {
            let mut file = good.clone();
            change(&mut file);
            file.verify().unwrap_err()
        };
        assert!(matches!(
            wrong(|file| file.offsets = vec![0, 0]),
            PlanFileError::Plan(PlanError::Overlap { .. })
        ));
        assert!(matches!(wrong(|file| file.buffers[1].start = 9), PlanFileError::Problem(_)));
        assert!(matches!(
            wrong(|file| file.buffers[1].alignment = 3),
            PlanFileError::Alignment { index: 1, .. }
        ));
        let verdict = wrong(|file| file.verdict = "within 0.01 %".to_owned());
        assert!(
            matches!(&verdict, PlanFileError::Verdict { verdict, .. } if verdict == "optimal"),
            "{verdict}"
        );
        assert!(matches!(wrong(|file| file.gap = 0.5), PlanFileError::Verdict { .. }));
        let figures = wrong(|file| file.bound = 1);
        assert_eq!(figures, PlanFileError::Figures { peak: 512, bound: 512, in_file: (512, 1) });
    }

    #[test]
    fn constraints_are_a_part_of_the_file() {
        let mut builder = ProblemBuilder::new();
        for size in [256, 256, 100, 512] {
            builder.push(Buffer::new(0..2, size)).unwrap();
        }
        builder.place_in(2, 3, 256).unwrap();
        builder.fix(0, 1024).unwrap();
        builder.reserve(0..300).unwrap();
        builder.gap(1, 0..1).unwrap();
        builder.exclude(0, 1).unwrap();
        let problem = builder.finish().limit_blocks(1024).unwrap();
        let good = PlanFile::new(&problem, &Planner::new().plan(&problem));
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<PlanFile>(&text).unwrap(), good);
        assert_eq!((good.verify(), &*good.offsets), (Ok(BoundCheck::Load), &[1024, 1280, 768, 512][..]));
        let wrong = |change: fn(&mut PlanFile)| {
            let mut file = good.clone();
            change(&mut file);
            file.verify().unwrap_err()
        };
        let reserved = wrong(|file| file.offsets = vec![1024, 256, 768, 512]);
        assert!(matches!(reserved, PlanFileError::Plan(PlanError::Reserved { .. })), "{reserved}");
        let moved = wrong(|file| file.offsets[2] = 2048);
        assert!(matches!(moved, PlanFileError::Plan(PlanError::NotInPlace { .. })), "{moved}");
        let excluded = wrong(|file| file.exclusions.push((2, 3)));
        assert!(matches!(excluded, PlanFileError::Problem(ProblemError::Excluded { .. })), "{excluded}");
        let divided = wrong(|file| file.block_limit = Some(768));
        assert!(matches!(divided, PlanFileError::Plan(PlanError::Divided { .. })), "{divided}");
        let blocks = wrong(|file| file.block_limit = Some(256));
        assert!(matches!(blocks, PlanFileError::Problem(ProblemError::BlockLimit { .. })), "{blocks}");
        let gaps = wrong(|file| file.buffers[0].gaps.push(0..2));
        assert!(matches!(gaps, PlanFileError::Problem(ProblemError::InvalidGap { .. })), "{gaps}");
        let place = wrong(|file| file.buffers[2].part_of = Some(PartOf { buffer: 9, offset: 0 }));
        assert!(matches!(place, PlanFileError::Problem(ProblemError::NoBuffer { index: 9 })), "{place}");
    }

    #[test]
    fn gaps_in_any_order_are_read_in_near_linear_time() {
        let mut builder = ProblemBuilder::new();
        builder.push(Buffer::unaligned(0..400_000, 10)).unwrap();
        builder.gaps(0, (0..100_000).map(|gap| 4 * gap + 1..4 * gap + 3)).unwrap();
        let problem = builder.finish();
        let mut file = PlanFile::new(&problem, &Planner::new().plan(&problem));
        file.buffers[0].gaps.reverse();
        assert_eq!(file.verify(), Ok(BoundCheck::Load));
    }

    #[test]
    fn a_bound_above_the_load_is_proven_again() {
        // The load is 5; a complete search proves that the lowest plan is 6.
        let sizes = [(0..2, 3), (0..1, 2), (1..3, 1), (1..4, 1), (2..4, 1), (3..6, 3), (4..7, 2)];
        let problem = Problem::new(sizes.map(|(lifetime, size)| Buffer::unaligned(lifetime, size))).unwrap();
        let plan = Planner::new().budget(SearchBudget::iterations(500)).plan(&problem);
        let file = PlanFile::new(&problem, &plan);
        assert_eq!((file.peak, file.bound, file.verify()), (6, 6, Ok(BoundCheck::Search)));
        // A bound that is not true is refused, although it is not above the peak.
        let load =
            Problem::new([(0..1, 3), (1..2, 3)].map(|(at, size)| Buffer::unaligned(at, size))).unwrap();
        let high = Plan::new(&load, vec![0, 3]).unwrap();
        let mut file = PlanFile::new(&load, &high);
        assert_eq!(file.verify(), Ok(BoundCheck::Load));
        (file.bound, file.gap, file.verdict) = (6, 0.0, "optimal".to_owned());
        assert_eq!(file.verify(), Err(PlanFileError::BoundRefuted { bound: 6, height: 3 }));
    }

    #[test]
    fn a_bound_that_no_search_proves_is_not_refused() {
        // Seven buffers that need more than their load, at so many times that they are not searched.
        let sizes = [(0..2, 3), (0..1, 2), (1..3, 1), (1..4, 1), (2..4, 1), (3..6, 3), (4..7, 2)];
        let buffers = (0..200_u64).flat_map(|part| {
            sizes.clone().map(|(lifetime, size)| {
                Buffer::unaligned(10 * part + lifetime.start..10 * part + lifetime.end, size)
            })
        });
        let problem = Problem::new(buffers).unwrap();
        let plan = Planner::new().plan(&problem);
        let mut file = PlanFile::new(&problem, &plan);
        assert_eq!((file.bound, file.peak, file.verify()), (5, 6, Ok(BoundCheck::Load)));
        (file.bound, file.gap, file.verdict) = (6, 0.0, "optimal".to_owned());
        assert_eq!(file.verify(), Ok(BoundCheck::Unchecked));
    }
}
