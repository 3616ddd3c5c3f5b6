//! Random values.

use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("RandomNormal", of_shape),
    own("RandomUniform", of_shape),
    own("RandomNormalLike", like),
    own("RandomUniformLike", like),
    own("Bernoulli", like),
    own("Multinomial", multinomial),
];

fn of_shape(call: &Call<'_>) -> Outcome {
    let shape = call.ints("shape").ok_or(Fault::Invalid("it has no shape"))?;
    one(call.type_or("dtype", types::FLOAT), shape.iter().map(|&size| Range::exactly(size)).collect())
}

fn like(call: &Call<'_>) -> Outcome {
    one(call.type_or("dtype", call.data_type(0)), call.shape(0)?.to_vec())
}

fn multinomial(call: &Call<'_>) -> Outcome {
    let samples = Range::exactly(call.int_or("sample_size", 1));
    one(call.type_or("dtype", types::INT32), vec![call.size(0, 0)?, samples])
}
