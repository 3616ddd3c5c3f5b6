//! `bench --against`: the benches of a revision and of the working tree, in lock step.
//!
//! On a shared machine two runs of one program differ by more than most changes do. So both programs run at
//! the same time on one core and take short batches in turns, and the figure is the median of the ratios of
//! neighbouring batches. Where a program's memory lies changes its speed too, by up to 10 %, so this is done
//! for several launches of both.

mod build;
mod program;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::report::Outcome;
use crate::shell::Shell;
use program::Program;

/// The benches that are compared.
const BENCHES: [&str; 4] = ["alloc", "tensor", "device", "trace"];

/// The bench whose names end with a trace: the mean over the traces counts. In the others each name counts.
const BY_TRACE: &str = "alloc";

/// The shortest batch, and the time of all batches of a bench in one launch, in nanoseconds.
const BATCH: f64 = 1e6;
const BUDGET: f64 = 1e9;

/// The limits of the number of batches.
const MIN_ROUNDS: usize = 5;
const MAX_ROUNDS: usize = 100;

/// The settings of a comparison.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) against: String,
    /// Parts of names, such as `device/hot pair`; empty for all benches.
    pub(crate) filters: Vec<String>,
    pub(crate) launches: u32,
    /// The largest mean ratio that is no failure.
    pub(crate) max: Option<f64>,
}

/// Nanoseconds per iteration of the revision and of the working tree, and now over before.
type PairedTime = [f64; 3];

/// Builds both sides, compares them and prints the ratios.
pub(crate) fn run(shell: &Shell, comparison: &Comparison) -> Result<Outcome> {
    let (tree, revision) = build::checkout(shell, &comparison.against)?;
    let benches = benches(&comparison.filters);
    let base = build::build(shell, &tree, "base", &benches)?;
    let now = build::build(shell, shell.root(), "now", &benches)?;
    println!("{:<52} {revision:>13} {:>13}  ratio  of the launches", "ns per iteration", "now");
    let mut groups = BTreeMap::<String, Vec<f64>>::new();
    for bench in benches {
        let (Some(base), Some(now)) = (base.get(bench), now.get(bench)) else {
            println!("{bench}: in one revision only");
            continue;
        };
        for (name, times) in compare(shell, comparison, bench, [base, now])? {
            groups.entry(group(&name).to_owned()).or_default().push(print_row(&name, &times));
        }
    }
    summary(&groups, comparison.max)
}

/// Runs a bench's two programs, base and now, and returns the times of each launch by name.
fn compare(
    shell: &Shell,
    comparison: &Comparison,
    bench: &'static str,
    paths: [&PathBuf; 2],
) -> Result<Vec<(String, Vec<PairedTime>)>> {
    let start = |side: usize| Program::start(shell, bench, paths[side]);
    let list = |side| start(side)?.names(&comparison.filters);
    let lists = [list(0)?, list(1)?];
    let common = common(&lists[0], &lists[1]);
    for (side, names) in [comparison.against.as_str(), "the working tree"].iter().zip(&lists) {
        for name in names.iter().filter(|name| !common.contains(name)) {
            println!("{name}: only in {side}");
        }
    }
    let mut times: Vec<(String, Vec<PairedTime>)> =
        common.into_iter().map(|name| (name.clone(), Vec::new())).collect();
    for _ in 0..if times.is_empty() { 0 } else { comparison.launches } {
        let mut programs = [start(0)?, start(1)?];
        for (name, times) in &mut times {
            times.push(measure(&mut programs, name)?);
        }
    }
    Ok(times)
}

/// Returns the benches to build: all, unless each filter begins with the name of one.
fn benches(filters: &[String]) -> Vec<&'static str> {
    let named = |bench: &str| filters.iter().any(|filter| filter.starts_with(bench));
    let all = filters.is_empty()
        || !filters.iter().all(|filter| BENCHES.iter().any(|bench| filter.starts_with(bench)));
    BENCHES.into_iter().filter(|bench| all || named(bench)).collect()
}

/// Returns the names that both programs have, in the order of both.
fn common<'a>(base: &'a [String], now: &[String]) -> Vec<&'a String> {
    let mut rest = now;
    let mut is_next = |name: &&String| {
        let found = rest.iter().position(|other| other == *name);
        rest = found.map_or(rest, |index| &rest[index + 1..]);
        found.is_some()
    };
    base.iter().filter(|name| is_next(name)).collect()
}

