//! Reading recordings from files and from memory.

use crate::error::AnswerError;
use crate::task::{Stage, TaskProgress};
use orlop_lab::compare::Profile;
use orlop_lab::what_if::check_recording;
use orlop_trace::history::{History, HistoryWarning};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;

/// The number of bytes in which the mark of a profile is searched: it is the first field.
const HEAD: u64 = 256;

/// The first field of a profile, which no other format has.
const MARK: &str = "\"orlop_profile\"";

/// The contents of a recording.
#[derive(FromPyObject)]
pub(crate) enum Contents {
    /// In memory.
    Bytes(PyBackedBytes),
    /// In a file.
    File(PathBuf),
}

/// A recording, and the name of its file; `None` if it is in memory.
pub(crate) struct Source {
    pub(crate) name: Option<String>,
    pub(crate) contents: Contents,
}

/// Returns the name of a recording in commands.
pub(crate) fn name_in_commands(name: Option<&str>) -> &str {
    name.unwrap_or("FILE")
}

/// Returns the name of a recording in errors.
pub(crate) fn name_in_errors(name: Option<String>) -> String {
    name.unwrap_or_else(|| "the recording".to_owned())
}

/// Reads a recording that has at least one device.
pub(crate) fn history(
    source: Source,
    completeness: Completeness,
    progress: &TaskProgress,
) -> Result<History, AnswerError> {
    let Source { name, contents } = source;
    let name = name_in_errors(name);
    let history = parse(&name, open(contents, progress)?)?;
    progress.advance(0)?;
    if completeness == Completeness::Whole || history.devices.is_empty() {
        require_complete(&name, &history)?;
    }
    if history.devices.is_empty() {
        return Err(AnswerError::NoAnswer { name, reason: "nothing was recorded".to_owned() });
    }
    Ok(history)
}

/// Which recordings are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// Complete recordings of a run: others might pass for less memory.
    Whole,
    /// Any.
    Any,
}

/// A profile with its source.
pub(crate) struct SourcedProfile {
    pub(crate) profile: Profile,
    /// Whether it is that of a recording, and not a baseline.
    pub(crate) is_recording: bool,
}

/// Reads a profile, or makes that of a recording, with `depth` lines in names.
pub(crate) fn profile(
    source: Source,
    depth: usize,
    required: Completeness,
    progress: &TaskProgress,
) -> Result<SourcedProfile, AnswerError> {
    let Source { name, contents } = source;
    let name = name_in_errors(name);
    let no_answer = |reason: String| AnswerError::NoAnswer { name: name.clone(), reason };
    let mut input = open(contents, progress)?;
    let mut head = Vec::new();
    let read = input.by_ref().take(HEAD).read_to_end(&mut head);
    read.map_err(|error| no_answer(format!("cannot be read: {error}")))?;
    let is_profile = String::from_utf8_lossy(&head).contains(MARK);
    let input = Cursor::new(head).chain(input);
    if is_profile {
        let profile: Profile = serde_json::from_reader(io::BufReader::new(input))
            .map_err(|error| no_answer(format!("not a baseline: {error}")))?;
        return match profile.is_known() {
            true => Ok(SourcedProfile { profile, is_recording: false }),
            false => Err(no_answer("was written by another version of orlop".to_owned())),
        };
    }
    let history = parse(&name, input)?;
    progress.advance(0)?;
    if required == Completeness::Whole {
        require_complete(&name, &history)?;
        if let Some(reason) = check_recording(&history) {
            return Err(no_answer(reason.to_string()));
        }
    }
    Ok(SourcedProfile { profile: Profile::of(&history, depth), is_recording: true })
}

fn parse(name: &str, input: impl Read) -> Result<History, AnswerError> {
    History::parse(input).map_err(|error| AnswerError::Read { name: name.to_owned(), error })
}

/// Returns an error if the recording is cut off or damaged.
fn require_complete(name: &str, history: &History) -> Result<(), AnswerError> {
    let is_incomplete = |warning: &&HistoryWarning| {
        matches!(warning, HistoryWarning::CutOff { .. } | HistoryWarning::Damaged { .. })
    };
    match history.warnings.iter().find(is_incomplete) {
        Some(warning) => Err(AnswerError::NoAnswer { name: name.to_owned(), reason: warning.to_string() }),
        None => Ok(()),
    }
}

fn open(contents: Contents, progress: &TaskProgress) -> Result<CountedReader<'_>, AnswerError> {
    let (inner, bytes): (Box<dyn Read>, u64) = match contents {
        Contents::Bytes(bytes) => {
            let length = bytes.len() as u64;
            (Box::new(Cursor::new(bytes)), length)
        }
        Contents::File(path) => {
            let failed = |error| AnswerError::Open { path: path.clone(), error };
            let file = File::open(&path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
            }
            (Box::new(file), metadata.len())
        }
    };
    progress.begin(Stage::Reading, bytes);
    Ok(CountedReader { inner, progress })
}

/// A reader that counts its bytes, and fails when the task is cancelled.
struct CountedReader<'a> {
    inner: Box<dyn Read>,
    progress: &'a TaskProgress,
}

impl Read for CountedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.progress.advance(read as u64).map_err(io::Error::other)?;
        Ok(read)
    }
}
