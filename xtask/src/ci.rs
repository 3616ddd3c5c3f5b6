//! `ci`: everything that must hold before a change lands, cheapest first.
//!
//! A failing step does not stop the ones after it, so one run reports all failures.

use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use crate::loom::SearchDepth;
use crate::report::Report;
use crate::shell::Shell;
use crate::{checks, fuzz, golden, loom, mutate, powerset, san, setup, tidy, wheel};

/// The folder of the repository's reference data.
const TESTDATA: &str = "testdata";

/// Steps that would start later than this are skipped, so that the whole takes little more than 40 minutes on
/// most machines of two processors. What comes last has commands of its own.
const LAST_START: Duration = Duration::from_secs(36 * 60);

/// Miri takes a quarter of an hour and more.
const LAST_START_OF_MIRI: Duration = Duration::from_secs(20 * 60);

/// Runs every step, or only those that start in time, and prints the summary. The steps go in two lanes at
/// once, by the target folder that they build in: Cargo lets one build at a time into a folder, and each lane
/// alone leaves processors idle while it links and while single tests run.
pub(crate) fn run(shell: &Shell, report: &mut Report, install: bool, is_whole: bool) {
    let shell = &shell.quiet();
    if !is_whole {
        report.limit_starts(LAST_START);
    }
    if install {
        setup::run(shell, report);
    }
    report.step("fmt", || checks::fmt(shell));
    report.step("tidy", || tidy::run(shell));
    let apart = thread::scope(|scope| {
        let others = report.for_other_steps();
        let apart = scope.spawn(|| with_own_folders(shell, others));
        in_the_common_folder(shell, report);
        apart.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    report.append(apart);
    report.print_summary();
}

/// Runs the steps that build in Cargo's target folder.
fn in_the_common_folder(shell: &Shell, report: &mut Report) {
    checks::deny(shell, report);
    report.step("clippy", || checks::clippy(shell));
    report.step("package", || checks::package(shell));
    report.step("test", || checks::test(shell));
    report.step("doc", || checks::doc(shell));
    report.step("semver", || checks::semver(shell));
    report.step("fuzz --short", || fuzz::short(shell, None, fuzz::SHORT));
    golden::run(shell, report, &shell.root().join(TESTDATA));
    report.step("wheel: sources", || wheel::sources(shell));
    powerset::run(shell, report);
    checks::targets(shell, report);
}

/// Runs the steps that build in folders of their own, with other compilers or other flags.
fn with_own_folders(shell: &Shell, mut report: Report) -> Report {
    report.step("msrv", || checks::msrv(shell));
    report.step("loom", || loom::run(shell, SearchDepth::Short, None));
    report.step("loom --mutate", || mutate::run(shell, SearchDepth::Short, None));
    report.step("san: thread", || san::thread(shell));
    report.step("san: address", || san::address(shell, SearchDepth::Short));
    report.tighten_limit(LAST_START_OF_MIRI);
    report.step("san: miri", || san::miri(shell, SearchDepth::Short));
    report
}
