//! The command line of `orlop plan`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// An ONNX model (.onnx), a planning problem (CSV with the columns lower, upper and size), or a recording
    /// of any format; plain or gzip
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The order in which the nodes of a graph are executed
    #[arg(long, value_name = "ORDER", default_value = "given")]
    pub(crate) order: NodeOrder,

    /// A number for a name in the shapes of an ONNX model, like batch=8; repeat it for each name
    #[arg(long = "bind", value_name = "SYMBOL=N", value_parser = binding)]
    pub(crate) bindings: Vec<(String, u64)>,

    /// The time of the search, like 1s or 50ms; the plan then depends on the machine [default: a number of
    /// steps that depends on the file, about 20 ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<Duration>,

    /// Writes the plan as JSON: offsets, lifetimes and sizes
    #[arg(long, short, value_name = "PLAN")]
    pub(crate) output: Option<PathBuf>,

    /// Writes an HTML page that shows the plan
    #[arg(long, value_name = "PAGE")]
    pub(crate) report: Option<PathBuf>,

    /// Only this device of a recording: the number of a GPU, or cpu [default: the only one]
    #[arg(long, value_name = "DEVICE", value_parser = crate::arguments::device)]
    pub(crate) device: Option<u32>,

    /// Checks a plan that --output wrote, and plans nothing
    #[arg(long, conflicts_with_all = ["order", "bindings", "budget", "output", "report", "device", "json"])]
    pub(crate) verify: bool,

    /// Prints JSON, an object as --output writes it, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// An order of a graph's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodeOrder {
    /// As in the file
    Given,
    /// One with a small peak, if that gives a smaller plan than the file's
    MinPeak,
}

fn binding(text: &str) -> Result<(String, u64), &'static str> {
    let expected = "expected a name and a number, like batch=8";
    let (symbol, size) = text.rsplit_once('=').ok_or(expected)?;
    if symbol.is_empty() {
        return Err(expected);
    }
    Ok((symbol.to_owned(), size.parse().map_err(|_| expected)?))
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
        assert_eq!(binding("batch=8"), Ok(("batch".to_owned(), 8)));
        assert_eq!(binding("a=b=8"), Ok(("a=b".to_owned(), 8)));
        assert!(
            ["batch", "=8", "batch=", "batch=-1", "batch=99999999999999999999"]
                .iter()
                .all(|text| binding(text).is_err())
        );
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("0.5 ms"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        assert!(["", "1", "s", "-1s", "1h", "1e999s", "NaNs"].iter().all(|text| duration(text).is_err()));
    }
}
