//! The recordings of a path: a file, the members of a zip archive, or the files of a folder.

mod archive;
mod folder;

use self::archive::Archive;
pub(crate) use self::archive::is_zip;
use crate::files::read_file;
use crate::formats::probe;
use crate::history::History;
use crate::input::{peek, read_ahead};
use crate::{Result, TraceError};
use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File};
use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};

/// An iterator over the recordings of a path. One is read at a time, when it is requested.
///
/// A path names a file, a zip archive, a folder, or a member of an archive (`runs.zip/rank0.pickle`). Folders
/// are searched to a depth of 8; hidden files and archives in them are left out. Recordings come in the order
/// of their names, in which `rank2` precedes `rank10`.
///
/// ```
/// use orlop_trace::Recordings;
///
/// let mut recordings = Recordings::open("../../testdata/torch-snapshots")?;
/// assert_eq!(recordings.len(), 5);
/// let first = recordings.next().expect("there are five");
/// assert!(first.path.ends_with("gpt-medium_128_training.pickle.gz"));
/// assert_eq!(first.history?.devices.len(), 1);
/// // The README there.
/// assert_eq!(recordings.skipped().len(), 1);
/// # Ok::<(), orlop_trace::TraceError>(())
/// ```
pub struct Recordings {
    files: VecDeque<RecordingFile>,
    archive: Option<Archive>,
    skipped: Vec<TraceError>,
}

/// A recording of [`Recordings`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Recording {
    /// Its file. For a member of an archive: the archive's path, followed by the member's name.
    pub path: PathBuf,
    /// The recording. Errors have the path.
    pub history: Result<History>,
}

struct RecordingFile {
    path: PathBuf,
    place: RecordingPlace,
}

enum RecordingPlace {
    File,
    Stream(Box<dyn Read>),
    /// The index of a member of the archive.
    Member(usize),
}

