//! What atomic operations compute.

use super::arithmetic::{binary, cut, extend};
use crate::ptx::instruction::{Atomic, Binary};
use crate::ptx::types::{FloatMode, Type};

/// Returns the new value. Operands are a value, or two of a comparison.
pub(super) fn changed(what: Atomic, of: Type, is_shared: bool, old: u64, (a, b): (u64, u64)) -> u64 {
    let (old, a) = (cut(old, of.bytes), cut(a, of.bytes));
    match what {
        // In global memory, sums of singles flush subnormal numbers.
        Atomic::Of(what) => {
            let flushes = what == Binary::Add && of == Type::F32 && !is_shared;
            binary(what, of, FloatMode { flushes, ..FloatMode::default() }, extend(old, of), extend(a, of))
        }
        Atomic::Exchange => a,
        Atomic::CompareExchange if old == a => b,
        Atomic::CompareExchange => old,
        Atomic::Increment if old >= a => 0,
        Atomic::Increment => old + 1,
        Atomic::Decrement if old == 0 || old > a => a,
        Atomic::Decrement => old - 1,
    }
}
