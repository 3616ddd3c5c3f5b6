//! The elements: from a file into a storage, and back.

use super::NpyError;
use super::descr::Descr;
use crate::error::Result;
use crate::{Storage, TensorOptions};
use orlop_core::{DType, Device, MemoryKind};
use std::io::{self, Read, Write};

/// How reliable the number of bytes to read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteCountTrust {
    /// A file or a slice has this number of bytes.
    Verified,
    /// A header states this number.
    Stated,
}

/// The first allocation for bytes that may never arrive. After that, the buffer doubles as they arrive.
const FIRST_STEP: usize = 1 << 20;

/// Reads `bytes` bytes directly into a new storage on the CPU.
pub(super) fn read<R: Read + ?Sized>(
    reader: &mut R,
    bytes: usize,
    arrival: ByteCountTrust,
    kind: MemoryKind,
) -> Result<Storage> {
    let mut room = match arrival {
        ByteCountTrust::Verified => bytes,
        ByteCountTrust::Stated => bytes.min(FIRST_STEP),
    };
    let storage = Storage::new(room, &TensorOptions::new().device(Device::CPU).kind(kind))?;
    let mut filled = 0;
    loop {
        filled += fill(reader, storage.write()?.get_mut(filled..).unwrap_or_default())?;
        if filled < room {
            return Err(NpyError::Truncated { expected: count(bytes), actual: count(filled) }.into());
        }
        if room == bytes {
            return Ok(storage);
        }
        room = room.saturating_mul(2).min(bytes);
        storage.resize(room)?;
    }
}

/// Reads until the buffer is full or the source ends. Returns the number of bytes.
fn fill<R: Read + ?Sized>(reader: &mut R, mut room: &mut [u8]) -> Result<usize, NpyError> {
    let mut filled = 0;
    while !room.is_empty() {
        match reader.read(room) {
            Ok(0) => break,
            Ok(read) => {
                filled += read;
                room = room.get_mut(read..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

/// Returns `true` if the source has ended.
pub(super) fn is_at_end<R: Read + ?Sized>(reader: &mut R) -> Result<bool, NpyError> {
    Ok(fill(reader, &mut [0])? == 0)
}

/// Normalises elements of a file: this machine's byte order, and bools that are 0 or 1.
pub(super) fn settle(storage: &Storage, descr: Descr) -> Result<()> {
    if descr.swapped {
        let mut bytes = storage.write()?;
        match descr.unit() {
            2 => swap::<2>(&mut bytes),
            4 => swap::<4>(&mut bytes),
            8 => swap::<8>(&mut bytes),
            _ => {}
        }
    }
    if descr.dtype == DType::Bool {
        storage.write()?.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    Ok(())
}

fn swap<const UNIT: usize>(bytes: &mut [u8]) {
    let (units, _) = bytes.as_chunks_mut::<UNIT>();
    units.iter_mut().for_each(|unit| unit.reverse());
}

/// Writes elements unchanged, except bools as 0 or 1: NumPy accepts no other byte.
pub(super) fn write<W: Write + ?Sized>(writer: &mut W, bytes: &[u8], dtype: DType) -> Result<(), NpyError> {
    if dtype != DType::Bool || bytes.iter().all(|&byte| byte <= 1) {
        return Ok(writer.write_all(bytes)?);
    }
    let mut settled = [0; 4096];
    for piece in bytes.chunks(settled.len()) {
        for (to, from) in settled.iter_mut().zip(piece) {
            *to = u8::from(*from != 0);
        }
        writer.write_all(settled.get(..piece.len()).unwrap_or_default())?;
    }
    Ok(())
}

pub(super) fn count(bytes: usize) -> u64 {
    // No machine has a wider `usize`.
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn what_never_comes_is_not_allocated() {
        let claimed = read(&mut &[1u8; 100][..], usize::MAX / 4, ByteCountTrust::Stated, MemoryKind::Default);
        let Err(Error::Npy(NpyError::Truncated { actual: 100, .. })) = claimed else { panic!() };
    }

    #[test]
    fn growing_keeps_what_came() {
        let bytes: Vec<u8> = (0..5 * FIRST_STEP / 2).map(|index| index.to_le_bytes()[0]).collect();
        for arrival in [ByteCountTrust::Stated, ByteCountTrust::Verified] {
            let storage = read(&mut &bytes[..], bytes.len(), arrival, MemoryKind::Persistent).unwrap();
            assert_eq!((storage.nbytes(), storage.memory_kind()), (bytes.len(), MemoryKind::Persistent));
            assert!(*storage.read().unwrap() == bytes[..]);
        }
    }

    #[test]
    fn bools_are_written_as_numpy_has_them() {
        let mut written = Vec::new();
        let bytes: Vec<u8> = (0..5000).map(|index: usize| index.to_le_bytes()[0]).collect();
        write(&mut written, &bytes, DType::Bool).unwrap();
        assert!(written.iter().zip(&bytes).all(|(&to, &from)| to == u8::from(from != 0)));
        assert_eq!(written.len(), bytes.len());
    }
}
