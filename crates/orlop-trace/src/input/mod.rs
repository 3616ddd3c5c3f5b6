//! The bytes of an input, decompressed if they are gzip, zstd or xz, with a limit on the decompressed size.
//! Every reader reads through this module.

mod member_limit;
mod read_ahead;
mod unpacked;
mod zstd;

pub(crate) use self::member_limit::{ArchiveLimit, MemberLimit};
pub(crate) use self::read_ahead::read_ahead;
use self::unpacked::{Compression, Unpacked};
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

/// The decompressed size that is allowed for a file of any length.
const UNPACKED_BYTES: u64 = 16 << 20;

/// The decompressed bytes that are allowed in addition, for each compressed byte. Real snapshots expand 18
/// times, as JSON 50 times; gzip can reach 1032, the others much more.
const UNPACKED_RATIO: u64 = 256;

/// A file that decompresses to more than [`UNPACKED_RATIO`] allows.
#[derive(Debug, thiserror::Error)]
enum Bomb {
    #[error("it decompresses to more than {limit} bytes, the maximum for a recording of its length")]
    Recording { limit: u64 },
    #[error("its members decompress to more than {limit} bytes, the maximum for an archive of its length")]
    Archive { limit: u64 },
}

/// Returns `true` if reading stopped at the limit for decompressed bytes.
pub(crate) fn is_bomb(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Bomb>())
}

/// The decompressed bytes that were read, and what is allowed for the compressed ones.
#[derive(Debug, Default)]
pub(crate) struct UnpackedBytes(u64);

impl UnpackedBytes {
    /// Counts `bytes` decompressed bytes. Returns an error if they exceed the limit for `packed` compressed
    /// bytes.
    pub(crate) fn add(&mut self, bytes: usize, packed: u64) -> io::Result<()> {
        self.0 = self.0.saturating_add(bytes as u64);
        let limit = unpacked_limit(packed);
        if self.0 > limit { Err(io::Error::other(Bomb::Recording { limit })) } else { Ok(()) }
    }
}

/// Returns the maximum of decompressed bytes for `packed` compressed ones.
const fn unpacked_limit(packed: u64) -> u64 {
    packed.saturating_mul(UNPACKED_RATIO).saturating_add(UNPACKED_BYTES)
}

/// Opens a reader, with decompression if the input is gzip, zstd or xz. Reading fails when it decompresses to
/// more than files of its length do.
///
/// # Errors
/// If the first bytes cannot be read.
pub fn open<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    Ok(Box::new(BufReader::new(Input::new(reader)?)))
}

/// Bytes that are read unchanged or decompressed.
pub(crate) enum Input<R: Read> {
    Plain(PeekedReader<R>),
    /// On the heap: the decoders' tables are large.
    Packed(Box<Unpacked<PeekedReader<R>>>),
}

/// The bytes that were peeked at, then the rest.
type PeekedReader<R> = Chain<Cursor<Vec<u8>>, R>;

impl<R: Read> Input<R> {
    pub(crate) fn new(reader: R) -> io::Result<Self> {
        Self::open(reader, None)
    }

    /// Opens decompressed bytes of a member of an archive. Its limit holds for both compressions together.
    pub(crate) fn of_member(reader: R, limit: MemberLimit) -> io::Result<Self> {
        Self::open(reader, Some(limit))
    }

    fn open(mut reader: R, member: Option<MemberLimit>) -> io::Result<Self> {
        let head = peek(&mut reader, Compression::HEAD)?;
        let compression = Compression::of(&head);
        let whole = Cursor::new(head).chain(reader);
        Ok(match compression {
            Some(compression) => Self::Packed(Box::new(Unpacked::new(whole, compression, member))),
            None => Self::Plain(whole),
        })
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            Self::Packed(reader) => reader.read(buffer),
        }
    }
}

/// Reads the first `bytes` bytes, or all if there are fewer.
pub(crate) fn peek(reader: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(bytes);
    reader.by_ref().take(bytes as u64).read_to_end(&mut head)?;
    Ok(head)
}
