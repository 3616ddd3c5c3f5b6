//! Readers for the reference data in `testdata/`.

use flate2::read::GzDecoder;
use orlop_device::DeviceError;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// An error of reading reference data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// The file is missing, or has another format.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// A line of a trace is neither `a,<id>,<bytes>[,<stream>]` nor `f,<id>`.
    #[error("line {line} is neither a,<id>,<bytes>[,<stream>] nor f,<id>")]
    Line {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A line of a recorded program is not a known operation.
    #[error("line {line} is not an operation")]
    Operation {
        /// The number of the line, from 1.
        line: usize,
    },
    /// The engine failed an operation that the recorded allocator accepted.
    #[error("line {line}: {error}")]
    Engine {
        /// The number of the operation's line, from 1.
        line: usize,
        /// The engine's error.
        error: DeviceError,
    },
    /// The invariants of the engine do not hold after an operation.
    #[error("after line {line}: {error}")]
    Invariant {
        /// The number of the operation's line, from 1.
        line: usize,
        /// The violated invariant.
        error: orlop_alloc::Error,
    },
}

/// Returns the path of a file in the workspace's `testdata/`.
#[must_use]
pub fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// Reads a gzip file as text.
///
/// # Errors
///
/// [`GoldenError::Io`].
pub fn gz_text(path: &Path) -> Result<String, GoldenError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| GzDecoder::new(file).read_to_string(&mut text))
        .map_err(|error| GoldenError::Io { path: path.into(), error })?;
    Ok(text)
}

/// One line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// An allocation.
    Allocate {
        /// The number of the allocation, dense from 0.
        id: usize,
        /// The bytes.
        bytes: usize,
        /// The stream; 0 if the trace has none.
        stream: u64,
    },
    /// A deallocation.
    Free {
        /// The number of the allocation.
        id: usize,
    },
}

/// Allocations and frees of a real program, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldenTrace {
    /// The file's name up to the first dot.
    pub name: String,
    /// The events.
    pub events: Vec<TraceEvent>,
}

impl GoldenTrace {
    /// Parses a trace.
    ///
    /// ```
    /// use orlop_testkit::golden::{GoldenTrace, TraceEvent};
    /// let trace = GoldenTrace::parse("small", "a,0,100\nf,0\n")?;
    /// assert_eq!(trace.events[1], TraceEvent::Free { id: 0 });
    /// # Ok::<(), orlop_testkit::golden::GoldenError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`GoldenError::Line`].
    pub fn parse(name: &str, text: &str) -> Result<Self, GoldenError> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
        let events = lines
            .map(|(index, line)| parse_line(line).ok_or(GoldenError::Line { line: index + 1 }))
            .collect::<Result<_, _>>()?;
        Ok(Self { name: name.into(), events })
    }

    /// Reads a trace from a gzip file.
    ///
    /// # Errors
    ///
    /// [`GoldenError`].
    pub fn read(path: &Path) -> Result<Self, GoldenError> {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        Self::parse(name.split('.').next().unwrap_or_default(), &gz_text(path)?)
    }
}

fn parse_line(line: &str) -> Option<TraceEvent> {
    let mut fields = line.split(',');
    let kind = fields.next()?;
    let id = fields.next()?.parse().ok()?;
    let event = match kind {
        "a" => {
            let bytes = fields.next()?.parse().ok()?;
            let stream = fields.next().map_or(Some(0), |stream| stream.parse().ok())?;
            TraceEvent::Allocate { id, bytes, stream }
        }
        "f" => TraceEvent::Free { id },
        _ => return None,
    };
    fields.next().is_none().then_some(event)
}

/// Reads all traces of CPU models, by name: `testdata/*.csv.gz`.
///
/// # Errors
///
/// [`GoldenError`].
pub fn cpu_traces() -> Result<Vec<GoldenTrace>, GoldenError> {
    let folder = testdata("");
    let failed = |error| GoldenError::Io { path: folder.clone(), error };
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".csv.gz")) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| GoldenTrace::read(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_strictly() {
        let trace = GoldenTrace::parse("t", "a,0,8\na,1,16,7\n\nf,0\n").unwrap();
        assert_eq!(trace.events.len(), 3);
        assert_eq!(trace.events[1], TraceEvent::Allocate { id: 1, bytes: 16, stream: 7 });
        for bad in ["a,0", "f,x", "g,1", "f,1,2", "a,0,-1", "a,0,1,2,3"] {
            assert!(matches!(GoldenTrace::parse("t", bad), Err(GoldenError::Line { line: 1 })), "{bad}");
        }
    }
}
