//! The command line.

use crate::allocators;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use orlop::lab::compare::Tolerance;
use orlop::lab::cpu_bench::TouchPattern;
use orlop::memory::backing;
use orlop::types::ByteSize;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Where the bytes go: who holds a device's memory, and what other allocators and settings would need
///
/// Reads recordings of what a program allocated: PyTorch's memory snapshots (pickle or JSON), traces of
/// torch.profiler, logs of RMM, traces of lines, tables of events, and orlop's own files. What a file is, its
/// first bytes say. No GPU is needed.
#[derive(Debug, Parser)]
#[command(name = "orlop", version, after_help = EXITS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the exit codes say.
const EXITS: &str = "Exits with 0 after success, with 1 if something failed or a file cannot be read, and with 2 if the \
                     command line makes no sense.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replays traces through allocators, and shows what each costs in time and memory
    ///
    /// Without --policy, traces run through the allocators of the CPU, in memory. With it, any recordings run
    /// through the allocator of a device, over addresses only.
    Replay(ReplayArguments),
    /// Finds the allocator settings under which a recorded run needs the least memory
    WhatIf(WhatIfArguments),
    /// Makes an HTML page that shows where the memory went, block by block
    Report(ReportArguments),
    /// Describes traces, which are lists of allocations and frees
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Describes memory snapshots and other recordings of a device's memory
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Writes a recording in another form: for PyTorch's viewer, for Perfetto, or as a table
    ///
    /// What a form has no place for is left out. Snapshots have no threads, no memory kinds, and no uses by
    /// other streams. Tables have no segments, and nothing of what lived before the first event. A recording
    /// without segments becomes a snapshot without them, and without what lived before. Only orlop's own
    /// files keep everything.
    Convert(ConvertArguments),
    /// Shows what grew between two runs, by call site
    Diff(DiffArguments),
    /// Fails if a run needs more memory than its baseline, and names the call site
    ///
    /// Compares the most live bytes, the most reserved bytes (where both sources tell of segments) and the
    /// number of allocations, on each device. All of them are counted, not timed, so the same program gives
    /// the same figures.
    ///
    /// Exits with 0 if nothing is above its limit, with 1 if something is, or if a file cannot be read or is
    /// cut off, and with 2 if the command line makes no sense.
    Gate(GateArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Tells who holds the memory at the peak and at the end, what fragmentation costs, and why requests
    /// failed
    ///
    /// The reserved bytes are the sum of five parts: asked for (in live blocks), rounding (in live blocks,
    /// beyond what was asked for), pending (given back, but a stream may still use it), split (free pieces of
    /// segments that are in use), and cached (segments that are free as a whole, and can go back to the
    /// device).
    ///
    /// For a request that failed it also tells the least that would have had to be freed for the request to
    /// fit: blocks side by side in one segment, or all blocks of some segments.
    Info(SnapshotInfoArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Prints counts, sizes, lifetimes and the peak
    Info(InfoArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// Files of lines `a,<id>,<bytes>[,<stream>]` (allocate) and `f,<id>` (free), plain or gzip; or
    /// directories, for all *.csv and *.csv.gz in them. With --policy, recordings of any form, as for what-if
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Replays through this allocator of a device, over addresses instead of memory
    #[arg(long, value_name = "NAME", conflicts_with_all = ["allocators", "backing", "threads", "touch"])]
    pub(crate) policy: Option<AllocatorChoice>,

    /// Settings for --policy torch, as in PYTORCH_CUDA_ALLOC_CONF [default: PyTorch's defaults]
    #[arg(long, value_name = "SETTINGS", requires = "policy")]
    pub(crate) conf: Option<String>,

    /// Memory of the device, like 80GiB [default: as much as is needed]
    #[arg(long, value_name = "BYTES", requires = "policy", value_parser = bytes)]
    pub(crate) memory: Option<u64>,

    /// Allocators, separated by commas or by giving the option again [default: all but arena, direct,
    /// host-pages and system]
    #[arg(long = "allocator", short, value_name = "NAME", value_delimiter = ',', value_parser = choices())]
    pub(crate) allocators: Vec<String>,

    /// Where the allocators get their memory from [default: $ORLOP_CPU_BACKING, or else the first of these]
    #[arg(long, value_name = "NAME", value_parser = backings())]
    pub(crate) backing: Option<String>,

    /// Threads that replay each trace at the same time, all through one allocator
    #[arg(long, short, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,

    /// What is written into each block: nothing, its first byte, a byte of each page, or all of it [default:
    /// first; with --backing null: none]
    #[arg(long, value_name = "HOW", value_parser = touches())]
    pub(crate) touch: Option<TouchPattern>,

    /// Passes over each trace, of which the first is reported as cold [default: as many as fit into a quarter
    /// of a second, but at least 3; with --policy: 1]
    ///
    /// With --policy and without this, orlop's own files are replayed while they are read: they may be larger
    /// than the memory, and the time of an operation is not told.
    #[arg(long, short, value_name = "N")]
    pub(crate) repeat: Option<NonZeroUsize>,

    /// Prints JSON, an array of objects, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// The allocator of a device, as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllocatorChoice {
    /// PyTorch's, address for address
    Torch,
    /// orlop's, on a device whose pages can be moved
    Orlop,
    /// orlop's, on a device that gives memory in pieces
    OrlopSegments,
    /// TensorFlow's BFC
    Tensorflow,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfArguments {
    /// A PyTorch memory snapshot (pickle or JSON), or any other recording, plain or gzip
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Memory of the device, like 80GiB [default: as recorded, or else as much as is needed]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,

    /// Only this device [default: all; the host's memory only if there is no other]
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<u32>,

    /// Shows only the best N rows [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<NonZeroUsize>,

    /// Is faster: looks neither for the smallest memory of each row nor for a perfect plan
    #[arg(long)]
    pub(crate) quick: bool,

    /// Prints JSON, an array of objects, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArguments {
    /// Files of lines `a,<id>,<bytes>[,<stream>]` (allocate) and `f,<id>` (free), plain or gzip; or
    /// directories, for all *.csv and *.csv.gz in them
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Prints JSON, an array of objects, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// How call sites are named and how many are listed.
#[derive(Debug, Args)]
pub(crate) struct NamingArguments {
    /// The most entries in each list of call sites
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) top: NonZeroUsize,

    /// How many lines of the program name a call site; call sites with the same name are counted as one
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) depth: NonZeroUsize,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotInfoArguments {
    /// PyTorch memory snapshots, or any other recordings, plain or gzip
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Shows all frames of a call site, not only the telling ones
    #[arg(long)]
    pub(crate) full_frames: bool,

    /// Prints JSON, an array of objects, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// The first run: a snapshot, another recording, or a baseline that `orlop gate` wrote
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// The second run: any of these, too
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Counts two lines of one function as two call sites: for runs of one version of a program
    #[arg(long)]
    pub(crate) lines: bool,

    /// Prints JSON, an object, instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false, args = ["baseline", "write_baseline"])]
pub(crate) struct GateArguments {
    /// The run: a snapshot, or another recording
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// What the run is compared with: a file that --write-baseline wrote, or another run
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,

    /// Writes a baseline for later runs here, and compares nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) write_baseline: Option<PathBuf>,

    /// How much more than the baseline still passes, like 2.5%
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    pub(crate) tolerance: Tolerance,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Prints JSON, an object, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// A PyTorch memory snapshot (pickle or JSON), or any other recording, plain or gzip
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Where the page goes: one file that needs nothing else
    #[arg(long, short, value_name = "PAGE", default_value = "report.html")]
    pub(crate) output: PathBuf,

    /// The title of the page [default: the file's name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,

    /// Only this device [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<u32>,

    /// Prints JSON, an object, instead of a sentence
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// A PyTorch memory snapshot (pickle or JSON), a torch.profiler trace, an RMM log, or any other
    /// recording, plain or gzip
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The file to write; it is not compressed
    #[arg(value_name = "OUTPUT")]
    pub(crate) output: PathBuf,

    /// The form to write [default: by the ending of OUTPUT: .pickle or .pkl, .json (a snapshot), .trace.json
    /// (for Perfetto), .csv, .orlop]
    #[arg(long, value_name = "FORM")]
    pub(crate) to: Option<RecordingForm>,

    /// Prints JSON, an object, instead of a sentence
    #[arg(long)]
    pub(crate) json: bool,
}

/// A file format of recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordingForm {
    /// PyTorch's memory snapshot, which opens in memory_viz
    Pickle,
    /// The same snapshot as JSON
    Json,
    /// A timeline with counters by kind, for Perfetto and chrome://tracing
    Perfetto,
    /// A table of events
    Csv,
    /// orlop's own file, which keeps everything
    Orlop,
}

impl RecordingForm {
    /// What a file of this name is; `None` if the name does not say.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let endings = [
            (".pickle", Self::Pickle),
            (".pkl", Self::Pickle),
            (".trace.json", Self::Perfetto),
            (".json", Self::Json),
            (".csv", Self::Csv),
            (".orlop", Self::Orlop),
        ];
        endings.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, form)| form)
    }
}

impl RecordingForm {
    /// As it is named in arguments.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl fmt::Display for RecordingForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pickle => "a PyTorch snapshot (pickle)",
            Self::Json => "a PyTorch snapshot (JSON)",
            Self::Perfetto => "a timeline for Perfetto",
            Self::Csv => "a table",
            Self::Orlop => "a recording of orlop's",
        })
    }
}

/// The backing that is address space and nothing else: traces of any size replay over it.
pub(crate) const NULL: &str = "null";

/// Bytes, with a unit or without: `80GiB`, `24 GB`, `1048576`.
fn bytes(text: &str) -> Result<u64, orlop::types::Error> {
    text.parse().map(|ByteSize(bytes)| bytes)
}

/// Ends the program as a command line does that makes no sense.
pub(crate) fn refuse(why: &str) -> ! {
    Arguments::command().error(ErrorKind::ValueValidation, why).exit()
}

fn backings() -> PossibleValuesParser {
    PossibleValuesParser::new(backing::NAMES.iter().copied().chain([NULL]))
}

fn touches() -> impl TypedValueParser<Value = TouchPattern> {
    PossibleValuesParser::new(TouchPattern::ALL.map(TouchPattern::name)).try_map(|name| name.parse::<TouchPattern>())
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

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
