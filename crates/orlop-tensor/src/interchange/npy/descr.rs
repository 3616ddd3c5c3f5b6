//! NumPy's dtype descriptors: byte order, a letter for the family, bytes per element.

use super::NpyError;
use orlop_core::{DType, DTypeFamily};

/// The element type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descr {
    pub(super) dtype: DType,
    /// Whether the byte order is not this machine's.
    pub(super) swapped: bool,
}

/// The byte-order letter of this machine.
const NATIVE: char = if cfg!(target_endian = "big") { '>' } else { '<' };

impl Descr {
    /// Parses a descriptor, such as `<f4`. Without a byte order, as with `|` and `=`, the machine's applies.
    pub(super) fn parse(name: &[u8]) -> Result<Self, NpyError> {
        let unsupported = || NpyError::UnsupportedDType { descr: String::from_utf8_lossy(name).into() };
        let (order, rest) = match name {
            [order @ (b'<' | b'>' | b'=' | b'|'), rest @ ..] => (char::from(*order), rest),
            _ => (NATIVE, name),
        };
        let named = |dtype: &DType| letters(*dtype).is_some_and(|(letters, _)| letters.as_bytes() == rest);
        let dtype = DType::ALL.into_iter().find(named).ok_or_else(unsupported)?;
        Ok(Self { dtype, swapped: matches!(order, '<' | '>') && order != NATIVE && unit(dtype) > 1 })
    }

    /// Returns the descriptor of a dtype in this machine's byte order.
    pub(super) fn name(dtype: DType) -> Result<String, NpyError> {
        let (letters, ordered) = letters(dtype).ok_or(NpyError::NoDescr { dtype })?;
        let order = if ordered { NATIVE } else { '|' };
        Ok(format!("{order}{letters}"))
    }

    /// Returns the number of bytes that are swapped together.
    pub(super) fn unit(self) -> usize {
        unit(self.dtype)
    }
}

fn unit(dtype: DType) -> usize {
    match dtype.family() {
        DTypeFamily::Complex => dtype.size() / 2,
        _ => dtype.size(),
    }
}

/// Returns NumPy's name without the byte order, and whether it has one.
fn letters(dtype: DType) -> Option<(&'static str, bool)> {
    let letters = match dtype {
        DType::Bool => "b1",
        DType::U8 => "u1",
        DType::U16 => "u2",
        DType::U32 => "u4",
        DType::U64 => "u8",
        DType::I8 => "i1",
        DType::I16 => "i2",
        DType::I32 => "i4",
        DType::I64 => "i8",
        DType::F16 => "f2",
        DType::F32 => "f4",
        DType::F64 => "f8",
        DType::C64 => "c8",
        DType::C128 => "c16",
        // Packages that add these to NumPy save them as opaque bytes, `|V2` and `|V1`, which do not identify
        // the type.
        DType::F8E4M3 | DType::F8E5M2 | DType::BF16 => return None,
    };
    Some((letters, dtype.size() > 1))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let names: Vec<_> =
            DType::ALL.into_iter().filter_map(|dtype| Some((dtype, Descr::name(dtype).ok()?))).collect();
        assert_eq!(names.len(), DType::ALL.len() - 3);
        for (dtype, name) in names {
            assert_eq!(Descr::parse(name.as_bytes()).unwrap(), Descr { dtype, swapped: false }, "{name}");
        }
    }

    #[test]
    fn orders_of_bytes() {
        let swapped = |name: &str| Descr::parse(name.as_bytes()).unwrap().swapped;
        assert!(!swapped("=f8") && !swapped("|i4") && !swapped("f4"));
        assert!(swapped(">c16") != swapped("<c16"));
        assert!(!swapped(">u1") && !swapped("<b1"));
        assert_eq!(Descr::parse(b">c16").unwrap().unit(), 8);
    }

    #[test]
    fn what_tensors_do_not_have() {
        for name in [
            "|O", "<U5", "|S3", "<f16", "<c32", "<M8[ns]", "<m8[s]", "|V2", "", "<", "<f", "<f04", "f4 ",
            "<<f4",
        ] {
            let error = Descr::parse(name.as_bytes()).unwrap_err();
            assert!(
                matches!(error, NpyError::UnsupportedDType { ref descr } if **descr == *name),
                "{name}: {error}"
            );
        }
        assert!(matches!(Descr::name(DType::BF16), Err(NpyError::NoDescr { dtype: DType::BF16 })));
    }
}
