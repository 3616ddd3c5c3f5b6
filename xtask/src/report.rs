//! Steps and their outcomes: one line when a step ends, a table and counts at the end.
//!
//! A step that cannot run is *skipped*, with its reason in place of a result: skipped checks must be as
//! visible as failures.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::error::Result;

/// The outcome of a step that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The check passed; the text adds details, and may be empty.
    Passed(String),
    /// The check could not run; the text is the reason.
    Skipped(String),
}

impl Outcome {
    /// Returns a pass without details.
    pub(crate) fn passed() -> Self {
        Self::Passed(String::new())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepVerdict {
    Passed,
    Failed,
    Skipped,
}

#[derive(Debug)]
struct StepRow {
    name: String,
    verdict: StepVerdict,
    detail: String,
    time: Duration,
}

impl StepRow {
    fn line(&self, width: usize) -> String {
        let verdict = match self.verdict {
            StepVerdict::Passed => "ok",
            StepVerdict::Failed => "FAILED",
            StepVerdict::Skipped => "skipped:",
        };
        let seconds = self.time.as_secs_f64();
        format!("{verdict:<8} {:<width$}{seconds:>8.1} s  {}", self.name, self.detail).trim_end().to_owned()
    }
}

fn too_late() -> Outcome {
    Outcome::Skipped(
        "it would start too late on this machine; `cargo xtask ci --whole` has no limit".to_owned(),
    )
}

/// All steps of one run.
#[derive(Debug)]
pub(crate) struct Report {
    rows: Vec<StepRow>,
    start: Instant,
    last_start: Option<Duration>,
}

impl Default for Report {
    fn default() -> Self {
        Self { rows: Vec::new(), start: Instant::now(), last_start: None }
    }
}

impl Report {
    /// Starts no step later than this after the start of the run: it is skipped instead.
    pub(crate) fn limit_starts(&mut self, last: Duration) {
        self.last_start = Some(last);
    }

    /// Starts none of the next steps later than this, if there is a limit.
    pub(crate) fn tighten_limit(&mut self, last: Duration) {
        self.last_start = self.last_start.map(|limit| limit.min(last));
    }

    /// Returns a report for other steps of the same run, with the same limit.
    pub(crate) fn for_other_steps(&self) -> Self {
        Self { rows: Vec::new(), ..*self }
    }

    /// Runs a step, prints its line and records it. A failure does not stop later steps.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Outcome>) {
        println!("{}", self.silent_step(name, work).line(34));
    }

    /// Runs and records a step that prints its own line.
    pub(crate) fn self_reporting_step(&mut self, name: &str, work: impl FnOnce() -> Result<Outcome>) {
        self.silent_step(name, work);
    }

    /// Adds the steps of another run after these.
    pub(crate) fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    fn silent_step(&mut self, name: &str, work: impl FnOnce() -> Result<Outcome>) -> &StepRow {
        let start = Instant::now();
        let is_late = self.last_start.is_some_and(|last| start.duration_since(self.start) > last);
        let (verdict, detail) = match if is_late { Ok(too_late()) } else { work() } {
            Ok(Outcome::Passed(detail)) => (StepVerdict::Passed, detail),
            Ok(Outcome::Skipped(why)) => (StepVerdict::Skipped, why),
            Err(error) => (StepVerdict::Failed, error.to_string()),
        };
        let index = self.rows.len();
        self.rows.push(StepRow { name: name.to_owned(), verdict, detail, time: start.elapsed() });
        &self.rows[index]
    }

    /// Prints every step again with its time, and the counts alone on the last line.
    pub(crate) fn print_summary(&self) {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        println!("\nsummary, {:.0} s in all", self.start.elapsed().as_secs_f64());
        for row in &self.rows {
            println!("{}", row.line(width));
        }
        println!("\n{}", self.counts());
    }

    /// Returns success if nothing failed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.count(StepVerdict::Failed) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn counts(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.count(StepVerdict::Passed),
            self.count(StepVerdict::Failed),
            self.count(StepVerdict::Skipped)
        )
    }

    fn count(&self, verdict: StepVerdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn counts_every_verdict_once() {
        let mut report = Report::default();
        report.step("a", || Ok(Outcome::passed()));
        report.step("b", || Ok(Outcome::Skipped("no reason".to_owned())));
        report.step("c", || Err(Error::Found { count: 2, what: "defects" }));
        assert_eq!(report.counts(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(report.exit_code(), ExitCode::FAILURE);
        assert!(report.rows[1].line(4).starts_with("skipped: b"));
        assert!(report.rows[2].line(4).ends_with("2 defects"));
    }

    #[test]
    fn a_step_that_would_start_too_late_is_skipped_visibly() {
        let mut report = Report::default();
        report.tighten_limit(Duration::ZERO);
        report.limit_starts(Duration::from_secs(3600));
        report.step("in time", || Ok(Outcome::passed()));
        report.tighten_limit(Duration::ZERO);
        let mut others = report.for_other_steps();
        others.step("late", || Err(Error::Found { count: 1, what: "defects" }));
        report.append(others);
        assert_eq!(report.counts(), "1 passed, 0 failed, 1 skipped");
        assert!(report.rows[1].line(4).contains("too late"));
    }
}
