//! The header of a `.npy` file: magic bytes, version, and a dictionary.

use super::NpyError;
use super::descr::Descr;
use super::literal::LiteralParser;
use crate::error::Result;
use orlop_core::{DType, Layout, Shape, Strides};
use std::fmt::Write as _;
use std::io::{self, Read};

/// The element type and the layout of the elements.
#[derive(Debug)]
pub(super) struct NpyHeader {
    pub(super) descr: Descr,
    pub(super) layout: Layout,
    /// The bytes of the elements.
    pub(super) bytes: usize,
    /// The bytes of the header, counted from the start of the file.
    pub(super) length: usize,
}

const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// The size limit of a header, which no plain array reaches. The format allows 4 GiB, for structures.
const LIMIT: usize = 1 << 20;

/// The alignment of the elements in the file, which allows mapping it.
const ALIGN: usize = 64;

/// The number of digits reserved for the growing dimension: appending to a file rewrites its header in place.
const GROWTH_DIGITS: usize = 21;

impl NpyHeader {
    /// Reads a header, and nothing after it.
    pub(super) fn read<R: Read + ?Sized>(reader: &mut R) -> Result<Self> {
        let mut start = [0; MAGIC.len() + 2];
        exact(reader, &mut start)?;
        let [magic @ .., major, minor] = start;
        if magic != MAGIC {
            return Err(NpyError::NotNpy.into());
        }
        let (length, before) = match (major, minor) {
            (1, 0) => {
                let mut length = [0; 2];
                exact(reader, &mut length)?;
                (usize::from(u16::from_le_bytes(length)), start.len() + length.len())
            }
            (2 | 3, 0) => {
                let mut length = [0; 4];
                exact(reader, &mut length)?;
                // A length that does not fit is too long.
                (
                    usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX),
                    start.len() + length.len(),
                )
            }
            _ => return Err(NpyError::UnknownVersion { major, minor }.into()),
        };
        if length > LIMIT {
            return Err(NpyError::HeaderTooLong { bytes: length, limit: LIMIT }.into());
        }
        let mut text = vec![0; length];
        exact(reader, &mut text)?;
        Self::parse(&text, before + length)
    }

    fn parse(text: &[u8], length: usize) -> Result<Self> {
        let mut cursor = LiteralParser::new(text);
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        cursor.pass(b'{', "a dictionary")?;
        while !cursor.skip(b'}') {
            let before = cursor;
            let key = cursor.string()?;
            cursor.pass(b':', "a colon")?;
            let taken = match key {
                b"descr" if matches!(cursor.peek(), Some(b'[' | b'(')) => {
                    return Err(NpyError::StructuredDType.into());
                }
                b"descr" => descr.replace(Descr::parse(cursor.string()?)?).is_some(),
                b"fortran_order" => fortran_order.replace(cursor.boolean()?).is_some(),
                b"shape" => shape.replace(cursor.tuple()?).is_some(),
                _ => true,
            };
            if taken {
                return Err(before.expected("one of the remaining keys").into());
            }
            if !cursor.skip(b',') && cursor.peek() != Some(b'}') {
                return Err(cursor.expected("a comma").into());
            }
        }
        cursor.end()?;
        let descr = descr.ok_or(NpyError::MissingKey { key: "descr" })?;
        let fortran_order = fortran_order.ok_or(NpyError::MissingKey { key: "fortran_order" })?;
        let shape = Shape::new(&shape.ok_or(NpyError::MissingKey { key: "shape" })?)?;
        let bytes = shape.checked_bytes(descr.dtype.size())?;
        let layout = if fortran_order { column_major(shape)? } else { Layout::contiguous(shape) };
        Ok(Self { descr, layout, bytes, length })
    }

    /// Returns the header of row-major elements, or column-major ones (`fortran_order`), byte for byte as
    /// NumPy writes it.
    pub(super) fn write(dtype: DType, sizes: &[usize], fortran_order: bool) -> Result<Vec<u8>, NpyError> {
        let (name, order) = (Descr::name(dtype)?, if fortran_order { "True" } else { "False" });
        let mut shape = String::new();
        for (dim, size) in sizes.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = write!(shape, "{}{size}", if dim > 0 { ", " } else { "" });
        }
        if sizes.len() == 1 {
            shape.push(',');
        }
        let mut text =
            format!("{{'descr': '{name}', 'fortran_order': {order}, 'shape': ({shape}), }}").into_bytes();
        // The dimension that grows when a file is appended to.
        if let Some(growing) = if fortran_order { sizes.last() } else { sizes.first() } {
            let digits =
                growing.checked_ilog10().map_or(1, |log| usize::try_from(log).map_or(1, |log| log + 1));
            text.resize(text.len() + GROWTH_DIGITS.saturating_sub(digits), b' ');
        }
        // Version 1.0 stores the length in two bytes, version 2.0 in four.
        let mut padded = pad(&text, MAGIC.len() + 2 + 2);
        let length = match u16::try_from(padded) {
            Ok(length) => [&[1, 0][..], &length.to_le_bytes()].concat(),
            Err(_) => {
                padded = pad(&text, MAGIC.len() + 2 + 4);
                let too_long = NpyError::HeaderTooLong { bytes: padded, limit: LIMIT };
                match u32::try_from(padded) {
                    Ok(length) if padded <= LIMIT => [&[2, 0][..], &length.to_le_bytes()].concat(),
                    _ => return Err(too_long),
                }
            }
        };
        text.resize(padded - 1, b' ');
        text.push(b'\n');
        Ok([&MAGIC[..], &length, &text].concat())
    }
}

