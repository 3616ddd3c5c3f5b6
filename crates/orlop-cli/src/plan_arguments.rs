//! The command line of `orlop plan`.

use clap::{Args, ValueEnum};
use orlop::plan::{MinPeak, SearchBudget, Space};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The states of a search for an order that takes about half a second.
const STATES_PER_SECOND: u128 = 64;

/// The states without a budget, and the maximum, with which sets of nodes take about a gigabyte.
const MIN_STATES: usize = 32;
const MAX_STATES: usize = 8192;

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// An ONNX model (.onnx), a planning problem (CSV with the columns lower, upper and size), or a recording
    /// of any format; plain or gzip
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The order in which the nodes of a graph are executed
    #[arg(long, value_name = "ORDER", default_value = "given")]
    pub(crate) order: NodeOrder,

    /// The model of the plan, with --verify: the plan is checked against it
    #[arg(value_name = "MODEL", requires = "verify")]
    pub(crate) model: Option<PathBuf>,

    /// The sizes of an ONNX model's input, like image=1x3x224x224; without a name those of the next input
    #[arg(long = "input", value_name = "[NAME=]SIZES", value_parser = input)]
    pub(crate) inputs: Vec<(Option<String>, Vec<u64>)>,

    /// A number for a name in the shapes of an ONNX model, or for a dimension of an input, like batch=8 or
    /// image:0=8; a range gives one plan for all of its sizes, like batch=1..8, a list several plans, like
    /// batch=1,8
    #[arg(long = "bind", value_name = "SIZE=N", value_parser = binding)]
    pub(crate) bindings: Vec<(String, Vec<RangeInclusive<u64>>)>,

    /// The elements of an ONNX model's input, if sizes are computed from them, like rate=16000
    #[arg(long = "value", value_name = "NAME=NUMBERS", value_parser = value)]
    pub(crate) values: Vec<(String, Vec<f64>)>,

    /// The largest sizes of a value that depends on data, like boxes=100x4, or the largest number of
    /// iterations of a loop
    #[arg(long = "bound", value_name = "NAME=SIZES", value_parser = bound)]
    pub(crate) bounds: Vec<(String, Vec<u64>)>,

    /// The time of the search, like 1s or 50ms; the plan then depends on the machine [default: a number of
    /// steps that depends on the file, about 20 ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<Duration>,

    /// Says whether the plan fits in a memory, like 1MiB; the search ends when it does, or when it cannot
    #[arg(long, value_name = "BYTES", value_parser = crate::arguments::bytes)]
    pub(crate) capacity: Option<u64>,

    /// Plans several blocks of memory of at most this size, like 128MiB; no buffer is in two of them
    #[arg(long, value_name = "BYTES", value_parser = crate::arguments::bytes)]
    pub(crate) block_limit: Option<u64>,

    /// A memory, like sram=1MiB or dram=8GiB@10 with the cost of an access to one byte, otherwise the number
    /// of memories before it; given several times, each buffer gets one of them, at the least cost
    #[arg(long = "space", value_name = "NAME=BYTES[@COST]", value_parser = space)]
    pub(crate) spaces: Vec<(String, u64, Option<u64>)>,

    /// Writes the plan as JSON: offsets, lifetimes and sizes; as PLAN.csv in minimalloc's solution format
    #[arg(long, short, value_name = "PLAN")]
    pub(crate) output: Option<PathBuf>,

    /// Writes an HTML page that shows the plan
    #[arg(long, value_name = "PAGE")]
    pub(crate) report: Option<PathBuf>,

    /// Only this device of a recording: the number of a GPU, or cpu [default: the only one]
    #[arg(long, value_name = "DEVICE", value_parser = crate::arguments::device)]
    pub(crate) device: Option<u32>,

    /// Checks a plan that --output wrote, and plans nothing
    #[arg(long, conflicts_with_all = ["order", "inputs", "bindings", "values", "bounds", "budget",
        "capacity", "block_limit", "spaces", "output", "report", "device", "json"])]
    pub(crate) verify: bool,

    /// Prints JSON, an object as --output writes it, instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// All arguments as they were given, with the name of the program.
    #[arg(skip)]
    pub(crate) words: Vec<String>,
}

/// An order of a graph's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodeOrder {
    /// As in the file
    Given,
    /// One with a small peak, if that gives a smaller plan than the file's
    MinPeak,
}

impl PlanArguments {
    /// Returns `true` if anything was given that only an ONNX model has.
    pub(crate) fn is_for_model(&self) -> bool {
        let names = [!self.inputs.is_empty(), !self.bindings.is_empty(), !self.values.is_empty()];
        names.contains(&true) || !self.bounds.is_empty() || self.order != NodeOrder::Given
    }

    /// Returns the budget of `--budget`: all steps that the time has room for.
    pub(crate) fn search_budget(&self) -> Option<SearchBudget> {
        self.budget.map(|time| SearchBudget::iterations(u64::MAX).within(time))
    }

    /// Returns the search for an order. With a budget it has as many states as take about a half of it.
    pub(crate) fn min_peak(&self) -> MinPeak {
        let states = self.budget.map_or(0, |time| time.as_millis() * STATES_PER_SECOND / 1000);
        let states = usize::try_from(states).unwrap_or(MAX_STATES).clamp(MIN_STATES, MAX_STATES);
        MinPeak::new().width(states)
    }

