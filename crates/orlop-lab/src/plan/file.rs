//! A plan with its problem, as JSON.

use orlop_core::Alignment;
use orlop_plan::{
    Buffer, Plan, PlanError, Planner, Problem, ProblemBuilder, ProblemError, SearchBudget, Verdict, verify,
};
use serde::{Deserialize, Serialize};

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
    /// The peak or the bound is not that of the buffers and offsets.
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

/// The iterations of a search that proves a bound above the load.
const PROOF: u64 = 20_000;

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
        });
        Self {
            peak: plan.height(),
            bound: plan.lower_bound(),
            gap: gap(plan.height(), plan.lower_bound()),
            verdict: plan.verdict().to_string(),
            offsets: plan.offsets().to_vec(),
            buffers: buffers.collect(),
        }
    }

    /// Checks that buffers which are live at the same time share no bytes, and that peak, bound, gap and
    /// verdict are right.
    ///
    /// # Errors
    ///
    /// [`PlanFileError`]
    pub fn verify(&self) -> Result<(), PlanFileError> {
        let mut builder = ProblemBuilder::new();
        for (index, buffer) in self.buffers.iter().enumerate() {
            let bytes = usize::try_from(buffer.alignment).unwrap_or(usize::MAX);
            let alignment =
                Alignment::new(bytes).map_err(|error| PlanFileError::Alignment { index, error })?;
            let lifetime = buffer.start..buffer.end;
            builder.push_named(&buffer.name, Buffer::unaligned(lifetime, buffer.size).aligned(alignment))?;
        }
        let problem = builder.finish();
        let plan = Plan::new(&problem, self.offsets.clone())?;
        verify(&problem, &plan)?;
        let peak = plan.height();
        let bound = if self.proves_its_bound(&problem, &plan)? { self.bound } else { plan.lower_bound() };
        let in_file = (self.peak, self.bound);
        if in_file != (peak, bound) {
            return Err(PlanFileError::Figures { peak, bound, in_file });
        }
        let verdict = Verdict::of(peak, bound);
        if (verdict.to_string(), gap(peak, bound)) == (self.verdict.clone(), self.gap) {
            return Ok(());
        }
        let (in_file, gap) = (self.verdict.clone(), self.gap.to_string());
        Err(PlanFileError::Verdict { verdict: verdict.to_string(), in_file, gap })
    }

    /// Returns `true` if the bound is above the load and a complete search proves it again.
    fn proves_its_bound(&self, problem: &Problem, plan: &Plan) -> Result<bool, PlanError> {
        if self.bound <= plan.lower_bound() || self.bound > plan.height() {
            return Ok(false);
        }
        let planner = Planner::new().budget(SearchBudget::iterations(PROOF)).capacity(self.bound - 1);
        Ok(planner.plan_from(problem, plan)?.lower_bound() >= self.bound)
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
        assert_eq!((good.verify(), good.gap, &*good.verdict), (Ok(()), 0.0, "optimal"));
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
    fn a_bound_above_the_load_is_proven_again() {
        // The load is 5; a complete search proves that the lowest plan is 6.
        let sizes = [(0..2, 3), (0..1, 2), (1..3, 1), (1..4, 1), (2..4, 1), (3..6, 3), (4..7, 2)];
        let problem = Problem::new(sizes.map(|(lifetime, size)| Buffer::unaligned(lifetime, size))).unwrap();
        let plan = Planner::new().budget(SearchBudget::iterations(500)).plan(&problem);
        let file = PlanFile::new(&problem, &plan);
        assert_eq!((file.peak, file.bound, file.verify()), (6, 6, Ok(())));
        // A bound that is not true is refused, although it is not above the peak.
        let load =
            Problem::new([(0..1, 3), (1..2, 3)].map(|(at, size)| Buffer::unaligned(at, size))).unwrap();
        let high = Plan::new(&load, vec![0, 3]).unwrap();
        let mut file = PlanFile::new(&load, &high);
        assert_eq!(file.verify(), Ok(()));
        (file.bound, file.gap, file.verdict) = (6, 0.0, "optimal".to_owned());
        let figures = PlanFileError::Figures { peak: 6, bound: 3, in_file: (6, 6) };
        assert_eq!(file.verify(), Err(figures));
    }
}
