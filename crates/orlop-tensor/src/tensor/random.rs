//! Random tensors, reproducible by seed on every machine.

use super::{IntoShape, Tensor};
use crate::error::Result;
use crate::storage::TensorOptions;
use orlop_core::{DType, DTypeSet, Scalar, Shape};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::cell::RefCell;

impl Tensor {
    /// Creates a tensor of uniform random numbers from 0 to below 1. A seed gives the same numbers on every
    /// machine.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::rand([100], 42, DType::F32)?;
    /// assert_eq!(tensor.to_vec::<f32>()?, Tensor::rand([100], 42, DType::F32)?.to_vec::<f32>()?);
    /// assert!(tensor.to_vec::<f32>()?.iter().all(|value| (0.0..1.0).contains(value)));
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DTypeNotIn`](orlop_core::Error::DTypeNotIn) for dtypes other than floats; those of
    /// [`Tensor::empty`].
    pub fn rand<'a>(shape: impl IntoShape, seed: u64, options: impl Into<TensorOptions<'a>>) -> Result<Self> {
        let options = options.into();
        // As many bits as the dtype keeps: otherwise a number just below 1 would round to 1.
        let unused = 64 - significant_bits(options.dtype);
        let step = 0.5f64.powi(significant_bits(options.dtype).cast_signed());
        random(shape.into_shape()?, seed, &options, |source| {
            #[expect(clippy::cast_precision_loss, reason = "at most 53 bits")]
            let bits = (source.random::<u64>() >> unused) as f64;
            bits * step
        })
    }

    /// Creates a tensor of normal random numbers with mean 0 and deviation 1. A seed gives the same numbers
    /// on every machine.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::rand`].
    pub fn randn<'a>(
        shape: impl IntoShape,
        seed: u64,
        options: impl Into<TensorOptions<'a>>,
    ) -> Result<Self> {
        random(shape.into_shape()?, seed, &options.into(), |source| source.sample::<f64, _>(StandardNormal))
    }
}

/// Returns the number of significant bits of the dtype for numbers below 1.
const fn significant_bits(dtype: DType) -> u32 {
    match dtype {
        DType::F8E5M2 => 3,
        DType::F8E4M3 => 4,
        DType::BF16 => 8,
        DType::F16 => 11,
        DType::F32 => 24,
        _ => 53,
    }
}

fn random(
    shape: Shape,
    seed: u64,
    options: &TensorOptions<'_>,
    number: impl Fn(&mut ChaCha8Rng) -> f64,
) -> Result<Tensor> {
    let dtype = options.dtype;
    if !dtype.is_float() {
        return Err(orlop_core::Error::DTypeNotIn { dtype, set: DTypeSet::Floats }.into());
    }
    let source = RefCell::new(ChaCha8Rng::seed_from_u64(seed));
    // Elements are made in row-major order, whatever their order in memory.
    Tensor::build(shape, options, |_| Scalar::Float(number(&mut source.borrow_mut())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_one_and_spread_out() {
        for dtype in [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32, DType::F64] {
            let count = if cfg!(miri) { 50 } else { 5000 };
            let numbers = Tensor::rand([count], 7, dtype).unwrap().to_dtype(DType::F64).unwrap();
            let numbers = numbers.to_vec::<f64>().unwrap();
            assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)), "{dtype}");
            let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
            assert!((mean - 0.5).abs() < 0.2, "{dtype} {mean}");
        }
    }

    #[test]
    fn normal_numbers_have_their_moments() {
        let count = if cfg!(miri) { 100 } else { 20_000 };
        let numbers = Tensor::randn([count], 1, DType::F64).unwrap().to_vec::<f64>().unwrap();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|number| number * number).sum::<f64>() / numbers.len() as f64;
        assert!(mean.abs() < 0.3 && (variance - 1.0).abs() < 0.5, "{mean} {variance}");
        assert!(Tensor::randn([1], 1, DType::I32).is_err());
    }
}
