//! Reading and writing the bytes of storages on any device.
//!
//! Memory that the CPU can access is read and written in place. Device memory goes through the host, a piece
//! at a time.

use super::ArchiveError;
use crate::error::{Error, Result};
use crate::{Storage, Tensor, TensorOptions};
use orlop_core::{DType, Device, Layout, Shape, Strides};
use std::io::{Read, Write};
use std::ops::Range;

/// The size of the host buffer.
const PIECE: usize = 8 << 20;

/// Writes these bytes of a storage, and adds them to the checksum.
pub(super) fn write<W: Write + ?Sized>(
    writer: &mut W,
    storage: &Storage,
    range: Range<usize>,
    crc: &mut crc32fast::Hasher,
) -> Result<()> {
    let mut send = |bytes: &[u8]| {
        crc.update(bytes);
        writer.write_all(bytes).map_err(ArchiveError::from)
    };
    match storage.read() {
        Ok(bytes) => send(bytes.get(range).unwrap_or_default())?,
        Err(error) if is_far(&error) => {
            let host =
                Tensor::empty([PIECE.min(range.len())], TensorOptions::from(DType::U8).device(Device::CPU))?;
            for piece in pieces(range) {
                let here = host.narrow(0, 0, piece.len())?;
                here.copy_(&bytes_of(storage, &piece)?)?;
                send(&here.as_slice::<u8>()?)?;
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Reads all bytes of a storage, and adds them to the checksum.
pub(super) fn read<R: Read + ?Sized>(
    reader: &mut R,
    storage: &Storage,
    crc: &mut crc32fast::Hasher,
) -> Result<()> {
    let mut receive = |bytes: &mut [u8]| {
        reader.read_exact(bytes).map_err(ArchiveError::from)?;
        crc.update(bytes);
        Ok::<(), ArchiveError>(())
    };
    match storage.write() {
        Ok(mut bytes) => receive(&mut bytes)?,
        Err(error) if is_far(&error) => {
            let range = 0..storage.nbytes();
            let host =
                Tensor::empty([PIECE.min(range.len())], TensorOptions::from(DType::U8).device(Device::CPU))?;
            for piece in pieces(range) {
                let here = host.narrow(0, 0, piece.len())?;
                receive(&mut here.as_mut_slice::<u8>()?)?;
                bytes_of(storage, &piece)?.copy_(&here)?;
            }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn is_far(error: &Error) -> bool {
    matches!(error, Error::Alloc(orlop_alloc::Error::NotHostAccessible { .. }))
}

fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(PIECE).map(move |start| start..start.saturating_add(PIECE).min(end))
}

/// Returns bytes of a storage as a tensor, which devices can copy.
fn bytes_of(storage: &Storage, range: &Range<usize>) -> Result<Tensor> {
    let layout = Layout::new(Shape::new(&[range.len()])?, Strides::new(&[1usize])?, range.start)?;
    Tensor::from_storage(storage.clone(), layout, DType::U8)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range() {
        assert_eq!(pieces(3..3).count(), 0);
        assert_eq!((pieces(3..4).count(), pieces(3..4).next()), (1, Some(3..4)));
        assert_eq!(
            pieces(1..2 * PIECE + 5).collect::<Vec<_>>(),
            [1..PIECE + 1, PIECE + 1..2 * PIECE + 1, 2 * PIECE + 1..2 * PIECE + 5]
        );
    }
}
