//! Format detection: the format of a file, recognized by its first bytes.
//!
//! To add a format: add a variant to [`HistoryFormat`], its first bytes to [`HistoryFormat::of`], and its
//! reader to [`History::parse`].

use super::text::Trace;
use super::{binary, chrome, csv, pprof, rmm, snapshot};
use crate::history::History;
use crate::input::{Input, MemberLimit, peek};
use crate::recordings::{self, is_zip};
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
    /// A profile: [`pprof`].
    Pprof,
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
                _ if has_operations(text) => Some(Self::Lines),
                _ => pprof::sniff(head).then_some(Self::Pprof),
            },
        }
    }

    fn detect(head: &[u8]) -> Result<Self> {
        if head.is_empty() {
            return Err(TraceError::Empty);
        }
        Self::of(head).ok_or_else(|| match OtherFile::of(head) {
            Some(file) => TraceError::NotARecording { file },
            None => TraceError::UnknownFormat,
        })
    }
}

/// Returns `true` if the first line that is neither blank nor a comment is an operation of a [`Trace`], or if
/// the beginning has only comments.
fn has_operations(head: &[u8]) -> bool {
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
    match first {
        Some(line) => matches!(line, [b'a' | b'f', b',', ..]),
        None => head.contains(&b'#'),
    }
}

/// Returns an error if the first bytes are not those of a recording. Of JSON, it requires a key of snapshots:
/// folders have other files of JSON.
pub(crate) fn probe(reader: impl Read) -> Result<()> {
    const KEYS: [&str; 5] =
        ["\"segments\"", "\"device_traces\"", "\"allocator_settings\"", "\"total_size\"", "\"blocks\""];
    let read = |error| TraceError::read_line(1, error);
    let mut input = Input::new(reader).map_err(read)?;
    let head = peek(&mut input, HEAD).map_err(read)?;
    let is_other = match HistoryFormat::detect(&head)? {
        HistoryFormat::Json => !KEYS.iter().any(|key| String::from_utf8_lossy(&head).contains(key)),
        _ => false,
    };
    if is_other { Err(TraceError::UnknownFormat) } else { Ok(()) }
}

/// A file that people take for a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherFile {
    /// A pointer of Git LFS, which stands for the file.
    LfsPointer,
    /// A file that is compressed twice.
    CompressedTwice,
    /// A file compressed by bzip2.
    Bzip2,
    /// A file compressed by lz4.
    Lz4,
    /// A file compressed by `compress`.
    Compress,
    /// A file compressed in Snappy's framing format.
    Snappy,
    /// An archive of 7-Zip.
    SevenZip,
    /// An archive of tar.
    Tar,
    /// A zip archive in another archive, in a folder, or compressed.
    Zip,
    /// A model that `torch.save` wrote.
    TorchModel,
    /// The log or message of a program that ran out of memory.
    OutOfMemoryMessage,
    /// A page of a web site.
    Html,
}

impl OtherFile {
    fn of(head: &[u8]) -> Option<Self> {
        const STARTS: [(&[u8], OtherFile); 10] = [
            (b"version https://git-lfs", OtherFile::LfsPointer),
            (b"\x1f\x8b", OtherFile::CompressedTwice),
            (b"\x28\xb5\x2f\xfd", OtherFile::CompressedTwice),
            (b"\xfd7zXZ\0", OtherFile::CompressedTwice),
            (b"BZh", OtherFile::Bzip2),
            (b"\x04\x22\x4d\x18", OtherFile::Lz4),
            (b"\x1f\x9d", OtherFile::Compress),
            (b"\xff\x06\0\0sNaPpY", OtherFile::Snappy),
            (b"7z\xbc\xaf\x27\x1c", OtherFile::SevenZip),
            (b"PK\x03\x04", OtherFile::Zip),
        ];
        /// The place of tar's magic number.
        const TAR: usize = 257;
        const MESSAGES: [&[u8]; 4] =
            [b"out of memory", b"RESOURCE_EXHAUSTED", b"ran out of memory", b"OutOfMemoryError"];
        let has = |words: &[u8]| head.windows(words.len()).any(|window| window == words);
        let known = STARTS.iter().find(|(start, _)| head.starts_with(start)).map(|&(_, file)| file);
        let is_tar = || head.get(TAR..).is_some_and(|rest| rest.starts_with(b"ustar"));
        let is_page = || head.trim_ascii_start().first() == Some(&b'<');
        known
            .or_else(|| is_tar().then_some(Self::Tar))
            .or_else(|| is_page().then_some(Self::Html))
            .or_else(|| MESSAGES.iter().any(|words| has(words)).then_some(Self::OutOfMemoryMessage))
    }
}