/// Measures a bench in both programs, in batches of the same number of iterations.
fn measure(programs: &mut [Program; 2], name: &str) -> Result<PairedTime> {
    for program in &mut *programs {
        program.go_to(name)?;
    }
    let (mut iterations, mut spent, mut rounds) = (1, 0.0, Vec::new());
    while rounds.len() < MIN_ROUNDS || (rounds.len() < MAX_ROUNDS && spent < BUDGET) {
        let mut times = [0.0; 2];
        let first = rounds.len() % 2;
        for side in [first, 1 - first] {
            times[side] = programs[side].time(iterations)?;
        }
        let [base, now] = times;
        if rounds.is_empty() && base.min(now) < BATCH {
            iterations *= 2;
            continue;
        }
        spent += base + now;
        rounds.push([base / iterations as f64, now / iterations as f64, now / base]);
    }
    for program in programs {
        program.leave()?;
    }
    Ok([0, 1, 2].map(|figure| median(&rounds, figure)))
}

fn median(times: &[PairedTime], figure: usize) -> f64 {
    let mut values: Vec<f64> = times.iter().map(|time| time[figure]).collect();
    values.sort_by(f64::total_cmp);
    // The same value twice if their number is odd.
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// Prints the medians of all launches and the range of their ratios, and returns the ratio.
fn print_row(name: &str, launches: &[PairedTime]) -> f64 {
    let [base, now, ratio] = [0, 1, 2].map(|figure| median(launches, figure));
    let ratios = || launches.iter().map(|time| time[2]);
    let (low, high) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
    println!("{name:<52} {base:>13.1} {now:>13.1}  {ratio:.3}  {low:.3} to {high:.3}");
    ratio
}

/// Returns the name of the group whose mean counts.
fn group(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some((contender, _trace)) if name.starts_with(BY_TRACE) => contender,
        _ => name,
    }
}

/// Prints the geometric mean of each group, the worst last, and compares them with the limit.
fn summary(groups: &BTreeMap<String, Vec<f64>>, max: Option<f64>) -> Result<Outcome> {
    let mean =
        |ratios: &[f64]| (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let mut means: Vec<(f64, &str)> =
        groups.iter().map(|(name, ratios)| (mean(ratios), name.as_str())).collect();
    means.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("\nratio, the worst last; for {BY_TRACE} the mean over the traces");
    for (mean, name) in &means {
        println!("{mean:.3}  {name}");
    }
    let count = means.iter().filter(|(mean, _)| max.is_some_and(|max| *mean > max)).count();
    match means.last() {
        None => {
            Err(Error::EmptySelection { what: "bench of both revisions", selection: "matches".to_owned() })
        }
        Some(_) if count > 0 => Err(Error::Found { count, what: "ratios above the limit" }),
        Some((worst, name)) => Ok(Outcome::Passed(format!("at most {worst:.3} ({name})"))),
    }
}

#[cfg(test)]
#[expect(dead_code, unreachable_pub, reason = "not called here: it is built for the lints and the formatter")]
#[path = "../../../benches/paired/criterion.rs"]
mod stand_in;

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn filters_may_name_benches() {
        assert_eq!(benches(&[]), BENCHES);
        assert_eq!(benches(&strings(&["tensor/clone", "device"])), ["tensor", "device"]);
        assert_eq!(benches(&strings(&["tensor", "hot pair"])), BENCHES);
    }

    #[test]
    fn names_of_one_revision_are_left_out() {
        let (base, now) = (strings(&["a", "gone", "b", "c"]), strings(&["new", "a", "b", "newer", "c"]));
        assert_eq!(common(&base, &now), ["a", "b", "c"]);
        assert_eq!(common(&now, &base), ["a", "b", "c"]);
        // What changed places is compared on one side of the change only.
        assert_eq!(common(&strings(&["a", "b"]), &strings(&["b", "a"])), ["a"]);
    }

    #[test]
    fn an_even_number_of_launches_has_a_median_between_two() {
        let times = [[1.0, 0.0, 0.0], [9.0, 0.0, 0.0], [2.0, 0.0, 0.0], [4.0, 0.0, 0.0]];
        assert!((median(&times, 0) - 3.0).abs() < 1e-9);
        assert!((median(&times[..3], 0) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_mean_over_traces_is_judged() {
        assert_eq!(group("alloc/orlop pow2/bert"), "alloc/orlop pow2");
        assert_eq!(group("device/hot pair/orlop, engine, 4096"), "device/hot pair/orlop, engine, 4096");
        let groups = BTreeMap::from([("a".to_owned(), vec![1.1, 1.0]), ("b".to_owned(), vec![0.9])]);
        assert!(summary(&groups, None).is_ok());
        assert!(summary(&groups, Some(1.06)).is_ok());
        assert!(summary(&groups, Some(1.04)).is_err());
        assert!(summary(&BTreeMap::new(), None).is_err());
    }
}
