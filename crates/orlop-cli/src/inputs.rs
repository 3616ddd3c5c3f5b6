//! The traces that were named.

use orlop::trace::formats::text::Trace;
use orlop::trace::{Field, TraceError};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A trace, its file, and its name: the file's, without its endings.
pub(crate) struct NamedTrace {
    pub(crate) file: PathBuf,
    pub(crate) name: String,
    pub(crate) trace: Trace,
}

/// What the standard input, or output, is called in many programs, and not here.
pub(crate) const STANDARD: &str = "-";

/// What files in a directory must end with to be taken for traces, longest first.
const ENDINGS: [&str; 2] = [".csv.gz", ".csv"];

/// Reads them all, so that a bad one is known before anything runs. Every bad one is told.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<NamedTrace>, Vec<String>> {
    let mut traces = Vec::new();
    let mut failures = Vec::new();
    for path in paths {
        match files(path) {
            Ok(files) if files.is_empty() => {
                failures.push(format!("{}: no *.csv or *.csv.gz in this directory", path.display()));
            }
            Ok(files) => {
                for file in files {
                    match Trace::read(&file) {
                        // More likely a recording that went wrong than one of nothing.
                        Ok(trace) if trace.is_empty() => {
                            failures.push(format!("{}: there are no operations in this trace", file.display()));
                        }
                        Err(TraceError::Open { path, error }) => failures.push(cannot_open(&path, error)),
                        Err(error) if is_other(&error) => failures.push(format!(
                            "{error}; other recordings than traces: see `orlop replay --policy` and `orlop snapshot info`"
                        )),
                        Ok(trace) => traces.push(NamedTrace { name: name(&file), file, trace }),
                        Err(error) => failures.push(error.to_string()),
                    }
                }
            }
            Err(error) => failures.push(cannot_open(path, error)),
        }
    }
    if failures.is_empty() { Ok(traces) } else { Err(failures) }
}

/// Whether the first line begins as none of a trace does.
fn is_other(error: &TraceError) -> bool {
    match error {
        TraceError::InFile { error, .. } => is_other(error),
        TraceError::Unexpected { line: 1, field: EventField::Kind, .. } => true,
        _ => false,
    }
}

/// That there is no such file. Many programs take `-` for the standard input: whoever writes it is told how
/// it is called here.
pub(crate) fn cannot_open(path: &Path, error: io::Error) -> String {
    let told = TraceError::Open { path: path.to_owned(), error }.to_string();
    if path == Path::new(STANDARD) { format!("{told}; the standard input is /dev/stdin") } else { told }
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_trace = ENDINGS.iter().any(|ending| name.to_string_lossy().ends_with(ending));
        if is_trace && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
    stem.filter(|stem| !stem.is_empty()).unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_endings() {
        for (path, expected) in
            [("a/b.csv.gz", "b"), ("b.csv", "b"), ("b.txt", "b.txt"), ("b.x.csv", "b.x"), (".csv", ".csv")]
        {
            assert_eq!(name(Path::new(path)), expected);
        }
    }
}
