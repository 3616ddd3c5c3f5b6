//! What can go wrong in the automation itself.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// The result of every step.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program is missing or may not run.
    #[error("`{command}` does not start: {source}")]
    Spawn { command: String, source: std::io::Error },
    /// The system did not tell how the program ended.
    #[error("`{command}` is lost: {source}")]
    Wait { command: String, source: std::io::Error },
    /// The program ran and said no.
    #[error("`{command}` failed ({status})")]
    Failed { command: String, status: ExitStatus },
    /// The program was killed at its time limit.
    #[error("`{command}` was killed after {} s", limit.as_secs())]
    TimedOut { command: String, limit: Duration },
    /// A file or folder refused.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A program or file did not answer in the form we read.
    #[error("{origin}: not the JSON we expect: {source}")]
    Json { origin: String, source: serde_json::Error },
    /// `cargo test --no-run` named no executable.
    #[error("cargo built no test called `{target}`")]
    NoTestBinary { target: String },
    /// An `ordering!` call that the mutation driver cannot read.
    #[error("{}:{line}: {problem}", path.display())]
    Ordering { path: PathBuf, line: usize, problem: &'static str },
    /// The checks ran, and found this many defects, each printed on its own line.
    #[error("{count} {what}")]
    Found { count: usize, what: &'static str },
}

impl Error {
    /// Wraps an I/O error with the path it is about; for `map_err`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