impl fmt::Display for OtherFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LfsPointer => "a pointer of Git LFS, not the file itself: git lfs pull fetches it",
            Self::CompressedTwice => "compressed twice: decompress it once",
            Self::Bzip2 => "compressed by bzip2: bzip2 -d unpacks it",
            Self::Lz4 => "compressed by lz4: lz4 -d unpacks it",
            Self::Compress => "compressed by compress: uncompress unpacks it",
            Self::Snappy => "compressed in Snappy's framing format: snzip -d unpacks it",
            Self::SevenZip => "an archive of 7-Zip: 7z x unpacks it",
            Self::Tar => "an archive of tar: tar -xf unpacks it, and the folder can be read",
            Self::Zip => "a zip archive inside of something else: read the archive itself",
            Self::TorchModel => {
                "a model that torch.save wrote, not a recording: torch.cuda.memory._dump_snapshot writes one"
            }
            Self::OutOfMemoryMessage => "a message or log, not a recording: orlop why-oom explains it",
            Self::Html => "a page of a web site, not the file itself",
        })
    }
}

impl History {
    /// Reads the recording at a path: a PyTorch memory snapshot (pickle or JSON), a trace of
    /// `torch.profiler`, a log of RMM, a file of [`binary`] or [`csv`], a plain [`Trace`], or a profile of
    /// [`pprof`]. The file may be
    /// compressed by gzip, zstd or xz. A zip archive or a folder must have one recording;
    /// [`Recordings`](crate::Recordings) reads several.
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
        recordings::read_path(path.as_ref())
    }

    /// Reads bytes in the format that their beginning indicates, with the same compressions and formats as
    /// [`History::read`].
    ///
    /// A compressed file may decompress to at most 16 MiB plus 256 times its own length, and so may a member
    /// of an archive, also if it was compressed before it was archived. All members of an archive together
    /// have this limit for the archive's length.
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
    /// [`TraceError::Bomb`] if the file decompresses to more than is allowed;
    /// [`TraceError::SeveralRecordings`] and [`TraceError::NoRecordings`] for archives.
    pub fn parse(mut reader: impl Read) -> Result<Self> {
        let head = peek(&mut reader, HEAD).map_err(|error| TraceError::read_line(1, error))?;
        let is_archive = is_zip(&head);
        let whole = Cursor::new(head).chain(reader);
        if is_archive { recordings::read_archive(whole) } else { Self::parse_single(whole) }
    }

    /// Reads a member of an archive.
    pub(crate) fn parse_member(limit: MemberLimit, reader: impl Read) -> Result<Self> {
        let read = |error| TraceError::read_line(1, error);
        Self::parse_input(Input::of_member(reader, limit).map_err(read)?)
    }

    /// Reads bytes that are not a zip archive.
    fn parse_single(reader: impl Read) -> Result<Self> {
        let read = |error| TraceError::read_line(1, error);
        Self::parse_input(Input::new(reader).map_err(read)?)
    }

    fn parse_input(mut input: Input<impl Read>) -> Result<Self> {
        let read = |error| TraceError::read_line(1, error);
        let head = peek(&mut input, HEAD).map_err(read)?;
        let format = HistoryFormat::detect(&head)?;
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
            HistoryFormat::Pprof => pprof::read_pprof(whole),
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
            (b"BZh9", OtherFile::Bzip2),
            (b"\x04\x22\x4d\x18\x60", OtherFile::Lz4),
            (b"\x1f\x9d\x90", OtherFile::Compress),
            (b"\xff\x06\0\0sNaPpY\0", OtherFile::Snappy),
            (b"7z\xbc\xaf\x27\x1c\0\x04", OtherFile::SevenZip),
            (&[&[b'x'; 257][..], b"ustar\0"].concat(), OtherFile::Tar),
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
            (b"\n\x04\x08\x01\x10\x02\x12", Some(HistoryFormat::Pprof)),
            (b"# a page\n\nText\n", None),
            (b"abc", None),
            (b"\x80", None),
            (b"", None),
        ] {
            assert_eq!(HistoryFormat::of(head), format, "{head:?}");
        }
    }
}
