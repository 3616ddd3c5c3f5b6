//! Errors of the automation itself.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// The result of a step.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// The reason why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program is missing or not executable.
    #[error("`{command}` cannot be started: {source}")]
    Spawn { command: String, source: std::io::Error },
    /// Waiting for the program failed.
    #[error("waiting for `{command}` failed: {source}")]
    Wait { command: String, source: std::io::Error },
    /// The program returned an error.
    #[error("`{command}` failed ({status})")]
    Failed { command: String, status: ExitStatus },
    /// The program was killed at its time limit.
    #[error("`{command}` was killed after {} s", limit.as_secs())]
    TimedOut { command: String, limit: Duration },
    /// A file or folder could not be accessed.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The output of a program, or a file, has an unexpected form.
    #[error("{origin}: unexpected JSON: {source}")]
    Json { origin: String, source: serde_json::Error },
    /// `cargo test --no-run` reported no executable.
    #[error("cargo built no test called `{target}`")]
    NoTestBinary { target: String },
    /// A filter, a name or a folder selects nothing: a check of nothing would pass.
    #[error("nothing to check: no {what} {selection}")]
    EmptySelection { what: &'static str, selection: String },
    /// An `ordering!` call that the mutation driver cannot read.
    #[error("{}:{line}: {problem}", path.display())]
    Ordering { path: PathBuf, line: usize, problem: &'static str },
    /// The checks ran and found defects, each printed on its own line.
    #[error("{count} {what}")]
    Found { count: usize, what: &'static str },
}

impl Error {
    /// Returns the error of a selection of `what` by a part of its name; `None` selects all.
    pub(crate) fn empty(what: &'static str, filter: Option<&str>) -> Self {
        let selection =
            filter.map_or_else(|| "is there".to_owned(), |filter| format!("has a name with `{filter}`"));
        Self::EmptySelection { what, selection }
    }

    /// Returns a function that wraps an I/O error with its path, for `map_err`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