/// Returns the length of a header with spaces and a newline that align the elements. As in NumPy, there is at
/// least one space.
fn pad(text: &[u8], before: usize) -> usize {
    let length = text.len() + 1;
    length + ALIGN - (before + length) % ALIGN
}

/// Returns a column-major layout: the first dimension fastest, without gaps.
pub(super) fn column_major(shape: Shape) -> Result<Layout> {
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let strides = Strides::contiguous(&Shape::new(&reversed)?);
    let reversed: Vec<usize> = strides.iter().rev().copied().collect();
    Ok(Layout::new(shape, Strides::new(&reversed)?, 0)?)
}

/// Returns `true` if the layout is column-major without gaps.
pub(super) fn is_column_major(layout: &Layout) -> Result<bool> {
    let sizes: Vec<usize> = layout.shape().iter().rev().copied().collect();
    let strides: Vec<usize> = layout.strides().iter().rev().copied().collect();
    Ok(Layout::new(Shape::new(&sizes)?, Strides::new(&strides)?, 0)?.is_contiguous())
}

fn exact<R: Read + ?Sized>(reader: &mut R, bytes: &mut [u8]) -> Result<(), NpyError> {
    reader.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => NpyError::ShortHeader,
        _ => error.into(),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Error;

    fn parse(text: &str) -> Result<NpyHeader> {
        NpyHeader::parse(text.as_bytes(), 0)
    }

    #[test]
    fn headers_of_any_style() {
        let header = parse("{\"shape\":(2,3),'fortran_order':True,'descr':'<f4'}").unwrap();
        assert_eq!((header.descr.dtype, header.bytes), (DType::F32, 24));
        assert_eq!(*header.layout.strides(), [1, 2]);
        let scalar = parse("{'descr': '|b1', 'fortran_order': False, 'shape': (), }   \n").unwrap();
        assert_eq!((scalar.layout.numel(), scalar.bytes), (1, 1));
    }

    #[test]
    fn headers_that_are_none() {
        for text in [
            "",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
            "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        ] {
            let error = parse(text).unwrap_err();
            let Error::Npy(NpyError::Header { .. } | NpyError::MissingKey { .. }) = error else {
                panic!("{text:?}: {error}")
            };
        }
        let overflow = parse("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}");
        assert!(matches!(overflow, Err(Error::Layout(_))));
        let structured = parse("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}");
        assert!(matches!(structured, Err(Error::Npy(NpyError::StructuredDType))));
    }

    #[test]
    fn what_is_written_is_read() {
        for sizes in [&[][..], &[7], &[2, 3], &[0, 5], &[1; 40], &[1; 30_000]] {
            let bytes = NpyHeader::write(DType::C64, sizes, sizes.len() == 2).unwrap();
            assert_eq!(bytes.len() % ALIGN, 0);
            let header = NpyHeader::read(&mut &bytes[..]).unwrap();
            assert_eq!((&**header.layout.shape(), header.length), (sizes, bytes.len()));
        }
        let too_long = NpyHeader::write(DType::U8, &[1; 400_000], false);
        assert!(matches!(too_long, Err(NpyError::HeaderTooLong { .. })));
    }

    #[test]
    fn column_major_is_recognized() {
        let layout = column_major(Shape::new(&[2, 3, 4]).unwrap()).unwrap();
        assert_eq!(*layout.strides(), [1, 2, 6]);
        assert!(is_column_major(&layout).unwrap());
        let row_major = Layout::contiguous(Shape::new(&[2, 3]).unwrap());
        assert!(!is_column_major(&row_major).unwrap());
    }
}
