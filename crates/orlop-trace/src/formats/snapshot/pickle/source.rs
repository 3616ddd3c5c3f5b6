//! The bytes of a pickle, buffered. Length fields are trusted only as far as bytes follow.

use crate::formats::Format;
use crate::{Result, TraceError};
use std::io::{ErrorKind, Read};

const BUFFER: usize = 128 << 10;

/// The maximum length of a number in text form.
const MAX_LINE: usize = 4096;

pub(super) struct PickleSource<R> {
    reader: R,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    /// The bytes that were in the buffer before.
    passed: u64,
}

impl<R: Read> PickleSource<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; BUFFER], at: 0, filled: 0, passed: 0 }
    }

    /// Returns the number of bytes read.
    pub(super) fn offset(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// Returns the bytes in the buffer that were not read yet.
    #[inline]
    pub(super) fn buffered(&self) -> &[u8] {
        self.buffer.get(self.at..self.filled).unwrap_or_default()
    }

    /// Skips `bytes` of the [buffered](Self::buffered) bytes.
    #[inline]
    pub(super) fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.filled);
    }

    #[cold]
    fn fill(&mut self) -> Result<()> {
        self.passed += self.filled as u64;
        (self.at, self.filled) = (0, 0);
        loop {
            match self.reader.read(&mut self.buffer) {
                Ok(0) => return Err(TraceError::CutOff { at: self.passed }),
                Ok(read) => {
                    self.filled = read.min(BUFFER);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(TraceError::read(Format::Snapshot)(error)),
            }
        }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8> {
        if self.at == self.filled {
            self.fill()?;
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
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

    /// Passes the next `length` bytes to `take`, in parts.
    pub(super) fn read_parts(
        &mut self,
        length: u64,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut left = length;
        while left > 0 {
            if self.at == self.filled {
                self.fill()?;
            }
            let here = &self.buffer[self.at..self.filled];
            let part = usize::try_from(left).map_or(here, |left| &here[..left.min(here.len())]);
            take(part)?;
            self.at += part.len();
            left -= part.len() as u64;
        }
        Ok(())
    }

    /// Reads the text up to the end of the line, and skips that.
    pub(super) fn line(&mut self, line: &mut Vec<u8>) -> Result<()> {
        line.clear();
        loop {
            match self.byte()? {
                b'\n' => return Ok(()),
                _ if line.len() == MAX_LINE => return Err(TraceError::Literal { offset: self.offset() }),
                byte => line.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_across_the_buffer_boundary_are_joined() {
        let bytes: Vec<u8> = (0..BUFFER + 10).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let mut source = PickleSource::new(&bytes[..]);
        let mut all = Vec::new();
        source
            .read_parts(BUFFER as u64 - 2, |part| {
                all.extend_from_slice(part);
                Ok(())
            })
            .unwrap();
        let over: [u8; 4] = source.array().unwrap();
        assert_eq!((&all[..], &over[..]), (&bytes[..BUFFER - 2], &bytes[BUFFER - 2..BUFFER + 2]));
        assert_eq!(source.offset(), BUFFER as u64 + 2);
        let ended = source.read_parts(u64::MAX, |_| Ok(())).unwrap_err();
        assert!(matches!(ended, TraceError::CutOff { at } if at == bytes.len() as u64));
    }
}
