//! Format detection: the format of a file, recognized by its first bytes.
//!
//! To add a format: add a variant to [`HistoryFormat`], its first bytes to [`HistoryFormat::of`], and its
//! reader to [`History::parse`].

use super::text::Trace;
use super::{binary, chrome, csv, rmm, snapshot};
use crate::files::read_file;
use crate::history::History;
use crate::input::{Input, peek};
use crate::{Result, TraceError};
use std::fmt;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// The number of bytes that are examined.
const HEAD: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HistoryFormat {
    /// A PyTorch memory snapshot as `_dump_snapshot` writes it.
    Pickle,
    /// A PyTorch memory snapshot as JSON.
    Json,
    /// Lines `a,<id>,<bytes>` and `f,<id>`: see [`Trace`].
    Lines,
    /// Orlop's own format: [`binary`].
    Binary,
    /// Events as a table: [`csv`].
    Csv,
    /// A log of RMM: [`rmm`].
    Rmm,
    /// A trace of `torch.profiler`: [`chrome`].
    Chrome,
}

impl HistoryFormat {
    fn of(head: &[u8]) -> Option<Self> {
        let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
        let detected = match text {
            text if binary::sniff(text) => Some(Self::Binary),
            text if chrome::sniff(text) => Some(Self::Chrome),
            text if csv::sniff(text) => Some(Self::Csv),
            text if rmm::sniff(text) => Some(Self::Rmm),
            _ => None,
        };
        if detected.is_some() {
            return detected;
        }
        match head {
            // Protocol 2 and later begin with 0x80; a dict of protocol 0 or 1 begins with `(d` or `}q`, and a
            // list with `(l` or `]q`.
            [0x80, 0..=5, ..] | [b'(', b'd' | b'l', ..] | [b'}' | b']', b'q' | b'(' | b'.', ..] => {
                Some(Self::Pickle)
            }
            _ => match text.first()? {
                b'{' | b'[' => Some(Self::Json),
                b'a' | b'f' if text.get(1) == Some(&b',') => Some(Self::Lines),
                b'#' => Some(Self::Lines),
                _ => None,
            },
        }
    }
}

/// A file that people take for a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherFile {
    /// A pointer of Git LFS, which stands for the file.
    LfsPointer,
    /// A file compressed by zstd.
    Zstd,
    /// A file compressed by xz.
    Xz,
    /// A file compressed by bzip2.
    Bzip2,
    /// An archive of several files, or a model that `torch.save` wrote.
    Zip,
    /// The log or message of a program that ran out of memory.
    OutOfMemoryMessage,
    /// A page of a web site.
    Html,
}

impl OtherFile {
    fn of(head: &[u8]) -> Option<Self> {
        const STARTS: [(&[u8], OtherFile); 5] = [
            (b"version https://git-lfs", OtherFile::LfsPointer),
            (b"\x28\xb5\x2f\xfd", OtherFile::Zstd),
            (b"\xfd7zXZ\0", OtherFile::Xz),
            (b"BZh", OtherFile::Bzip2),
            (b"PK\x03\x04", OtherFile::Zip),
        ];
        const MESSAGES: [&[u8]; 4] =
            [b"out of memory", b"RESOURCE_EXHAUSTED", b"ran out of memory", b"OutOfMemoryError"];
        let has = |words: &[u8]| head.windows(words.len()).any(|window| window == words);
        let known = STARTS.iter().find(|(start, _)| head.starts_with(start)).map(|&(_, file)| file);
        let is_page = || head.trim_ascii_start().first() == Some(&b'<');
        known
            .or_else(|| is_page().then_some(Self::Html))
            .or_else(|| MESSAGES.iter().any(|words| has(words)).then_some(Self::OutOfMemoryMessage))
    }
}

impl fmt::Display for OtherFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LfsPointer => "a pointer of Git LFS, not the file itself: git lfs pull fetches it",
            Self::Zstd => "compressed by zstd: zstd -d unpacks it",
            Self::Xz => "compressed by xz: xz -d unpacks it",
            Self::Bzip2 => "compressed by bzip2: bzip2 -d unpacks it",
            Self::Zip => "a zip archive: unzip it; a model of torch.save is no recording",
            Self::OutOfMemoryMessage => "a message or log, not a recording: orlop why-oom explains it",
            Self::Html => "a page of a web site, not the file itself",
        })
    }
}

impl History {
    /// Reads the file at a path, plain or gzip: a PyTorch memory snapshot (pickle or JSON), a trace of
    /// `torch.profiler`, a log of RMM, a file of [`binary`] or [`csv`], or a plain [`Trace`].
    /// [`History::parse`] does the same with any reader.
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
    /// The errors of [`History::parse`], with the file's path.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        read_file(path.as_ref(), Self::parse)
    }

    /// Reads bytes, plain or gzip, in the format that their beginning indicates.
    ///
    /// A gzip file may decompress to at most 16 MiB plus 256 times its own length.
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
    /// [`TraceError::Empty`]; [`TraceError::UnknownFormat`], or [`TraceError::NotARecording`] if the file can
    /// be made a recording; the errors of the format's reader;
    /// [`TraceError::Bomb`] if the file decompresses to more than is allowed.
    pub fn parse(reader: impl Read) -> Result<Self> {
        let read = |error| TraceError::read_line(1, error);
        let mut input = Input::new(reader).map_err(read)?;
        let head = peek(&mut input, HEAD).map_err(read)?;
        if head.is_empty() {
            return Err(TraceError::Empty);
        }
        let format = HistoryFormat::of(&head).ok_or_else(|| match OtherFile::of(&head) {
            Some(file) => TraceError::NotARecording { file },
            None => TraceError::UnknownFormat,
        })?;
        // JSON does not allow a byte order mark.
        let skipped = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let mut head = Cursor::new(head);
        head.set_position(skipped);
        let whole = head.chain(input);
        match format {
            HistoryFormat::Pickle => snapshot::read_pickle(whole),
            HistoryFormat::Json => snapshot::read_json(BufReader::with_capacity(128 << 10, whole)),
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
    fn empty_and_unknown_files_are_errors() {
        assert!(matches!(History::parse(&b""[..]), Err(TraceError::Empty)));
        assert!(matches!(History::parse(&b"abc"[..]), Err(TraceError::UnknownFormat)));
    }

    #[test]
    fn files_that_are_taken_for_recordings_are_named() {
        for (head, file) in [
            (&b"version https://git-lfs.github.com/spec/v1\noid"[..], OtherFile::LfsPointer),
            (b"\x28\xb5\x2f\xfd\x04", OtherFile::Zstd),
            (b"\xfd7zXZ\0\0", OtherFile::Xz),
            (b"BZh9", OtherFile::Bzip2),
            (b"PK\x03\x04\x14", OtherFile::Zip),
            (b"RuntimeError: CUDA out of memory. Tried", OtherFile::OutOfMemoryMessage),
            (b"\n<!DOCTYPE html>", OtherFile::Html),
        ] {
            let error = History::parse(head).unwrap_err();
            assert!(matches!(error, TraceError::NotARecording { file: found } if found == file), "{error}");
        }
    }

    #[test]
    fn formats_are_detected_by_their_first_bytes() {
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
            (b"]q\x00(", Some(HistoryFormat::Pickle)),
            (b"[{\"device\": 0", Some(HistoryFormat::Json)),
            (b"abc", None),
            (b"\x80", None),
            (b"", None),
        ] {
            assert_eq!(HistoryFormat::of(head), format, "{head:?}");
        }
    }
}
