//! `loom --mutate`: checks that the models detect wrong orderings.
//!
//! Each named ordering of the protocols is weakened in turn and the models run again; they must fail. If a
//! mutant survives, the ordering is stronger than necessary, or a model is missing. Under loom the
//! `ordering!` macro reads `ORLOP_LOOM_MUTATE=<name>=<Ordering>` at run time, so that one build of the test
//! program serves every mutant.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::loom::{MODEL_CRATES, ModelCrate, Models, SearchDepth};
use crate::orderings::ordering_calls;
use crate::parallel;
use crate::report::Outcome;
use crate::shell::{Shell, file_name, spawn_logged, stop};

/// The number of mutants that run concurrently: the models are single-threaded.
const WORKERS: usize = 2;

/// The time limit of a mutant.
const LIMIT: Duration = Duration::from_secs(120);

/// The message of loom when an execution has too many steps.
const TOO_LONG: &str = "Model exceeded maximum number of branches";

#[derive(Debug)]
struct Mutant {
    name: String,
    ordering: &'static str,
    from: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MutantVerdict {
    /// A model's assertion failed.
    Killed,
    /// Every model passed.
    Survived,
    /// Still running at the limit.
    TimedOut,
    /// Models failed only because they did not end; no assertion failed.
    Endless,
    /// The program ended without an assertion.
    Crashed(ExitStatus),
}

/// Runs the unchanged models of each crate, then every mutant whose name contains `filter`.
pub(crate) fn run(shell: &Shell, depth: SearchDepth, filter: Option<&str>) -> Result<Outcome> {
    let (mut killed, mut all) = (0, 0);
    for model_crate in &MODEL_CRATES {
        let mutants = mutants(shell, model_crate, filter)?;
        if !mutants.is_empty() {
            all += mutants.len();
            killed += run_on(shell, model_crate, depth, &mutants)?;
        }
    }
    println!("mutants: {killed} of {all} killed");
    match all - killed {
        0 if all == 0 => Err(Error::empty("`ordering!`", filter)),
        0 => Ok(Outcome::Passed(format!("mutants: {killed} of {all} killed"))),
        count => Err(Error::Found { count, what: "mutants not killed" }),
    }
}

/// Returns the number of mutants of a crate that its models kill.
fn run_on(shell: &Shell, model_crate: &ModelCrate, depth: SearchDepth, mutants: &[Mutant]) -> Result<usize> {
    let models = Models::build(shell, model_crate, depth)?;
    shell.run("loom-unchanged", &mut models.command(shell, depth))?;

    let folder = shell.target().join("loom").join("mutants");
    fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    let verdicts = parallel::for_each(mutants, WORKERS, |mutant| {
        let verdict = mutant.run(shell, &models, depth, &folder);
        mutant.report(&verdict);
        verdict
    });
    let verdicts = verdicts.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(verdicts.iter().filter(|verdict| **verdict == MutantVerdict::Killed).count())
}

fn mutants(shell: &Shell, model_crate: &ModelCrate, filter: Option<&str>) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for call in ordering_calls(&model_crate.folder(shell).join("src"))? {
        if filter.is_some_and(|filter| !call.name.contains(filter)) {
            continue;
        }
        mutants.extend(call.weaker().iter().map(|ordering| Mutant {
            name: call.name.clone(),
            ordering,
            from: call.ordering.clone(),
        }));
    }
    Ok(mutants)
}

impl Mutant {
    fn run(
        &self,
        shell: &Shell,
        models: &Models,
        depth: SearchDepth,
        folder: &Path,
    ) -> Result<MutantVerdict> {
        let log = self.log(folder);
        let mut command = models.command(shell, depth);
        command.arg("--nocapture").env("ORLOP_LOOM_MUTATE", format!("{}={}", self.name, self.ordering));
        let start = Instant::now();
        let mut child = spawn_logged(&mut command, &log)?;
        loop {
            let status = child.try_wait().map_err(Error::io(&log))?;
            let bytes = fs::read(&log).map_err(Error::io(&log))?;
            let text = String::from_utf8_lossy(&bytes);
            if let Some(status) = status {
                return Ok(judge(status, &text));
            }
            // The first failing model decides, so the others are not waited for.
            if failures(&text) > text.matches(TOO_LONG).count() {
                stop(&mut child).map_err(Error::io(&log))?;
                return Ok(MutantVerdict::Killed);
            }
            if start.elapsed() > LIMIT {
                stop(&mut child).map_err(Error::io(&log))?;
                return Ok(MutantVerdict::TimedOut);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn log(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-{}.log", file_name(&self.name), self.ordering))
    }

    /// Prints a line for a mutant that was not killed.
    fn report(&self, verdict: &Result<MutantVerdict>) {
        let said = match verdict {
            Ok(MutantVerdict::Killed) => return,
            Ok(MutantVerdict::Survived) => "survived".to_owned(),
            Ok(MutantVerdict::TimedOut) => format!("not decided within {} s", LIMIT.as_secs()),
            Ok(MutantVerdict::Endless) => "made a model endless, but broke no assertion".to_owned(),
            Ok(MutantVerdict::Crashed(status)) => format!("crashed without an assertion ({status})"),
            Err(error) => error.to_string(),
        };
        println!("mutant {}: {} -> {}: {said}", self.name, self.from, self.ordering);
    }
}

/// Returns the number of tests that have reported a failure so far.
fn failures(log: &str) -> usize {
    log.lines().filter(|line| line.ends_with("... FAILED") || *line == "FAILED").count()
}

fn judge(status: ExitStatus, log: &str) -> MutantVerdict {
    if status.success() {
        return MutantVerdict::Survived;
    }
    let endless = log.matches(TOO_LONG).count();
    let panics = log.matches("panicked at").count();
    if failures(log).max(panics) > endless {
        return MutantVerdict::Killed;
    }
    if endless > 0 { MutantVerdict::Endless } else { MutantVerdict::Crashed(status) }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn code(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn only_an_assertion_kills() {
        let failed =
            "test a ... ok\nthread 'b' panicked at src/b.rs:1:1:\nassertion failed\ntest b ... FAILED\n";
        assert_eq!(judge(code(0), "test a ... ok"), MutantVerdict::Survived);
        assert_eq!(judge(code(101), failed), MutantVerdict::Killed);
        let endless = format!("thread 'b' panicked at rt.rs:1:1:\n{TOO_LONG}.\ntest b ... FAILED\n");
        assert_eq!(judge(code(101), &endless), MutantVerdict::Endless);
        assert_eq!(judge(code(101), &format!("{endless}{failed}")), MutantVerdict::Killed);
    }

    #[test]
    fn a_signal_kills_only_after_a_panic() {
        let segfault = ExitStatus::from_raw(11);
        assert_eq!(judge(segfault, "running 3 tests\n"), MutantVerdict::Crashed(segfault));
        let abort = ExitStatus::from_raw(6);
        assert_eq!(judge(abort, "thread 'b' panicked at src/b.rs:1:1:\nboom\n"), MutantVerdict::Killed);
    }

    #[test]
    fn the_summary_line_is_no_failure_of_its_own() {
        assert_eq!(failures("test a ... FAILED\ntest result: FAILED. 0 passed; 1 failed"), 1);
        assert_eq!(failures("test a ... \nFAILED\n"), 1);
    }
}
