//! The bytes of a pickle, a buffer at a time. A declared length is believed as far as bytes follow.

use crate::formats::snapshot::SnapshotError;
use std::io::{ErrorKind, Read};

const BUFFER: usize = 128 << 10;

/// Numbers in text form are shorter than this.
const MAX_LINE: usize = 4096;

pub(super) struct PickleSource<R> {
    reader: R,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    /// Bytes that were in the buffer before.
    passed: u64,
}

impl<R: Read> PickleSource<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; BUFFER], at: 0, filled: 0, passed: 0 }
    }

    /// Bytes that were read.
    pub(super) fn offset(&self) -> u64 {
        self.passed + self.at as u64
    }

    #[cold]
    fn fill(&mut self) -> Result<(), SnapshotError> {
        self.passed += self.filled as u64;
        (self.at, self.filled) = (0, 0);
        loop {
            match self.reader.read(&mut self.buffer) {
                Ok(0) => return Err(SnapshotError::Truncated { offset: self.passed }),
                Ok(read) => {
                    self.filled = read.min(BUFFER);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(SnapshotError::Read(error)),
            }
        }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, SnapshotError> {
        if self.at == self.filled {
            self.fill()?;
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut array = [0; N];
        if let Some(bytes) = self.buffer[self.at..self.filled].first_chunk::<N>() {
            self.at += N;
            return Ok(*bytes);
        }
        for byte in &mut array {
            *byte = self.byte()?;
        }
        Ok(array)
    }

    /// Hands over the next `length` bytes, piece by piece.
    pub(super) fn pieces(
        &mut self,
        length: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let mut left = length;
        while left > 0 {
            if self.at == self.filled {
                self.fill()?;
            }
            let here = &self.buffer[self.at..self.filled];
            let piece = usize::try_from(left).map_or(here, |left| &here[..left.min(here.len())]);
            take(piece)?;
            self.at += piece.len();
            left -= piece.len() as u64;
        }
        Ok(())
    }

    /// The text up to the end of the line, which is passed.
    pub(super) fn line(&mut self, line: &mut Vec<u8>) -> Result<(), SnapshotError> {
        line.clear();
        loop {
            match self.byte()? {
                b'\n' => return Ok(()),
                _ if line.len() == MAX_LINE => return Err(SnapshotError::Literal { offset: self.offset() }),
                byte => line.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_the_buffer_is_put_together() {
        let bytes: Vec<u8> = (0..BUFFER + 10).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut source = PickleSource::new(&bytes[..]);
        let mut all = Vec::new();
        source
            .pieces(BUFFER as u64 - 2, |piece| {
                all.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
        let over: [u8; 4] = source.array().unwrap();
        assert_eq!((&all[..], &over[..]), (&bytes[..BUFFER - 2], &bytes[BUFFER - 2..BUFFER + 2]));
        assert_eq!(source.offset(), BUFFER as u64 + 2);
        let ended = source.pieces(u64::MAX, |_| Ok(())).unwrap_err();
        assert!(matches!(ended, SnapshotError::Truncated { offset } if offset == bytes.len() as u64));
    }
}
