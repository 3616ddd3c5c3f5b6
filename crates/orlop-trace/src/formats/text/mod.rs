//! The plain trace format, and a reader that yields its operations.
//!
//! | line | meaning |
//! |---|---|
//! | `a,<id>,<bytes>[,<stream>]` | allocate a block |
//! | `f,<id>` | free it |
//! | `# …`, or blank | ignored |
//!
//! The format is text, so that traces can be written with `print` and viewed with `less`, and may be
//! compressed with gzip, which makes them twenty times smaller. The reader keeps one line in memory, and
//! limits the decompressed size to 16 MiB plus 256 times the length of the file.

mod bounded_lines;
mod into_history;
mod line;
mod replay_step;
mod trace;
mod trace_builder;

use self::bounded_lines::{LineKind, read_line};
pub use self::replay_step::ReplayStep;
pub use self::trace::{LiveTotals, Trace};
use crate::input::Input;
use crate::{Result, TraceError};
use orlop_core::StreamId;
use std::fmt;
use std::io::{BufReader, Read};

/// The maximum length of a line in bytes. An operation needs at most 65; comments may be longer.
pub const MAX_LINE: usize = 256;

/// An operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Allocates a block.
    Allocate {
        /// The id of the block.
        id: u64,
        /// The requested bytes.
        bytes: u64,
        /// The stream of the request.
        stream: StreamId,
    },
    /// Frees a block.
    Free {
        /// The id of the block.
        id: u64,
    },
}

/// Formats the operation as a line without its end.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate { id, bytes, stream } if stream.raw() == 0 => write!(f, "a,{id},{bytes}"),
            Self::Allocate { id, bytes, stream } => write!(f, "a,{id},{bytes},{}", stream.raw()),
            Self::Free { id } => write!(f, "f,{id}"),
        }
    }
}

/// An iterator over the operations of a trace that is being read. It checks each line by itself;
/// [`Trace::parse`] also checks it against earlier lines. It ends after the first error.
///
/// ```
/// use orlop_trace::formats::text::{Operation, Operations};
/// let mut operations = Operations::new("# two blocks\na,7,64\nf,seven\n".as_bytes())?;
/// assert!(matches!(operations.next(), Some(Ok(Operation::Allocate { id: 7, bytes: 64, .. }))));
/// let error = operations.next().and_then(Result::err).map(|error| error.to_string());
/// assert_eq!(
///     error.as_deref(),
///     Some("line 3: the id cannot be \"seven\", expected a whole number below 2^64")
/// );
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
pub struct Operations<R: Read> {
    input: BufReader<Input<R>>,
    text: Vec<u8>,
    line: u64,
    ended: bool,
}

impl<R: Read> Operations<R> {
    /// Reads from `reader`, plain text or gzip.
    ///
    /// # Errors
    ///
    /// [`TraceError::Read`] if the first bytes cannot be read.
    pub fn new(reader: R) -> Result<Self> {
        let input = Input::new(reader).map_err(|error| TraceError::read_line(1, error))?;
        Ok(Self { input: BufReader::new(input), text: Vec::with_capacity(MAX_LINE), line: 0, ended: false })
    }

    /// Returns the line of the last operation or error, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    fn advance(&mut self) -> Result<Option<Operation>> {
        loop {
            self.line += 1;
            let line = self.line;
            match read_line(&mut self.input, &mut self.text)
                .map_err(|error| TraceError::read_line(line, error))?
            {
                LineKind::End => return Ok(None),
                LineKind::TooLong => return Err(TraceError::LineTooLong { line, limit: MAX_LINE }),
                LineKind::Comment => {}
                LineKind::Line => {
                    if let Some(operation) = line::parse(&self.text, line)? {
                        return Ok(Some(operation));
                    }
                }
            }
        }
    }
}

impl<R: Read> Iterator for Operations<R> {
    type Item = Result<Operation>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl<R: Read> fmt::Debug for Operations<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations")
            .field("line", &self.line)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
