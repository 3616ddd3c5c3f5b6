//! `orlop convert`.

use crate::arguments::{self, ConvertArguments, RecordingForm};
use crate::{histories, output, table, target};
use orlop::trace::formats::snapshot;
use orlop::trace::formats::{binary, csv, perfetto};
use orlop::trace::history::{History, HistoryWarning};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Runs `orlop convert`.
pub(crate) fn run(arguments: &ConvertArguments) -> Result<(), Vec<String>> {
    let target = &arguments.output;
    let form = arguments.to.or_else(|| RecordingForm::of(target)).unwrap_or_else(|| unknown(target));
    let history = histories::read(&arguments.file).map_err(|error| vec![error])?;
    let bytes = target::put_named(target, &arguments.file, |file| write(&history, form, file))
        .map_err(|error| vec![error])?;
    let events = history.devices.iter().map(|device| device.events.len() as u64).sum();
    let output = target.display().to_string();
    if arguments.json {
        return output::print_json(&Converted {
            output,
            form: form.name(),
            events,
            bytes,
            warnings: HistoryWarning::count(&history.warnings),
        });
    }
    let Some(bytes) = bytes else { return Ok(()) };
    let (events, size) = (table::count(events), table::bytes(bytes));
    output::print(&format!("{output}: {events} events as {form}, {size}\n"))
}

/// Ends the program: the name does not say what is to be written.
fn unknown(target: &Path) -> ! {
    let packed = target.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
    let why = match packed {
        true => "compressed files are read, but not written: leave .gz out, or see --to",
        false => "its name does not say what it is to be: see --to",
    };
    arguments::refuse(&format!("{}: {why}", target.display()))
}

/// What was written.
#[derive(Serialize)]
struct Converted {
    output: String,
    form: String,
    events: u64,
    /// Of the file; none if it is no file.
    bytes: Option<u64>,
    /// What did not fit together in the source.
    warnings: u64,
}

fn write(history: &History, form: RecordingForm, file: &mut impl Write) -> Result<(), String> {
    let written = match form {
        RecordingForm::Pickle => snapshot::write_pickle(history, file),
        RecordingForm::Json => snapshot::write_json(history, file),
        RecordingForm::Perfetto => perfetto::write_perfetto(history, file),
        RecordingForm::Csv => csv::write_csv(history, file),
        RecordingForm::Orlop => binary::write_binary(history, file),
    };
    written.map_err(|error| error.to_string())
}
