//! The trace format, and the reader that yields one operation after the other.
//!
//! | line | meaning |
//! |---|---|
//! | `a,<id>,<bytes>[,<stream>]` | a block is allocated |
//! | `f,<id>` | it is freed |
//! | `# …`, or blank | nothing |
//!
//! LineKind, because people write traces with `print` and look at them with `less`; gzip, because it makes
//! them twenty times smaller. The reader holds one line at a time, and takes a file that is compressed for no
//! more than 16 MiB and 256 times its length: a file from a stranger cannot fill the memory.

mod bounded_lines;
mod into_history;
mod line;
mod replay_step;
mod trace;
mod trace_builder;

use self::bounded_lines::{LineKind, LineReader};
pub use self::replay_step::ReplayStep;
pub use self::trace::{Peak, Trace};
use crate::{Result, TraceError};
use orlop_core::StreamId;
use std::fmt;
use std::io::Read;

/// The longest line that is read, in bytes. An operation needs at most 65; comments may be longer.
pub const MAX_LINE: usize = 256;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A block was allocated.
    Allocate {
        /// Its name in the trace.
        id: u64,
        /// Bytes asked for.
        bytes: u64,
        /// The stream it was for.
        stream: StreamId,
    },
    /// A block was freed.
    Free {
        /// Its name in the trace.
        id: u64,
    },
}

/// As a line of the format, without its end.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate { id, bytes, stream } if stream.is_default() => write!(f, "a,{id},{bytes}"),
            Self::Allocate { id, bytes, stream } => write!(f, "a,{id},{bytes},{}", stream.get()),
            Self::Free { id } => write!(f, "f,{id}"),
        }
    }
}

/// The operations of a trace in the making: each line is checked by itself, not against those before.
/// [`Trace::parse`] checks that too.
///
/// Ends after the first error.
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
    input: LineReader<R>,
    text: Vec<u8>,
    line: u64,
    ended: bool,
}

impl<R: Read> Operations<R> {
    /// Reads from `reader`, plain text or gzip: the first bytes tell which.
    ///
    /// # Errors
    ///
    /// [`TraceError::Read`] if not even those can be read.
    pub fn new(reader: R) -> Result<Self> {
        let input = LineReader::new(reader).map_err(|error| TraceError::read(1, error))?;
        Ok(Self { input, text: Vec::with_capacity(MAX_LINE), line: 0, ended: false })
    }

    /// The line of the last operation or error, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    fn advance(&mut self) -> Result<Option<Operation>> {
        loop {
            self.line += 1;
            let line = self.line;
            match self.input.line(&mut self.text).map_err(|error| TraceError::read(line, error))? {
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
