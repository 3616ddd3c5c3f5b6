//! `orlop convert`.

use crate::arguments::{ConvertArguments, Form};
use crate::{histories, output, table};
use orlop::trace::formats::{binary, csv, perfetto};
use orlop::trace::history::{History, Warning};
use orlop::trace::snapshot;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Runs `orlop convert`.
pub(crate) fn run(arguments: &ConvertArguments) -> Result<(), Vec<String>> {
    let target = &arguments.output;
    let form = match arguments.to {
        Some(form) => form,
        None => Form::of(target).ok_or_else(|| {
            vec![format!("{}: its name does not say what it is to be: see --to", target.display())]
        })?,
    };
    let history = histories::read(&arguments.file).map_err(|error| vec![error])?;
    // What cannot be written whole leaves nothing behind, and what was there before stays.
    let part = target.with_extension("part");
    let written = write(&history, form, &part)
        .and_then(|()| fs::rename(&part, target).map_err(|error| format!("cannot be written: {error}")));
    if let Err(error) = written {
        let _ = fs::remove_file(&part);
        return Err(vec![format!("{}: {error}", target.display())]);
    }
    let bytes = fs::metadata(target).map_or(0, |data| data.len());
    let events = history.devices.iter().map(|device| device.events.len() as u64).sum();
    let output = target.display().to_string();
    if arguments.json {
        return output::print_json(&Converted {
            output,
            form: form.name(),
            events,
            bytes,
            warnings: Warning::count(&history.warnings),
        });
    }
    let (events, size) = (table::count(events), table::bytes(bytes));
    output::print(&format!("{output}: {events} events as {form}, {size}\n"))
}

/// What was written.
#[derive(Serialize)]
struct Converted {
    output: String,
    form: String,
    events: u64,
    bytes: u64,
    /// What did not fit together in the source.
    warnings: u64,
}

fn write(history: &History, form: Form, path: &Path) -> Result<(), String> {
    let file = File::create(path).map_err(|error| format!("cannot be written: {error}"))?;
    let mut file = BufWriter::new(file);
    let written = match form {
        Form::Pickle => snapshot::write_pickle(history, &mut file),
        Form::Json => snapshot::write_json(history, &mut file),
        Form::Perfetto => perfetto::write_perfetto(history, &mut file),
        Form::Csv => csv::write_csv(history, &mut file),
        Form::Orlop => binary::write_binary(history, &mut file),
    };
    written.map_err(|error| error.to_string())?;
    file.flush().map_err(|error| format!("cannot be written: {error}"))
}