impl Recordings {
    /// Finds the recordings of a path. The first bytes of each file are read to detect its format.
    ///
    /// # Errors
    ///
    /// [`TraceError::Open`]; [`TraceError::NoRecordings`] if a folder or an archive has none. Errors of a
    /// single file come when it is read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let Ok(data) = fs::metadata(path) else {
            return match Self::member(path) {
                Some(member) => member,
                // The error of opening it.
                None => read_file(path, |_| Ok(())).map(|()| Self::of_file(path)),
            };
        };
        if data.is_dir() {
            return Self::of_folder(path);
        }
        if !data.is_file() {
            // What is read from a pipe to detect an archive must not be lost.
            return read_file(path, |file| Self::from_reader(path, file));
        }
        let mut archive = None;
        read_file(path, |mut file| {
            let read = TraceError::read(crate::formats::Format::Zip);
            if is_zip(&peek(&mut file, archive::MAGIC).map_err(&read)?) {
                file.rewind().map_err(&read)?;
                archive = Some(Archive::open(file)?);
            }
            Ok(())
        })?;
        match archive {
            Some(archive) => Self::of_archive(path, archive).map_err(|error| error.in_file(path)),
            None => Ok(Self::of_file(path)),
        }
    }

    /// Finds the recordings in bytes of any source, such as the standard input. An archive is read into
    /// memory. `name` takes the place of the path in errors.
    ///
    /// # Errors
    ///
    /// [`TraceError::Read`], and [`TraceError::NoRecordings`] for an archive without recordings.
    pub fn from_reader(name: impl AsRef<Path>, mut reader: impl Read + 'static) -> Result<Self> {
        let name = name.as_ref();
        let head = peek(&mut reader, archive::MAGIC).map_err(|error| TraceError::read_line(1, error))?;
        let is_archive = is_zip(&head);
        let whole = Cursor::new(head).chain(reader);
        if is_archive {
            return Self::of_archive(name, Archive::buffered(whole)?);
        }
        let place = RecordingPlace::Stream(Box::new(whole));
        Ok(Self::new([RecordingFile { path: name.to_owned(), place }]))
    }

    fn new(files: impl IntoIterator<Item = RecordingFile>) -> Self {
        Self { files: files.into_iter().collect(), archive: None, skipped: Vec::new() }
    }

    fn of_file(path: &Path) -> Self {
        Self::new([RecordingFile { path: path.to_owned(), place: RecordingPlace::File }])
    }

    fn of_folder(path: &Path) -> Result<Self> {
        let mut all = Self::new([]);
        for file in folder::files(path)? {
            match read_file(&file, probe) {
                Ok(()) => all.files.push_back(RecordingFile { path: file, place: RecordingPlace::File }),
                Err(error) => all.skipped.push(error),
            }
        }
        all.require_any().map_err(|error| error.in_file(path))
    }

    fn of_archive(path: &Path, mut archive: Archive) -> Result<Self> {
        let mut all = Self::new([]);
        for (index, name) in archive.members()? {
            let path = path.join(name);
            match archive.read(index, |reader| probe(reader)) {
                Ok(()) => {
                    all.files.push_back(RecordingFile { path, place: RecordingPlace::Member(index) });
                }
                Err(error) => all.skipped.push(error.in_file(&path)),
            }
        }
        all.archive = Some(archive);
        all.require_any()
    }

    /// Finds a member of an archive; `None` if no part of the path is an archive.
    fn member(path: &Path) -> Option<Result<Self>> {
        let file = path.ancestors().skip(1).find(|ancestor| ancestor.is_file())?;
        let all = Self::open(file);
        let found = all.map(|mut all| {
            all.files.retain(|file| file.path == path);
            all.skipped.clear();
            (!all.files.is_empty()).then_some(all)
        });
        found.transpose()
    }

    fn require_any(mut self) -> Result<Self> {
        if self.files.is_empty() {
            let files = self.skipped.len();
            let first = (files > 0).then(|| Box::new(self.skipped.swap_remove(0)));
            return Err(TraceError::NoRecordings { files, first });
        }
        Ok(self)
    }

    /// Returns the files that are no recordings, as the errors of reading them. More can be found while
    /// iterating.
    #[must_use]
    pub fn skipped(&self) -> &[TraceError] {
        &self.skipped
    }

    /// Returns the paths of the recordings that are still to be read.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Reads the only recording.
    ///
    /// # Errors
    ///
    /// [`TraceError::SeveralRecordings`]; the errors of [`History::parse`].
    pub fn only(mut self) -> Result<Recording> {
        if let [first, _, ..] = self.files.make_contiguous() {
            return Err(TraceError::SeveralRecordings { first: first.path.clone(), count: self.files.len() });
        }
        let none = TraceError::NoRecordings { files: 0, first: None };
        self.next().ok_or(none)
    }

    fn read(&mut self, file: RecordingFile) -> Recording {
        let RecordingFile { path, place } = file;
        let history = match place {
            RecordingPlace::File => {
                read_file(&path, |file| read_ahead(&file, |reader| History::parse(reader)))
            }
            RecordingPlace::Stream(reader) => History::parse(reader).map_err(|error| error.in_file(&path)),
            RecordingPlace::Member(index) => match &mut self.archive {
                Some(archive) => archive
                    .read(index, |reader| History::parse_member(reader.limit(), reader))
                    .map_err(|error| error.in_file(&path)),
                None => Err(TraceError::NoRecordings { files: 0, first: None }),
            },
        };
        Recording { path, history }
    }
}

impl Iterator for Recordings {
    type Item = Recording;

    fn next(&mut self) -> Option<Recording> {
        let file = self.files.pop_front()?;
        Some(self.read(file))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.files.len(), Some(self.files.len()))
    }
}

impl ExactSizeIterator for Recordings {}

impl fmt::Debug for Recordings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<&Path> = self.paths().collect();
        f.debug_struct("Recordings").field("files", &files).finish_non_exhaustive()
    }
}

/// Reads the only recording of an archive in memory.
pub(crate) fn read_archive(reader: impl Read) -> Result<History> {
    Recordings::of_archive(Path::new(""), Archive::buffered(reader)?)?.only()?.history
}

/// Reads the only recording of a path.
pub(crate) fn read_path(path: &Path) -> Result<History> {
    Recordings::open(path)?.only().map_err(|error| error.in_file(path))?.history
}

/// What an archive is read from.
trait ReadSeek: Read + Seek {}
impl ReadSeek for Cursor<Vec<u8>> {}
impl ReadSeek for std::io::BufReader<File> {}
