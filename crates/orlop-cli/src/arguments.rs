//! The command line.

use crate::allocators::{self, NULL};
use crate::completions::CompletionsArguments;
use crate::convert::ConvertArguments;
use crate::diff::DiffArguments;
use crate::dry_run_arguments::DryRunArguments;
use crate::fit_arguments::FitArguments;
use crate::gate::GateArguments;
use crate::info::InfoArguments;
use crate::kv::KvArguments;
use crate::plan_arguments::PlanArguments;
use crate::ranks::RanksArguments;
use crate::why_oom::WhyOomArguments;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use orlop::lab::cpu_bench::TouchPattern;
use orlop::memory::backing;
use orlop::trace::formats::device_number;
use orlop::types::torch::TorchVersion;
use orlop::types::{ByteSize, Device};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Analyzes device memory: what uses it, and what other allocators and settings would need
///
/// Reads recordings of a program's allocations: PyTorch's memory snapshots (pickle or JSON), traces of
/// torch.profiler, logs of RMM, plain traces, tables of events, and orlop's own files. The format is detected
/// from the first bytes. Files may be compressed by gzip, zstd or xz, or be in a zip archive; a path like
/// runs.zip/rank0.pickle names a member. No GPU is needed.
#[derive(Debug, Parser)]
#[command(name = "orlop", version, after_help = EXITS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The meaning of the exit codes.
const EXITS: &str = "Exit codes: 0 for success, 1 if something failed or a file cannot be read, 2 if the \
                     command line is invalid.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows what happened in a recorded run, which setting helps, and what uses the memory
    ///
    /// The first three lines are the verdict. Below it are the live memory at the peak and at the end,
    /// fragmentation, and the causes of failed requests, as `orlop snapshot info` shows them.
    Info(SnapshotInfoArguments),
    /// Replays traces through allocators, and shows the cost of each in time and memory
    ///
    /// Without --policy, traces are replayed through the CPU's allocators with real memory. With it, any
    /// recordings are replayed through a device's allocator, over addresses only.
    Replay(ReplayArguments),
    /// Finds the allocator settings under which a recorded run needs the least memory
    WhatIf(WhatIfArguments),
    /// Explains the message of a program that ran out of memory
    ///
    /// Reads a log or a pasted message of PyTorch, JAX, TensorFlow, CuPy, Paddle, RMM, vLLM, llama.cpp,
    /// ONNX Runtime or CUDA, and says what its numbers mean: fragmentation, other processes, a limit, or too
    /// much live memory.
    WhyOom(WhyOomArguments),
    /// Plans memory in advance: an offset for each value of an ONNX graph, or for each buffer
    ///
    /// Buffers whose lifetimes do not overlap share memory. The plan comes with a lower bound of all plans,
    /// and with what the same buffers take without a plan.
    Plan(PlanArguments),
    /// Shows what a pool of KV memory would have held, reused and refused for the requests of a service
    ///
    /// Replays the requests of a trace against a pool of pages: all at their times, to see how many fit, and
    /// one after the other, to see how much of their prompts is reused and why the rest is not.
    Kv(KvArguments),
    /// Creates an HTML page that shows memory use over time, block by block
    Report(ReportArguments),
    /// Describes traces, which are lists of allocations and frees
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Describes memory snapshots and other recordings of a device's memory
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Converts a recording for PyTorch's viewer, for Perfetto, for pprof, or to a table
    ///
    /// Facts that a format cannot represent are omitted. Snapshots have no threads, no memory kinds, and no
    /// uses by other streams. Tables have no segments, and no blocks from before the first event. A recording
    /// without segments becomes a snapshot without segments and without those blocks. A profile for pprof has
    /// the blocks at the peak and at the end, by call site. Only orlop's own format is lossless.
    Convert(ConvertArguments),
    /// Runs a PyTorch program for CUDA without a GPU, and says whether it fits
    ///
    /// PyTorch's own allocator runs against a GPU that is only described: its allocations are those of a
    /// real run, kernels do nothing, and values are noise. Nothing is installed; only this process is
    /// affected. The program finds ORLOP_DRY_RUN=1 in its environment. Exits with 1 if the program fails or
    /// does not fit.
    DryRun(DryRunArguments),
    /// Shows what grew between two runs, by call site
    Diff(DiffArguments),
    /// Fails if a run needs more memory than its baseline, and names the call site
    ///
    /// Compares the peak of live bytes, the peak of reserved bytes (if both sources record segments) and the
    /// number of allocations, for each device. These are counted, not timed, so the same program yields the
    /// same figures.
    ///
    /// Exits with 0 if no figure exceeds its limit, with 1 if one does, or if a file cannot be read or is cut
    /// off, and with 2 if the command line is invalid.
    Gate(GateArguments),
    /// Predicts what a larger batch needs, from recordings of the program at two or more sizes
    Fit(FitArguments),
    /// Compares the recordings of a program's ranks: the worst, the outliers, and their call sites
    Ranks(RanksArguments),
    /// Prints the completions of a shell, or the manual page
    Completions(CompletionsArguments),
    /// Serves info, what-if, why-oom and diff to agents, over the Model Context Protocol
    ///
    /// Reads and writes messages on the standard input and output.
    Mcp,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Shows live memory at the peak and at the end, fragmentation, and the causes of failed requests
    ///
    /// The reserved bytes are the sum of five parts: requested (of live blocks), rounding (of live blocks,
    /// beyond the request), pending (freed, but a stream may still use it), split (free chunks of segments in
    /// use), and cached (segments that are entirely free, and can be released to the device).
    ///
    /// For a failed request it also shows the least memory that would have had to be freed for the request to
    /// fit: adjacent blocks in one segment, or all blocks of some segments.
    Info(SnapshotInfoArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Prints counts, sizes, lifetimes and the peak
    Info(InfoArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// Files of lines `a,<id>,<bytes>[,<stream>]` (allocate) and `f,<id>` (free), plain or compressed (gzip,
    /// zstd, xz); - for the standard input; or directories, for all *.csv in them. With --policy, recordings
    /// of any format, as for what-if
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Replays through this allocator of a device, over addresses instead of memory
    #[arg(long, value_name = "NAME", conflicts_with_all = ["allocators", "backing", "threads", "touch"])]
    pub(crate) policy: Option<AllocatorChoice>,

    /// Settings for --policy torch, as in PYTORCH_CUDA_ALLOC_CONF [default: PyTorch's defaults]
    #[arg(long, value_name = "SETTINGS", requires = "policy")]
    pub(crate) conf: Option<String>,

    /// Memory of the device, like 80GiB [default: unlimited]
    #[arg(long, value_name = "BYTES", requires = "policy", value_parser = bytes)]
    pub(crate) memory: Option<u64>,

    /// Allocators, separated by commas or by repeating the option [default: all but arena, direct, host-pages
    /// and system]
    #[arg(long = "allocator", short, value_name = "NAME", value_delimiter = ',', value_parser = choices())]
    pub(crate) allocators: Vec<String>,

    /// The source of the allocators' memory [default: $ORLOP_CPU_BACKING, or else the first of these]
    #[arg(long, value_name = "NAME", value_parser = backings())]
    pub(crate) backing: Option<String>,

    /// Threads that replay each trace at the same time, all through one allocator
    #[arg(long, short, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,

    /// How much of each block is written: nothing, its first byte, a byte of each page, or all of it
    /// [default: first; with --backing null: none]
    #[arg(long, value_name = "HOW", value_parser = touch_patterns())]
    pub(crate) touch: Option<TouchPattern>,

    /// Passes over each trace; the first is reported as cold [default: as many as fit into a quarter of a
    /// second, but at least 3; with --policy: 1]
    ///
    /// With --policy and without this option, orlop's own files are replayed while they are read: they may be
    /// larger than the memory, and the time of an operation is not measured.
    #[arg(long, short, value_name = "N")]
    pub(crate) repeat: Option<NonZeroUsize>,

    /// Prints JSON, an array of objects, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// The allocator of a device, as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllocatorChoice {
    /// PyTorch's, with the same addresses
    Torch,
    /// orlop's, on a device whose pages can be moved
    Orlop,
    /// orlop's, on a device that reserves and releases whole segments
    OrlopSegments,
    /// TensorFlow's BFC
    Tensorflow,
}

#[derive(Debug, Args)]
pub(crate) struct WhatIfArguments {
    /// A PyTorch memory snapshot (pickle or JSON), or any other recording; - for the
    /// standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Memory of the device, like 80GiB [default: as recorded, or else unlimited]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory: Option<u64>,

    /// Only this device: the number of a GPU, or cpu [default: all; cpu only if there is no other]
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    pub(crate) device: Option<u32>,

    /// Only settings that this release of PyTorch has, like 2.6 [default: all, with a note]
    #[arg(long, value_name = "VERSION")]
    pub(crate) torch: Option<TorchVersion>,

    /// Shows only the best N rows [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<NonZeroUsize>,

    /// Shows all columns: ratios, the memory without retries, moved pages, the time of an operation
    #[arg(long)]
    pub(crate) wide: bool,

    /// Faster: searches neither the smallest memory of each row nor a perfect plan
    #[arg(long)]
    pub(crate) quick: bool,

    /// Prints JSON, an array of objects, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for naming and listing call sites.
#[derive(Debug, Args)]
pub(crate) struct NamingArguments {
    /// The maximum number of entries in each list of call sites
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) top: NonZeroUsize,

    /// The number of program lines in the name of a call site; call sites with the same name are counted as
    /// one
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) depth: NonZeroUsize,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotInfoArguments {
    /// PyTorch memory snapshots, or any other recordings; folders and zip archives of them; - for the
    /// standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Shows all frames of a call site, not only the informative ones
    #[arg(long)]
    pub(crate) full_frames: bool,

    /// Does not wrap call sites to fit 80 characters
    #[arg(long)]
    pub(crate) wide: bool,

    /// Prints JSON, an array of objects, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// A PyTorch memory snapshot (pickle or JSON), or any other recording; - for the
    /// standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The file to write: a self-contained page
    #[arg(long, short, value_name = "PAGE", default_value = "report.html")]
    pub(crate) output: PathBuf,

    /// The title of the page [default: the file's name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,

    /// Only this device: the number of a GPU, or cpu [default: all]
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    pub(crate) device: Option<u32>,

    /// Prints JSON, an object, instead of a sentence
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses bytes with or without a unit: `80GiB`, `24 GB`, `1048576`.
pub(crate) fn bytes(text: &str) -> Result<u64, orlop::types::Error> {
    text.parse().map(|ByteSize(bytes)| bytes)
}

/// Parses a device: its number in recordings, or its name, such as `cpu` or `cuda:1`.
pub(crate) fn device(text: &str) -> Result<u32, orlop::types::Error> {
    text.parse().or_else(|_| text.parse::<Device>().map(device_number))
}

/// Exits as for an invalid command line.
pub(crate) fn refuse(reason: &str) -> ! {
    Arguments::command().error(ErrorKind::ValueValidation, reason).exit()
}

fn backings() -> PossibleValuesParser {
    PossibleValuesParser::new(backing::NAMES.iter().copied().chain([NULL]))
}

fn touch_patterns() -> impl TypedValueParser<Value = TouchPattern> {
    PossibleValuesParser::new(TouchPattern::ALL.map(TouchPattern::name))
        .try_map(|name| name.parse::<TouchPattern>())
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
