//! Format detection: any file that this crate reads, recognized by its first bytes.
//!
//! To add one: a variant of [`HistoryFormat`], its first bytes in [`HistoryFormat::of`], and its reader in
//! [`History::parse`].

use super::text::Trace;
use super::{binary, chrome, csv, rmm, snapshot};
use crate::history::History;
use crate::input::{Input, peek};
use crate::{Result, TraceError};
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// How much of a file is looked at.
const HEAD: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HistoryFormat {
    /// A PyTorch memory snapshot, as `_dump_snapshot` writes it.
    Pickle,
    /// The same as JSON.
    Json,
    /// Lines `a,<id>,<bytes>` and `f,<id>`: see [`Trace`].
    Lines,
    /// orlop's own: [`binary`].
    Binary,
    /// Events as a table: [`csv`].
    Csv,
    /// A log of RMM's: [`rmm`].
    Rmm,
    /// A trace of `torch.profiler`: [`chrome`].
    Chrome,
}

impl HistoryFormat {
    fn of(head: &[u8]) -> Option<Self> {
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
        let marked = match text {
            text if binary::sniff(text) => Some(Self::Binary),
            text if chrome::sniff(text) => Some(Self::Chrome),
            text if csv::sniff(text) => Some(Self::Csv),
            text if rmm::sniff(text) => Some(Self::Rmm),
            _ => None,
        };
        if marked.is_some() {
            return marked;
        }
        match head {
            // Protocol 2 and later say so; a dict of protocol 0 or 1 begins with `(d` or `}q`.
            [0x80, 0..=5, ..] | [b'(', b'd', ..] | [b'}', b'q' | b'(' | b'.', ..] => Some(Self::Pickle),
            _ => match text.first()? {
                b'{' => Some(Self::Json),
                b'a' | b'f' if text.get(1) == Some(&b',') => Some(Self::Lines),
                b'#' => Some(Self::Lines),
                _ => None,
            },
        }
    }
}

impl History {
    /// Reads a file, plain or gzip: a PyTorch memory snapshot (pickle or JSON), a trace of `torch.profiler`,
    /// a log of RMM's, a file of [`binary`] or [`csv`], or lines as of [`Trace`].
    ///
    /// ```no_run
    /// let history = orlop_trace::history::History::read("snapshot.pickle")?;
    /// for warning in &history.warnings {
    ///     eprintln!("{warning}");
    /// }
    /// # Ok::<(), orlop_trace::TraceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What [`History::parse`] says, with the file's name.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| TraceError::Open { path: path.to_owned(), error })?;
        Self::parse(file).map_err(|error| error.in_file(path))
    }

    /// Reads bytes, plain or gzip: the first ones tell of which format.
    ///
    /// A packed file may unpack to 16 MiB and 256 times its own length, no more.
    ///
    /// ```
    /// use orlop_trace::history::{EventAction, History};
    ///
    /// let json = r#"{"device_traces": [[{"action": "alloc", "addr": 512, "size": 100, "stream": 0}]]}"#;
    /// let history = History::parse(json.as_bytes())?;
    /// assert_eq!(history.devices[0].events[0].action, EventAction::Allocate);
    /// # Ok::<(), orlop_trace::TraceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TraceError::Empty`] if there are none, [`TraceError::Unknown`] for bytes of no known format,
    /// [`TraceError::Snapshot`] and what [`Trace::parse`] says for what is wrong with a known one,
    /// [`TraceError::Bomb`] for one that unpacks to too much.
    pub fn parse(reader: impl Read) -> Result<Self> {
        let read = |error| TraceError::read(1, error);
        let mut input = Input::new(reader).map_err(read)?;
        let head = peek(&mut input, HEAD).map_err(read)?;
        if head.is_empty() {
            return Err(TraceError::Empty);
        }
        let format = HistoryFormat::of(&head).ok_or(TraceError::Unknown)?;
        // A byte order mark is no JSON.
        let skipped = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let mut head = Cursor::new(head);
        head.set_position(skipped);
        let whole = head.chain(input);
        match format {
            HistoryFormat::Pickle => Ok(snapshot::read_pickle(whole)?),
            HistoryFormat::Json => Ok(snapshot::read_json(BufReader::with_capacity(128 << 10, whole))?),
            HistoryFormat::Lines => Trace::parse(whole).map(|trace| Self::from(&trace)),
            HistoryFormat::Binary => binary::read_binary(whole),
            HistoryFormat::Csv => csv::read_csv(whole),
            HistoryFormat::Rmm => rmm::read_rmm(whole),
            HistoryFormat::Chrome => chrome::read_chrome(whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_is_called_so() {
        assert!(matches!(History::parse(&b""[..]), Err(TraceError::Empty)));
        assert!(matches!(History::parse(&b"abc"[..]), Err(TraceError::Unknown)));
    }

    #[test]
    fn formats_are_told_by_their_first_bytes() {
        for (head, format) in [
            (&b"\x80\x04\x95"[..], Some(HistoryFormat::Pickle)),
            (b"(dp0\n", Some(HistoryFormat::Pickle)),
            (b"}q\x00(", Some(HistoryFormat::Pickle)),
            (b" \n {\"segments\": []}", Some(HistoryFormat::Json)),
            (b"\xef\xbb\xbf{}", Some(HistoryFormat::Json)),
            (b"# a trace\n", Some(HistoryFormat::Lines)),
            (b"\na,0,1\n", Some(HistoryFormat::Lines)),
            (b"\x8eORLT\r\n\x1a\x01\0", Some(HistoryFormat::Binary)),
            (b"{\n  \"schemaVersion\": 1, \"deviceProperties\": [", Some(HistoryFormat::Chrome)),
            (b"Thread,Time,Action,Pointer,Size,Stream\n", Some(HistoryFormat::Rmm)),
            (b"1,0:0:1:0,allocate,0x10,256,0\n", Some(HistoryFormat::Rmm)),
            (b"abc", None),
            (b"\x80", None),
            (b"", None),
        ] {
            assert_eq!(HistoryFormat::of(head), format, "{head:?}");
        }
    }
}
