//! PyTorch's casts between dtypes: as bits for floats, as values if integers are involved.

use std::path::PathBuf;

use bytemuck::checked::try_pod_read_unaligned;
use orlop_core::{Convert, DType, Element, Scalar, cast, dispatch};
use serde::Deserialize;
use serde_json::Value;

use super::{Tally, json};
use crate::error::Result;

#[derive(Deserialize)]
struct CastFile {
    casts: Vec<CastCase>,
}

#[derive(Deserialize)]
struct CastCase {
    src: String,
    dst: String,
    #[serde(flatten)]
    numbers: CastNumbers,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CastNumbers {
    Bits { src_bits: Vec<i64>, dst_bits: Vec<i64> },
    Values { src_values: Vec<Value>, dst_values: Vec<Value> },
}

pub(super) fn compare(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        let file: CastFile = json(path)?;
        for case in &file.casts {
            match (case.src.parse::<DType>(), case.dst.parse::<DType>()) {
                (Ok(src), Ok(dst)) => {
                    dispatch!(src, S => dispatch!(dst, D => case.compare::<S, D>(&mut tally)));
                }
                _ => tally.count(false, || format!("{} or {} is not a dtype", case.src, case.dst)),
            }
        }
    }
    Ok(tally)
}

impl CastCase {
    fn compare<S: Element, D: Element>(&self, tally: &mut Tally) {
        match &self.numbers {
            CastNumbers::Bits { src_bits, dst_bits } => {
                for (src, dst) in src_bits.iter().zip(dst_bits) {
                    let ours = from_bits::<S>(*src).map(cast::<S, D>).map(Convert::to_scalar);
                    let recorded = from_bits::<D>(*dst).map(Convert::to_scalar);
                    self.count(tally, ours, recorded, src);
                }
            }
            CastNumbers::Values { src_values, dst_values } => {
                for (src, dst) in src_values.iter().zip(dst_values) {
                    let ours = scalar(src).map(S::from_scalar).map(cast::<S, D>).map(Convert::to_scalar);
                    let recorded = scalar(dst).map(D::from_scalar).map(Convert::to_scalar);
                    self.count(tally, ours, recorded, src);
                }
            }
        }
    }

    fn count(
        &self,
        tally: &mut Tally,
        ours: Option<Scalar>,
        recorded: Option<Scalar>,
        src: &dyn std::fmt::Display,
    ) {
        let agrees = match (ours, recorded) {
            (Some(Scalar::Float(a)), Some(Scalar::Float(b))) => {
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
            }
            (Some(a), Some(b)) => a == b,
            _ => false,
        };
        tally.count(agrees, || {
            format!("{} to {}, {src}: {ours:?}, recorded {recorded:?}", self.src, self.dst)
        });
    }
}

/// Returns the number with these bits, which the file has sign-extended, or `None` if they are invalid for
/// this dtype.
fn from_bits<T: Element>(bits: i64) -> Option<T> {
    let bytes = bits.to_le_bytes();
    let mut own = bytes.get(..size_of::<T>())?.to_vec();
    if cfg!(target_endian = "big") {
        own.reverse();
    }
    try_pod_read_unaligned(&own).ok()
}

fn scalar(value: &Value) -> Option<Scalar> {
    match value {
        Value::Bool(value) => Some(Scalar::Bool(*value)),
        Value::Number(number) => {
            number.as_i64().map(Scalar::Int).or_else(|| number.as_f64().map(Scalar::Float))
        }
        Value::String(text) => text.parse().ok().map(Scalar::Float), // An infinity or NaN.
        _ => None,
    }
}
