//! Opening files, and reading plain traces.

use crate::output::Failures;
use orlop::trace::TraceError;
use orlop::trace::formats::EventField;
use orlop::trace::formats::text::Trace;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A trace with its file, and the file's name without extensions.
pub(crate) struct NamedTrace {
    pub(crate) file: PathBuf,
    pub(crate) name: String,
    pub(crate) trace: Trace,
}

/// The name of the standard input.
pub(crate) const DASH: &str = "-";

/// The extensions of traces in a directory, longest first.
const EXTENSIONS: [&str; 4] = [".csv.gz", ".csv.zst", ".csv.xz", ".csv"];

/// Opens a file, or the standard input.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>, String> {
    if path == Path::new(DASH) {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(|error| cannot_open(path, error))?;
    Ok(Box::new(file))
}

fn read_trace(path: &Path) -> Result<Trace, TraceError> {
    if path == Path::new(DASH) {
        return Trace::parse(io::stdin()).map_err(|error| error.in_file(path));
    }
    Trace::read(path)
}

/// Reads all traces before anything runs. Returns the failures of all files.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<NamedTrace>, Failures> {
    let mut traces = Vec::new();
    let mut failures = Vec::new();
    for path in paths {
        match files(path) {
            Ok(files) if files.is_empty() => {
                failures.push(format!("{}: no *.csv in this directory, plain or compressed", path.display()));
            }
            Ok(files) => {
                for file in files {
                    match read_trace(&file) {
                        // An empty trace is more likely a failed recording than one of a program without
                        // allocations.
                        Ok(trace) if trace.is_empty() => {
                            failures.push(format!("{}: this trace has no operations", file.display()));
                        }
                        Err(TraceError::Open { path, error }) => failures.push(cannot_open(&path, error)),
                        Err(error) if is_other(&error) => failures.push(format!(
                            "{error}; for other recordings see `orlop replay --policy` and \
                             `orlop snapshot info`"
                        )),
                        Ok(trace) => traces.push(NamedTrace { name: name(&file), file, trace }),
                        Err(error) => failures.push(error.to_string()),
                    }
                }
            }
            Err(error) => failures.push(cannot_open(path, error)),
        }
    }
    Failures::check(failures).map(|()| traces)
}

/// Returns `true` if the first line is not that of a trace.
fn is_other(error: &TraceError) -> bool {
    match error {
        TraceError::InFile { error, .. } => is_other(error),
        TraceError::Unexpected { line: 1, field: EventField::Operation, .. } => true,
        _ => false,
    }
}

/// Formats the error of opening a file.
pub(crate) fn cannot_open(path: &Path, error: io::Error) -> String {
    TraceError::Open { path: path.to_owned(), error }.to_string()
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_trace = EXTENSIONS.iter().any(|extension| name.to_string_lossy().ends_with(extension));
        if is_trace && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let stem = EXTENSIONS.iter().find_map(|extension| name.strip_suffix(extension));
    stem.filter(|stem| !stem.is_empty()).unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_extensions() {
        for (path, expected) in [
            ("a/b.csv.gz", "b"),
            ("b.csv.zst", "b"),
            ("b.csv", "b"),
            ("b.txt", "b.txt"),
            ("b.x.csv", "b.x"),
            (".csv", ".csv"),
        ] {
            assert_eq!(name(Path::new(path)), expected);
        }
    }
}
