//! Zip archives: their members, with a limit on the decompressed size of each and of all together.

use super::{ReadSeek, folder};
use crate::formats::{Format, OtherFile};
use crate::input::{ArchiveLimit, MemberLimit, UnpackedBytes, is_bomb};
use crate::{Result, TraceError};
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use zip::ZipArchive;
use zip::result::ZipError;

/// The number of bytes that identify an archive.
pub(super) const MAGIC: usize = 4;

/// The maximum length of an archive that is read from a pipe.
const MAX_BUFFERED: u64 = 1 << 30;

/// The maximum number of members.
const MAX_MEMBERS: usize = 1 << 16;

/// Returns `true` if a file that begins with these bytes is a zip archive, even an empty one.
pub(crate) fn is_zip(head: &[u8]) -> bool {
    head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")
}

pub(super) struct Archive {
    zip: ZipArchive<Box<dyn ReadSeek>>,
    /// The length in bytes.
    length: u64,
    limit: ArchiveLimit,
}

impl Archive {
    pub(super) fn open(file: File) -> Result<Self> {
        Self::new(Box::new(BufReader::new(file)))
    }

    /// Opens an archive after reading it into memory.
    pub(super) fn buffered(reader: impl Read) -> Result<Self> {
        let mut bytes = Vec::new();
        let read = reader.take(MAX_BUFFERED + 1).read_to_end(&mut bytes);
        read.map_err(TraceError::read(Format::Zip))?;
        if bytes.len() as u64 > MAX_BUFFERED {
            return Err(TraceError::ArchiveTooLong { limit: MAX_BUFFERED });
        }
        Self::new(Box::new(Cursor::new(bytes)))
    }

    fn new(mut reader: Box<dyn ReadSeek>) -> Result<Self> {
        let length = reader.seek(SeekFrom::End(0)).map_err(TraceError::read(Format::Zip))?;
        let zip = ZipArchive::new(reader).map_err(archive_error)?;
        if zip.len() > MAX_MEMBERS {
            return Err(TraceError::TooManyMembers { limit: MAX_MEMBERS });
        }
        Ok(Self { zip, length, limit: ArchiveLimit::new(length) })
    }

    /// Returns the indices and names of the files, in the order of their names.
    pub(super) fn members(&self) -> Result<Vec<(usize, String)>> {
        let named = |index| Some((index, self.zip.name_for_index(index)?.to_owned()));
        let mut members: Vec<_> = (0..self.zip.len()).filter_map(named).collect();
        // What `torch.save` writes.
        let has = |ending: &str| members.iter().any(|(_, name)| name.ends_with(ending));
        if has("/data.pkl") && has("/version") {
            return Err(TraceError::NotARecording { file: OtherFile::TorchModel });
        }
        members.retain(|(_, name)| !name.ends_with('/'));
        members.sort_by(|(_, one), (_, other)| folder::compare_names(one, other));
        Ok(members)
    }

    pub(super) fn read<T>(
        &mut self,
        index: usize,
        read: impl FnOnce(MemberReader<'_>) -> Result<T>,
    ) -> Result<T> {
        let file = self.zip.by_index(index).map_err(archive_error)?;
        // The archive can claim any size.
        let packed = file.compressed_size().min(self.length);
        let limit = self.limit.member(packed);
        read(MemberReader { reader: Box::new(file), bytes: UnpackedBytes::default(), limit })
    }
}

/// The decompressed bytes of a member.
pub(super) struct MemberReader<'a> {
    reader: Box<dyn Read + 'a>,
    bytes: UnpackedBytes,
    limit: MemberLimit,
}

impl MemberReader<'_> {
    /// Returns the limit for what the bytes decompress to, if they are compressed once more.
    pub(super) fn limit(&self) -> MemberLimit {
        self.limit.clone()
    }
}

impl Read for MemberReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes.add(read, self.limit.count(read)?)?;
        Ok(read)
    }
}

fn archive_error(error: ZipError) -> TraceError {
    match error {
        ZipError::CompressionMethodNotSupported(method) => TraceError::ArchiveMethod { method },
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) => TraceError::ArchiveEncrypted,
        ZipError::Io(error) if is_bomb(&error) => TraceError::Bomb { error },
        error => TraceError::Read { format: Format::Zip, error: error.into() },
    }
}
