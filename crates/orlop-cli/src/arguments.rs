//! The command line.

use crate::allocators;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use orlop::alloc::backing;
use orlop::trace::Touch;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Where the bytes go: replays allocation traces through allocators and describes them.
#[derive(Debug, Parser)]
#[command(name = "orlop", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replays traces through allocators, and shows what each costs in time and memory
    Replay(ReplayArguments),
    /// Makes a page that shows where the memory went, block by block
    Report(ReportArguments),
    /// Looks at traces
    #[command(subcommand)]
    Trace(TraceCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Prints counts, sizes, lifetimes and the peak
    Info(InfoArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// Files in the trace format, plain or gzip; or directories: then all *.csv and *.csv.gz in them
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Allocators, separated by commas or by giving the option again [default: all but arena and system]
    #[arg(long = "allocator", short, value_name = "NAME", value_delimiter = ',', value_parser = choices())]
    pub(crate) allocators: Vec<String>,

    /// What the allocators get their memory from [default: $ORLOP_CPU_BACKING, or else the first]
    #[arg(long, value_name = "NAME", value_parser = backings())]
    pub(crate) backing: Option<String>,

    /// Threads that replay each trace at once, against one allocator
    #[arg(long, short, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,

    /// What is written into each block: nothing, its first byte, a byte of each page, all of it
    /// [default: first; none over the backing null]
    #[arg(long, value_name = "HOW", value_parser = touches())]
    pub(crate) touch: Option<Touch>,

    /// Passes over each trace; the first is reported as cold [default: as many as fit into a quarter second, but
    /// at least 3]
    #[arg(long, short, value_name = "N")]
    pub(crate) repeat: Option<NonZeroUsize>,

    /// Prints an array of objects instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArguments {
    /// Files in the trace format, plain or gzip; or directories: then all *.csv and *.csv.gz in them
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Prints an array of objects instead
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// A PyTorch memory snapshot, or a trace; plain or gzip
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Where the page goes: one file that needs nothing else
    #[arg(long, short, value_name = "PAGE", default_value = "report.html")]
    pub(crate) output: PathBuf,

    /// What stands above it [default: the file's name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,

    /// Only this device [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<u32>,
}

/// The backing that is address space and nothing else: traces of any size replay over it.
pub(crate) const NULL: &str = "null";

fn backings() -> PossibleValuesParser {
    PossibleValuesParser::new(backing::NAMED.iter().copied().chain([NULL]))
}

fn touches() -> impl TypedValueParser<Value = Touch> {
    PossibleValuesParser::new(Touch::ALL.map(Touch::name)).try_map(|name| name.parse::<Touch>())
}

fn choices() -> impl TypedValueParser<Value = String> {
    let value = |name: String| {
        let aliases: Vec<_> = allocators::aliases(&name).collect();
        PossibleValue::new(name).aliases(aliases)
    };
    let values: Vec<PossibleValue> = allocators::names().into_iter().map(value).collect();
    PossibleValuesParser::new(values).map(allocators::canonical)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
