//! Errors, as exceptions of Python.

use orlop_lab::LabError;
use orlop_trace::TraceError;
use pyo3::exceptions::{PyException, PyIsADirectoryError, PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::{PyErr, create_exception};
use std::io;
use std::path::PathBuf;

create_exception!(orlop, OrlopError, PyException, "The base of all exceptions of this package.");
create_exception!(orlop, RecordingError, OrlopError, "A recording that cannot be read, or has no answer.");
create_exception!(orlop, InternalError, OrlopError, "A defect of this package. Please report it.");

/// The reasons why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    /// A file cannot be opened.
    #[error("{}: cannot be opened: {error}", path.display())]
    Open { path: PathBuf, error: io::Error },
    /// A recording cannot be read.
    #[error("{name}: {error}")]
    Read { name: String, error: TraceError },
    /// A recording is incomplete or empty.
    #[error("{name}: {reason}")]
    NoAnswer { name: String, reason: String },
    /// A text has no message of a failed request.
    #[error("no message about memory that is known; describe() reads recordings")]
    NoMessage,
    /// An option is invalid.
    #[error("{option}: {reason}")]
    Option { option: &'static str, reason: String },
    /// A page cannot be written.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// An answer cannot be represented as JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The threads of a task cannot be started.
    #[error("threads cannot be started: {0}")]
    Threads(String),
    /// A task panicked.
    #[error("a defect of orlop: {0}")]
    Panic(String),
    /// The caller does not wait for the answer any more.
    #[error("cancelled")]
    Cancelled,
}

impl From<AnswerError> for PyErr {
    fn from(error: AnswerError) -> Self {
        let text = error.to_string();
        match error {
            AnswerError::Open { path, error } => match error.raw_os_error() {
                // Python finds the class for the number: FileNotFoundError and others.
                Some(number) => PyOSError::new_err((number, reason(&error), path.into_os_string())),
                None if error.kind() == io::ErrorKind::IsADirectory => PyIsADirectoryError::new_err(text),
                None => PyOSError::new_err(text),
            },
            AnswerError::Option { .. } | AnswerError::Lab(LabError::FitSizes { .. }) => {
                PyValueError::new_err(text)
            }
            AnswerError::Json(_) | AnswerError::Panic(_) => InternalError::new_err(text),
            AnswerError::Threads(_) => OrlopError::new_err(text),
            AnswerError::Cancelled => PyKeyboardInterrupt::new_err(()),
            AnswerError::Read { .. }
            | AnswerError::NoAnswer { .. }
            | AnswerError::NoMessage
            | AnswerError::Lab(_) => RecordingError::new_err(text),
        }
    }
}

/// Returns the text of a system's error without its number, which Python adds.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
