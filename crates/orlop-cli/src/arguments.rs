//! The command line.

use crate::allocators;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use orlop::alloc::backing;
use orlop::trace::Touch;
use orlop::trace::lab::Tolerance;
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
    /// Looks at memory snapshots and other histories of a device's memory
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Shows what grew between two runs, by call site
    Diff(DiffArguments),
    /// Fails if a run needs more memory than its baseline, and names the call site
    ///
    /// Compares the most live bytes, the most reserved bytes (where both sources tell of segments) and the number of
    /// allocations, on each device. All of them are counted, not timed, so the same program gives the same figures.
    ///
    /// Exits with 0 if nothing is above its limit, with 1 if something is or a file cannot be read, and with 2 if the
    /// command line makes no sense.
    Gate(GateArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Tells who holds the memory at the peak and in the end, what fragmentation costs, and why requests failed
    ///
    /// Where bytes are, adds up to what is reserved: asked for (in live blocks), rounding (in live blocks, beyond what
    /// was asked for), pending (given back, but a stream may still use it), split (free pieces of segments in use), and
    /// cached (segments that are free all through, which can go back to the device).
    ///
    /// For a request that failed, the least that would have had to go for it to fit is worked out: neighbours in one
    /// segment, or whole segments.
    Info(SnapshotInfoArguments),
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

/// How call sites are named and how many are listed.
#[derive(Debug, Args)]
pub(crate) struct NamingArguments {
    /// Entries in each list
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) top: NonZeroUsize,

    /// Lines of the program in the name of a call site; call sites with the same name are one
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) depth: NonZeroUsize,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotInfoArguments {
    /// Snapshots that PyTorch wrote, or other histories; plain or gzip
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Shows all frames of a call site, not only the telling ones
    #[arg(long)]
    pub(crate) full_frames: bool,

    /// Prints an array of objects instead
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// The first run: a snapshot, another history, or a baseline that `orlop gate` wrote
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// The second run
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Takes two lines of one function for two call sites: for runs of the same program
    #[arg(long)]
    pub(crate) lines: bool,

    /// Prints an object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false, args = ["baseline", "write_baseline"])]
pub(crate) struct GateArguments {
    /// The run: a snapshot or another history
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// What it is held against: a file that --write-baseline wrote, or another run
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,

    /// Writes what the run needs, as the baseline of later ones
    #[arg(long, value_name = "FILE")]
    pub(crate) write_baseline: Option<PathBuf>,

    /// How much more than the baseline passes, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    pub(crate) tolerance: Tolerance,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Prints an object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
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
