//! The bytes of an input, decompressed if they are gzip, with a limit on the decompressed size. Every reader
//! reads through this module.

use flate2::read::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

/// The first bytes of every gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The decompressed size that is allowed for a file of any length.
const UNPACKED_BYTES: u64 = 16 << 20;

/// The decompressed bytes that are allowed in addition, for each compressed byte. Real snapshots expand 18
/// times, as JSON 50 times; gzip can reach 1032.
const UNPACKED_RATIO: u64 = 256;

/// A file that decompresses to more than [`UNPACKED_RATIO`] allows.
#[derive(Debug, thiserror::Error)]
#[error("it decompresses to more than {limit} bytes, the maximum for a recording of its length")]
struct Bomb {
    limit: u64,
}

/// Returns `true` if reading stopped at the limit for decompressed bytes.
pub(crate) fn is_bomb(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Bomb>())
}

/// Opens a reader, with decompression if the input is gzip.
pub(crate) fn open<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    Ok(Box::new(BufReader::new(Input::new(reader)?)))
}

/// Bytes that are read unchanged or decompressed.
pub(crate) enum Input<R: Read> {
    Plain(PeekedReader<R>),
    /// On the heap: the decoder's tables are large.
    Gzip(Box<Unpacked<PeekedReader<R>>>),
}

/// The bytes that were peeked at, then the rest.
type PeekedReader<R> = Chain<Cursor<Vec<u8>>, R>;

impl<R: Read> Input<R> {
    pub(crate) fn new(mut reader: R) -> io::Result<Self> {
        let head = peek(&mut reader, GZIP.len())?;
        let packed = head == GZIP;
        let whole = Cursor::new(head).chain(reader);
        Ok(if packed {
            let decoder = MultiGzDecoder::new(CountingReader { reader: whole, bytes: 0 });
            Self::Gzip(Box::new(Unpacked { decoder, bytes: 0 }))
        } else {
            Self::Plain(whole)
        })
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
        }
    }
}

/// Reads the first `bytes` bytes, or all if there are fewer.
pub(crate) fn peek(reader: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(bytes);
    reader.by_ref().take(bytes as u64).read_to_end(&mut head)?;
    Ok(head)
}

pub(crate) struct Unpacked<R> {
    decoder: MultiGzDecoder<CountingReader<R>>,
    bytes: u64,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        self.bytes = self.bytes.saturating_add(read as u64);
        let packed = self.decoder.get_ref().bytes;
        let limit = packed.saturating_mul(UNPACKED_RATIO).saturating_add(UNPACKED_BYTES);
        if self.bytes > limit { Err(io::Error::other(Bomb { limit })) } else { Ok(read) }
    }
}

struct CountingReader<R> {
    reader: R,
    bytes: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes = self.bytes.saturating_add(read as u64);
        Ok(read)
    }
}
