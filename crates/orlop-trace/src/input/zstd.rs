//! A reader of zstd files: any number of frames, each checked against its checksum.

use super::peek;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, Cursor, Read};

/// The bytes of a frame's magic number.
const MAGIC: usize = 4;

pub(super) struct ZstdReader<R> {
    source: R,
    /// Windows of more than 128 MiB are refused.
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: Read> ZstdReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), is_in_frame: false }
    }

    pub(super) fn source(&self) -> &R {
        &self.source
    }

    /// Reads the header of the next frame. Returns `false` at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            let magic = peek(&mut self.source, MAGIC)?;
            match magic[..] {
                [] => return Ok(false),
                [0x50..=0x5f, 0x2a, 0x4d, 0x18] => self.skip_frame()?,
                _ => {
                    let header = Cursor::new(magic).chain(&mut self.source);
                    self.decoder.init(header).map_err(invalid)?;
                    return Ok(true);
                }
            }
        }
    }

    fn skip_frame(&mut self) -> io::Result<()> {
        let mut length = [0; 4];
        self.source.read_exact(&mut length)?;
        let length = u64::from(u32::from_le_bytes(length));
        let skipped = io::copy(&mut self.source.by_ref().take(length), &mut io::sink())?;
        if skipped < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn check_sum(&self) -> io::Result<()> {
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(stored), Some(found)) if stored != found => Err(invalid("the checksum does not match")),
            _ => Ok(()),
        }
    }
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            while self.is_in_frame && self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let block = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, block).map_err(invalid)?;
            }
            if self.is_in_frame {
                let read = self.decoder.read(buffer)?;
                if read > 0 {
                    return Ok(read);
                }
                self.check_sum()?;
            }
            self.is_in_frame = self.next_frame()?;
            if !self.is_in_frame {
                return Ok(0);
            }
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
