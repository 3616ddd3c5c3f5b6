//! Type promotion: the common dtype of two operands.
//!
//! The rules are those of PyTorch's `promote_types`. Families are ordered bool < integer < float < complex,
//! and the higher family wins; within a family the wider type wins. There are three exceptions: 8-bit floats
//! promote only with themselves; `uint16`, `uint32` and `uint64` promote only with themselves and with
//! floats; and a pair of equal width that neither type can represent promotes to the next wider type.

use crate::{DType, DTypeFamily as Family, Error, Result};

/// Returns the common dtype of `a` and `b`, as PyTorch's `promote_types` does. Symmetric.
///
/// ```
/// use orlop_core::{DType, promote};
///
/// assert_eq!(promote(DType::I64, DType::F16), Ok(DType::F16));
/// assert_eq!(promote(DType::U8, DType::I8), Ok(DType::I16));
/// assert_eq!(promote(DType::F16, DType::BF16), Ok(DType::F32));
/// assert!(promote(DType::U32, DType::I32).is_err());
/// ```
///
/// # Errors
/// [`Error::NoPromotion`] where PyTorch refuses: 8-bit floats with anything else, and `uint16`, `uint32` or
/// `uint64` with anything but themselves and floats. Cast one operand first.
pub fn promote(a: DType, b: DType) -> Result<DType> {
    if a == b {
        return Ok(a);
    }
    let refusal = Err(Error::NoPromotion { a, b });
    let (low, high) = if rank(a) <= rank(b) { (a, b) } else { (b, a) };
    match (low.family(), high.family()) {
        (Family::Float8, _) | (_, Family::Float8) => refusal,
        (_, Family::Float) if !low.is_float() => Ok(high),
        _ if is_bare_unsigned(low) || is_bare_unsigned(high) => refusal,

        (Family::Float, Family::Float) => Ok(wider(low, high).unwrap_or(DType::F32)),
        (Family::Complex, Family::Complex) => Ok(DType::C128),
        // A float keeps its precision; a double needs the double complex.
        (_, Family::Complex) if low == DType::F64 => Ok(DType::C128),
        (_, Family::Complex) | (Family::Bool, _) => Ok(high),

        // What remains is a pair of integers of which uint8 is the only unsigned one.
        _ => Ok(wider(low, high).unwrap_or(DType::I16)),
    }
}

/// Returns `true` for the unsigned types wider than `uint8`, which PyTorch stores but does not promote.
const fn is_bare_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U16 | DType::U32 | DType::U64)
}

/// Returns the rank of the family in the order of promotion.
const fn rank(dtype: DType) -> u8 {
    match dtype.family() {
        Family::Bool => 0,
        Family::Unsigned | Family::Signed => 1,
        Family::Float8 | Family::Float => 2,
        Family::Complex => 3,
    }
}

/// Returns the type with more bytes, or `None` if both have the same size.
const fn wider(a: DType, b: DType) -> Option<DType> {
    if a.size() == b.size() { None } else { Some(if a.size() > b.size() { a } else { b }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // All 289 pairs against PyTorch: tests/it/dtypes.rs.

    #[test]
    fn symmetric_idempotent_and_never_narrower() {
        for a in DType::ALL {
            assert_eq!(promote(a, a), Ok(a));
            for b in DType::ALL {
                let Ok(met) = promote(a, b) else {
                    assert_eq!(promote(b, a), Err(Error::NoPromotion { a: b, b: a }));
                    continue;
                };
                assert_eq!(promote(b, a), Ok(met));
                assert_eq!(promote(met, a), Ok(met));
            }
        }
    }
}
