//! A decoder of any supported compression, with a limit on the decompressed size.

use super::zstd::ZstdReader;
use super::{MemberLimit, UnpackedBytes};
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use std::io::{self, Read};

/// The memory of an xz decoder in KiB: twice the dictionary of `xz -9`. Headers can ask for 4 GiB.
const XZ_MEMORY: u32 = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
    Xz,
}

impl Compression {
    /// The number of bytes that identify a compression.
    pub(super) const HEAD: usize = 6;

    pub(super) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // A skippable frame: pzstd and seekable files begin with one.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            _ => None,
        }
    }
}

pub(crate) struct Unpacked<R: Read> {
    decoder: Decoder<CountingReader<R>>,
    bytes: UnpackedBytes,
    /// The limit, if it does not follow from the bytes that the decoder has read.
    member: Option<MemberLimit>,
    /// Whether there was an error: a decoder's state is undefined after it.
    failed: bool,
}

enum Decoder<R: Read> {
    Gzip(Box<MultiGzDecoder<R>>),
    Zstd(Box<ZstdReader<R>>),
    Xz(Box<XzReader<R>>),
}

impl<R: Read> Unpacked<R> {
    pub(super) fn new(reader: R, compression: Compression, member: Option<MemberLimit>) -> Self {
        let reader = CountingReader { reader, bytes: 0 };
        let decoder = match compression {
            Compression::Gzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(reader))),
            Compression::Zstd => Decoder::Zstd(Box::new(ZstdReader::new(reader))),
            Compression::Xz => Decoder::Xz(Box::new(XzReader::new_mem_limit(reader, true, XZ_MEMORY))),
        };
        Self { decoder, bytes: UnpackedBytes::default(), member, failed: false }
    }
}

impl<R: Read> Decoder<R> {
    fn source(&self) -> &R {
        match self {
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => decoder.source(),
            Self::Xz(decoder) => decoder.inner(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
            Self::Xz(decoder) => decoder.read(buffer),
        }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::Error::other("an earlier part could not be decompressed"));
        }
        let read = self.decoder.read(buffer).and_then(|read| {
            let packed = match &self.member {
                Some(member) => member.count(read)?,
                None => self.decoder.source().bytes,
            };
            self.bytes.add(read, packed)?;
            Ok(read)
        });
        self.failed = read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        read
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
