//! Element types as formats of the buffer protocol, which are those of Python's module `struct`.

use orlop_core::DType;
use std::ffi::CStr;

/// Returns the format of an element type; `None` if there is none.
pub(super) fn format_of(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::Bool => c"?",
        DType::U8 => c"B",
        DType::U16 => c"H",
        DType::U32 => c"I",
        DType::U64 => c"Q",
        DType::I8 => c"b",
        DType::I16 => c"h",
        DType::I32 => c"i",
        DType::I64 => c"q",
        DType::F16 => c"e",
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::C64 => c"Zf",
        DType::C128 => c"Zd",
        DType::F8E4M3 | DType::F8E5M2 | DType::BF16 => return None,
    })
}

/// Returns the element type of a format with elements of `bytes` bytes. The size decides between integers:
/// that of `l` differs from platform to platform.
pub(super) fn dtype_of(format: &CStr, bytes: usize) -> Option<DType> {
    let format = format.to_str().ok()?;
    let swapped = if cfg!(target_endian = "little") { ['>', '!'] } else { ['<', '<'] };
    if format.starts_with(swapped) && bytes > 1 {
        return None;
    }
    let code = format.strip_prefix(['@', '=', '<', '>', '!']).unwrap_or(format);
    let candidates: &[DType] = match code {
        "?" => &[DType::Bool],
        "c" | "B" | "H" | "I" | "L" | "Q" | "N" => &[DType::U8, DType::U16, DType::U32, DType::U64],
        "b" | "h" | "i" | "l" | "q" | "n" => &[DType::I8, DType::I16, DType::I32, DType::I64],
        "e" | "f" | "d" => &[DType::F16, DType::F32, DType::F64],
        "Zf" | "Zd" => &[DType::C64, DType::C128],
        _ => return None,
    };
    candidates.iter().copied().find(|dtype| dtype.size() == bytes)
}
