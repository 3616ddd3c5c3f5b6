//! `orlop convert`.

use crate::arguments;
use crate::output::Failures;
use crate::recording_format::RecordingFormat;
use crate::{histories, output, table, target};
use clap::Args;
use orlop::trace::formats::{binary, csv, perfetto, pprof, snapshot};
use orlop::trace::history::{History, HistoryWarning};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// A PyTorch memory snapshot (pickle or JSON), a torch.profiler trace, an RMM log, or any other
    /// recording; - for the standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The file to write; it is not compressed, except for pprof
    #[arg(value_name = "OUTPUT")]
    pub(crate) output: PathBuf,

    /// The format to write [default: by the extension of OUTPUT: .pickle or .pkl, .json (a snapshot),
    /// .trace.json (for Perfetto), .pb.gz or .pprof (for pprof), .csv, .parquet,
    /// .orlop]
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
    let history = histories::read(&arguments.file)?;
    let bytes = target::put_named(target, &arguments.file, |file| write(&history, format, file))?;
    let events = history.devices.iter().map(|device| device.events.len() as u64).sum();
    let output = target.display().to_string();
    if arguments.json {
        return output::print_json(&Converted {
            output,
            form: format.name(),
            events,
            bytes,
            warnings: HistoryWarning::count(&history.warnings),
        });
    }
    let Some(bytes) = bytes else { return Ok(()) };
    let (events, size) = (table::counted(events, "event"), table::bytes(bytes));
    output::print(&format!("{output}: {events} as {format}, {size}\n"))
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
struct Converted {
    output: String,
    form: String,
    events: u64,
    /// The size of the file; `None` if it is not a regular file.
    bytes: Option<u64>,
    /// The number of inconsistencies of the source.
    warnings: u64,
}

fn write(history: &History, format: RecordingFormat, file: &mut (impl Write + Send)) -> Result<(), String> {
    let written = match format {
        RecordingFormat::Pickle => snapshot::write_pickle(history, file),
        RecordingFormat::Json => snapshot::write_json(history, file),
        RecordingFormat::Perfetto => perfetto::write_perfetto(history, file),
        RecordingFormat::Pprof => pprof::write_pprof(history, file),
        RecordingFormat::Csv => csv::write_csv(history, file),
        #[cfg(feature = "parquet")]
        RecordingFormat::Parquet => orlop::trace::formats::parquet::write_parquet(history, file),
        RecordingFormat::Orlop => binary::write_binary(history, file),
    };
    written.map_err(|error| error.to_string())
}