    /// Returns the memories.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = Space> + '_ {
        let spaces = (0..).zip(&self.spaces);
        spaces.map(|(number, (name, capacity, cost))| Space::new(name, *capacity, cost.unwrap_or(number)))
    }

    /// Returns `true` if the plan is written as CSV.
    pub(crate) fn writes_csv(&self) -> bool {
        let extension = self.output.as_deref().and_then(Path::extension);
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
    }
}

/// Splits a name from what is given for it.
fn named(text: &str) -> Option<(String, &str)> {
    let (name, rest) = text.rsplit_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), rest))
}

/// Numbers between which there is a letter, or a comma as in lists. A scalar has none.
fn sizes(text: &str) -> Option<Vec<u64>> {
    let list = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let text = list.unwrap_or(text);
    let is_scalar = matches!(text, "" | "scalar");
    let numbers = || text.split(['x', ',']).map(|size| size.trim().parse().ok()).collect();
    if is_scalar { Some(Vec::new()) } else { numbers() }
}

fn input(text: &str) -> Result<(Option<String>, Vec<u64>), &'static str> {
    let (name, given) = named(text).map_or((None, text), |(name, given)| (Some(name), given));
    Ok((
        name,
        sizes(given).ok_or("expected sizes, a number for each, like image=1x3x224x224 or 1x3x224x224")?,
    ))
}

fn bound(text: &str) -> Result<(String, Vec<u64>), &'static str> {
    let bound = named(text).and_then(|(name, given)| Some((name, sizes(given)?)));
    bound.ok_or("expected a name and sizes, like boxes=100x4")
}

fn value(text: &str) -> Result<(String, Vec<f64>), &'static str> {
    let number = |number: &str| number.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let value = named(text)
        .and_then(|(name, given)| Some((name, given.split(',').map(number).collect::<Option<_>>()?)));
    value.ok_or("expected a name and numbers, like rate=16000 or sizes=1,3")
}

fn binding(text: &str) -> Result<(String, Vec<RangeInclusive<u64>>), &'static str> {
    let range = |size: &str| match size.split_once("..") {
        None => size.parse().ok().map(|size| size..=size),
        Some((first, last)) => {
            let (first, last) = (first.parse().ok()?, last.trim_start_matches('=').parse().ok()?);
            (first <= last).then_some(first..=last)
        }
    };
    let binding = named(text)
        .and_then(|(name, given)| Some((name, given.split(',').map(range).collect::<Option<_>>()?)));
    binding.ok_or("expected a name and a number, like batch=8, batch=1..8 or batch=1,8")
}

fn space(text: &str) -> Result<(String, u64, Option<u64>), &'static str> {
    let expected = "expected a name, bytes and a cost, like sram=1MiB or dram=8GiB@10";
    let (name, rest) = named(text).ok_or(expected)?;
    let (size, cost) = match rest.split_once('@') {
        Some((size, cost)) => (size, Some(cost.parse().map_err(|_| expected)?)),
        None => (rest, None),
    };
    Ok((name, crate::arguments::bytes(size).map_err(|_| expected)?, cost))
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    let expected = "expected a time with a unit: 500us, 50ms, 1.5s, 2min";
    let at = text.find(|letter: char| letter.is_ascii_alphabetic()).ok_or(expected)?;
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(expected),
    };
    let number: f64 = number.trim_end().parse().map_err(|_| expected)?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_and_times_are_parsed_or_refused() {
        assert_eq!(binding("batch=8"), Ok(("batch".to_owned(), vec![8..=8])));
        assert_eq!(binding("a=b=8"), Ok(("a=b".to_owned(), vec![8..=8])));
        assert_eq!(binding("n=1..8,9"), Ok(("n".to_owned(), vec![1..=8, 9..=9])));
        assert!(
            ["batch", "=8", "batch=", "batch=-1", "batch=99999999999999999999", "batch=8..1", "batch=1,"]
                .iter()
                .all(|text| binding(text).is_err())
        );
        assert_eq!(input("x:0=1x3"), Ok((Some("x:0".to_owned()), vec![1, 3])));
        assert_eq!((input("1x3"), input("x=")), (Ok((None, vec![1, 3])), Ok((Some("x".to_owned()), vec![]))));
        assert_eq!(
            [input("x=[1, 3]"), input("x=1,3")],
            [(); 2].map(|()| Ok((Some("x".to_owned()), vec![1, 3])))
        );
        assert!(["x=1x", "x=-1", "1xN"].iter().all(|text| input(text).is_err()));
        assert_eq!(bound("a=2x9"), Ok(("a".to_owned(), vec![2, 9])));
        assert_eq!(value("rate=16000, 0.5"), Ok(("rate".to_owned(), vec![16000.0, 0.5])));
        assert!(["16000", "rate=", "rate=NaN", "rate=inf"].iter().all(|text| value(text).is_err()));
        assert_eq!(space("sram=1KiB"), Ok(("sram".to_owned(), 1024, None)));
        assert_eq!(space("a=b=2@10"), Ok(("a=b".to_owned(), 2, Some(10))));
        assert!(
            ["sram", "sram=", "sram=x", "sram=1@", "sram=1@-1", "=1"].iter().all(|it| space(it).is_err())
        );
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("0.5 ms"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        assert!(["", "1", "s", "-1s", "1h", "1e999s", "NaNs"].iter().all(|text| duration(text).is_err()));
    }
}
