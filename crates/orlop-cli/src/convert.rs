//! `orlop convert`.

use crate::arguments;
use crate::output::Failures;
use crate::recording_format::RecordingFormat;
use crate::{histories, output, partitions, table, target};
use clap::Args;
use orlop::trace::Recordings;
use orlop::trace::formats::{binary, csv, perfetto, pprof, snapshot};
use orlop::trace::history::{History, HistoryWarning};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// A PyTorch memory snapshot (pickle or JSON), a torch.profiler trace, an RMM log, or any other
    /// recording; - for the standard input. To parquet: also several files, folders and zip archives
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The file to write; it is not compressed, except for pprof. For several recordings: a folder, in which
    /// each gets a partition, such as rank=7/recording.parquet
    #[arg(required = true, value_name = "OUTPUT")]
    pub(crate) output: PathBuf,

    /// The format to write [default: by the extension of OUTPUT: .pickle or .pkl, .json (a snapshot),
    /// .trace.json (for Perfetto), .pb.gz or .pprof (for pprof), .csv, .parquet,
    /// .sqlite or .db, .orlop]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<RecordingFormat>,

    /// Prints JSON, an object, instead of a sentence
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs `orlop convert`.
pub(crate) fn run(arguments: &ConvertArguments) -> Result<(), Failures> {
    let target = &arguments.output;
    let format =
        arguments.to.or_else(|| RecordingFormat::of(target)).unwrap_or_else(|| refuse_format(target));
    let sources = arguments.files.iter().map(|file| histories::recordings(file));
    let mut sources = sources.collect::<Result<Vec<Recordings>, String>>()?;
    let is_one = sources.iter().map(ExactSizeIterator::len).sum::<usize>() <= 1;
    match (sources.pop(), arguments.files.as_slice()) {
        (Some(only), [file]) if is_one || !format.has_partitions() => {
            let history = histories::only(file, only)?;
            histories::report_warnings(file, &history.warnings);
            let mut converted = Converted::new(target, format);
            let bytes = target::put_named(target, file, |file| write(&history, format, file))?;
            converted.add(&history, bytes);
            converted.print(arguments.json)
        }
        (Some(last), _) if format.has_partitions() => {
            sources.push(last);
            let mut converted = Converted { partitions: Some(0), ..Converted::new(target, format) };
            let failures = partitions::write(sources, format, target, &mut converted)?;
            converted.print(arguments.json)?;
            Failures::check(failures)
        }
        _ => arguments::refuse(&format!("{format} is of one recording: see --to parquet")),
    }
}

/// Exits because the format is unknown.
fn refuse_format(target: &Path) -> ! {
    let is_compressed = target.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
    let reason = match is_compressed {
        true => "compressed files can be read, but not written: omit .gz, or see --to",
        false => "the extension does not determine the format: see --to",
    };
    arguments::refuse(&format!("{}: {reason}", target.display()))
}

/// The output of a conversion.
#[derive(Serialize)]
pub(crate) struct Converted {
    output: String,
    form: String,
    events: u64,
    /// The size of the files; `None` if one is not a regular file.
    bytes: Option<u64>,
    /// The number of inconsistencies of the source.
    warnings: u64,
    /// The number of partitions; `None` for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<u64>,
    /// The rank of each partition's source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<PartitionRank>,
    #[serde(skip)]
    format: RecordingFormat,
}

/// The rank of a partition.
#[derive(Serialize)]
pub(crate) struct PartitionRank {
    file: String,
    rank: u64,
}

impl Converted {
    fn new(output: &Path, format: RecordingFormat) -> Self {
        let (output, form) = (output.display().to_string(), format.name());
        let (bytes, ranks) = (Some(0), Vec::new());
        Self { output, form, events: 0, bytes, warnings: 0, partitions: None, ranks, format }
    }

    /// Adds a file of `bytes` bytes.
    pub(crate) fn add(&mut self, history: &History, bytes: Option<u64>) {
        self.events += history.devices.iter().map(|device| device.events.len() as u64).sum::<u64>();
        self.warnings += HistoryWarning::count(&history.warnings);
        self.bytes = self.bytes.zip(bytes).map(|(all, bytes)| all + bytes);
    }

    /// Counts the partition `rank` of the recording `file`.
    pub(crate) fn add_partition(&mut self, file: &Path, rank: u64) {
        let file = file.display().to_string();
        output::report(&format!("{file} -> rank={rank}"));
        self.partitions = self.partitions.map(|partitions| partitions + 1);
        self.ranks.push(PartitionRank { file, rank });
    }

    fn print(&self, json: bool) -> Result<(), Failures> {
        if json {
            return output::print_json(self);
        }
        let Some(bytes) = self.bytes else { return Ok(()) };
        let (events, size) = (table::counted(self.events, "event"), table::bytes(bytes));
        let parts = self.partitions.map_or_else(String::new, |partitions| {
            format!(" in {}", table::counted(partitions, "partition"))
        });
        output::print(&format!("{}: {events} as {}{parts}, {size}\n", self.output, self.format))
    }
}

/// Writes a recording in a format.
pub(crate) fn write(
    history: &History,
    format: RecordingFormat,
    file: &mut (impl Write + Send),
) -> Result<(), String> {
    let written = match format {
        RecordingFormat::Pickle => snapshot::write_pickle(history, file),
        RecordingFormat::Json => snapshot::write_json(history, file),
        RecordingFormat::Perfetto => perfetto::write_perfetto(history, file),
        RecordingFormat::Pprof => pprof::write_pprof(history, file),
        RecordingFormat::Csv => csv::write_csv(history, file),
        #[cfg(feature = "parquet")]
        RecordingFormat::Parquet => orlop::trace::formats::parquet::write_parquet(history, file),
        #[cfg(feature = "sqlite")]
        RecordingFormat::Sqlite => orlop::trace::formats::sqlite::write_sqlite(history, file),
        RecordingFormat::Orlop => binary::write_binary(history, file),
    };
    written.map_err(|error| error.to_string())
}
