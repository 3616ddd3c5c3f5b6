//! Several dry runs of a program that differ in one number, like the size of a batch.
//!
//! The number is in the environment of the program under its name, and in the arguments where they have the
//! name in braces.

use super::Runner;
use crate::dry_run_arguments::DryRunArguments;
use crate::output::{self, Failures};
use crate::table::bytes;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// Values of a number, each of which is run: `batch=8,16,32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sweep {
    name: String,
    values: Vec<u64>,
}

/// A range in which the largest value that fits is searched: `batch=1..256`, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Search {
    name: String,
    first: u64,
    last: u64,
}

impl Sweep {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, values) = name_and_rest(text)?;
        let value = |value: &str| value.parse().map_err(|_| format!("{value:?} is not a number"));
        Ok(Self { name, values: values.split(',').map(value).collect::<Result<_, _>>()? })
    }
}

impl Search {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, range) = name_and_rest(text)?;
        let ends =
            range.split_once("..").and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        let (first, last) = ends.filter(|(first, last)| first <= last).ok_or("a range is like 1..256")?;
        Ok(Self { name, first, last })
    }
}

fn name_and_rest(text: &str) -> Result<(String, &str), String> {
    let (name, rest) = text.split_once('=').ok_or("a name and its values are like batch=8,16,32")?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    if is_name { Ok((name.to_owned(), rest)) } else { Err(format!("{name:?} is not a name")) }
}

/// Replaces `{name}` in the arguments. Arguments that are not Unicode are left as they are.
fn filled(program: &[OsString], name: &str, value: u64) -> Vec<OsString> {
    let place = format!("{{{name}}}");
    let fill = |argument: &OsString| match argument.to_str() {
        Some(text) => text.replace(&place, &value.to_string()).into(),
        None => argument.clone(),
    };
    program.iter().map(fill).collect()
}

/// The result of one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct SweepResult {
    value: u64,
    fits: bool,
    /// Whether the program failed for another reason than lack of memory, or left no results.
    has_failed: bool,
    /// Why there are no results to read.
    problem: Option<String>,
    /// In bytes; `None` without results, as the next.
    peak_reserved: Option<u64>,
    spare: Option<u64>,
    output: PathBuf,
}

impl fmt::Display for SweepResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.fits, self.has_failed) {
            (_, true) => "failed for another reason",
            (true, false) => "fits",
            (false, false) => "does not fit",
        };
        write!(f, "{:>10}  {verdict}: ", self.value)?;
        match (&self.problem, self.peak_reserved, self.spare) {
            (None, Some(peak), Some(spare)) => {
                write!(f, "{} reserved at the peak, {} to spare", bytes(peak), bytes(spare))
            }
            (problem, ..) => f.write_str(problem.as_deref().unwrap_or("no results")),
        }
    }
}

fn run_value(
    runner: &Runner,
    arguments: &DryRunArguments,
    name: &str,
    value: u64,
) -> Result<SweepResult, String> {
    let output = arguments.output.join(format!("{name}-{value}"));
    let program = filled(&arguments.program, name, value);
    let (result, status) = runner.run(&output, &program, &[(name, value.to_string())])?;
    let mut found = SweepResult {
        value,
        fits: false,
        has_failed: true,
        problem: None,
        peak_reserved: None,
        spare: None,
        output,
    };
    match result {
        Ok(result) => {
            let (peak_reserved, spare) = result.peak_and_spare();
            found.fits = result.fits() && status.success();
            found.has_failed = result.fits() && !status.success();
            (found.peak_reserved, found.spare) = (Some(peak_reserved), Some(spare));
        }
        // One value without results does not discard those of the others.
        Err(problem) => found.problem = Some(problem),
    }
    output::report(&found.to_string());
    Ok(found)
}

/// Runs each value, and prints the results.
pub(super) fn run_each(runner: &Runner, arguments: &DryRunArguments, sweep: &Sweep) -> Result<(), Failures> {
    let each = sweep.values.iter().map(|&value| run_value(runner, arguments, &sweep.name, value));
    let results = each.collect::<Result<Vec<_>, _>>()?;
    let largest = results.iter().filter(|result| result.fits).map(|result| result.value).max();
    print(arguments, &sweep.name, largest, &results)
}

/// Searches the largest value that fits, by halves: a program takes more memory for a larger value.
pub(super) fn find(runner: &Runner, arguments: &DryRunArguments, search: &Search) -> Result<(), Failures> {
    let mut results = Vec::new();
    let largest = largest_that_fits(search, |value| {
        let result = run_value(runner, arguments, &search.name, value)?;
        results.push(result.clone());
        if result.has_failed {
            let problem = result.problem.as_deref();
            let problem = problem.unwrap_or("the program failed, but not for lack of memory");
            return Err(format!("{} {value}: {problem}", search.name));
        }
        Ok(result.fits)
    })?;
    print(arguments, &search.name, largest, &results)
}

fn largest_that_fits(
    search: &Search,
    mut fits: impl FnMut(u64) -> Result<bool, String>,
) -> Result<Option<u64>, String> {
    if fits(search.last)? {
        return Ok(Some(search.last));
    }
    if search.first == search.last || !fits(search.first)? {
        return Ok(None);
    }
    let (mut fitting, mut failing) = (search.first, search.last);
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        if fits(middle)? {
            fitting = middle;
        } else {
            failing = middle;
        }
    }
    Ok(Some(fitting))
}

#[derive(Debug, Serialize)]
struct SweepReport<'a> {
    name: &'a str,
    largest_that_fits: Option<u64>,
    runs: &'a [SweepResult],
}

fn print(
    arguments: &DryRunArguments,
    name: &str,
    largest: Option<u64>,
    results: &[SweepResult],
) -> Result<(), Failures> {
    if arguments.json {
        output::print_json(&SweepReport { name, largest_that_fits: largest, runs: results })?;
    } else {
        let first = match largest {
            Some(value) => format!("{name} {value} is the largest that fits"),
            None => format!("no {name} fits"),
        };
        let lines: Vec<String> = results.iter().map(ToString::to_string).collect();
        output::print(&format!("{first}\n{}\n", lines.join("\n")))?;
    }
    largest.map(drop).ok_or_else(|| "the program does not fit".to_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_ranges_are_parsed() {
        let sweep = Sweep { name: "batch".to_owned(), values: vec![8, 16] };
        assert_eq!(Sweep::parse("batch=8,16"), Ok(sweep));
        let search = Search { name: "batch".to_owned(), first: 1, last: 9 };
        assert_eq!(Search::parse("batch=1..9"), Ok(search));
        for wrong in ["batch", "=8", "a b=8", "batch=x", "batch="] {
            assert!(Sweep::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Search::parse("batch=9..1").is_err());
    }

    #[test]
    fn a_number_is_filled_into_the_arguments() {
        let program = ["python", "train.py", "--batch={batch}", "{lr}"].map(OsString::from);
        assert_eq!(filled(&program, "batch", 8)[2..], ["--batch=8", "{lr}"]);
    }

    #[test]
    fn the_largest_that_fits_is_found_in_few_runs() {
        for limit in 0..=70 {
            let mut runs = 0;
            let search = Search { name: "batch".to_owned(), first: 1, last: 64 };
            let found = largest_that_fits(&search, |value| {
                runs += 1;
                Ok(value <= limit)
            });
            assert_eq!(found, Ok((limit > 0).then_some(limit.min(64))));
            assert!(runs <= 8, "{runs}");
        }
    }
}
