//! Operators that work element by element: from one tensor, or from several that are broadcast.

use super::{Operator, over_any, over_first, own};
use crate::infer::{Binary, Call, Element, Fault, Outcome, Range, Tensor, Unary, result_type, types};

pub(super) const OPERATORS: &[Operator] = &[
    over_any("Add", |call| binary(call, Binary::Add)),
    over_any("Sub", |call| binary(call, Binary::Subtract)),
    over_any("Mul", |call| binary(call, Binary::Multiply)),
    over_any("Div", |call| binary(call, Binary::Divide)),
    over_any("Mod", |call| binary(call, Binary::Modulo { like_c: call.flag("fmod") })),
    over_any("Pow", |call| binary(call, Binary::Power)),
    over_any("And", |call| binary(call, Binary::And)),
    over_any("Or", |call| binary(call, Binary::Or)),
    over_any("Xor", |call| binary(call, Binary::Xor)),
    over_any("BitShift", broadcast),
    over_any("BitwiseAnd", broadcast),
    over_any("BitwiseOr", broadcast),
    over_any("BitwiseXor", broadcast),
    own("Equal", |call| binary(call, Binary::Equal)),
    own("Less", |call| binary(call, Binary::Less)),
    own("LessOrEqual", |call| binary(call, Binary::LessOrEqual)),
    own("Greater", |call| binary(call, Binary::Greater)),
    own("GreaterOrEqual", |call| binary(call, Binary::GreaterOrEqual)),
    over_any("Max", |call| folded(call, Binary::Maximum)),
    over_any("Min", |call| folded(call, Binary::Minimum)),
    over_any("Sum", |call| folded(call, Binary::Add)),
    over_any("Mean", broadcast),
    over_any("Where", choose),
    over_first("PRelu", one_way),
    over_first("Neg", |call| unary(call, Unary::Negate)),
    over_first("Abs", |call| unary(call, Unary::Absolute)),
    over_first("Floor", |call| unary(call, Unary::Floor)),
    over_first("Ceil", |call| unary(call, Unary::Ceil)),
    over_first("Round", |call| unary(call, Unary::Round)),
    over_first("Sqrt", |call| unary(call, Unary::SquareRoot)),
    over_first("Reciprocal", |call| unary(call, Unary::Reciprocal)),
    over_first("Sign", |call| unary(call, Unary::Sign)),
    over_first("Relu", |call| unary(call, Unary::Relu)),
    over_first("Not", |call| unary(call, Unary::Not)),
    own("IsInf", truth),
    own("IsNaN", truth),
    over_first("Cast", cast),
    own("CastLike", cast_like),
    over_first("Clip", clip),
    over_first("Acos", same),
    over_first("Acosh", same),
    over_first("Asin", same),
    over_first("Asinh", same),
    over_first("Atan", same),
    over_first("Atanh", same),
    over_first("BitwiseNot", same),
    over_first("Celu", same),
    over_first("Cos", same),
    over_first("Cosh", same),
    over_first("Elu", same),
    over_first("Erf", same),
    over_first("Exp", same),
    over_first("Gelu", same),
    over_first("HardSigmoid", same),
    over_first("HardSwish", same),
    over_first("LeakyRelu", same),
    over_first("Log", same),
    over_first("Mish", same),
    over_first("Selu", same),
    over_first("Shrink", same),
    over_first("Sigmoid", same),
    over_first("Sin", same),
    over_first("Sinh", same),
    over_first("Softplus", same),
    over_first("Softsign", same),
    over_first("Swish", same),
    over_first("Tan", same),
    over_first("Tanh", same),
    over_first("ThresholdedRelu", same),
];

/// The type and the shape of the first input, with other elements.
pub(super) fn same(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    Ok(vec![Tensor { elements: None, ..input.clone() }.into()])
}

/// The shape of the first input, with truth values.
fn truth(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    Ok(vec![Tensor { elements: None, data_type: types::BOOL, ..input.clone() }.into()])
}

fn unary(call: &Call<'_>, operator: Unary) -> Outcome {
    let input = call.tensor(0)?;
    let apply = |element: &Element| operator.apply(*element, input.data_type);
    let elements = input.elements.as_ref().and_then(|elements| elements.iter().map(apply).collect());
    Ok(vec![Tensor { elements, ..input.clone() }.into()])
}

fn cast(call: &Call<'_>) -> Outcome {
    cast_to(call.tensor(0)?, call.type_or("to", 0))
}

fn cast_like(call: &Call<'_>) -> Outcome {
    cast_to(call.tensor(0)?, call.data_type(1))
}

fn cast_to(input: &Tensor, data_type: i32) -> Outcome {
    let cast = |element: &Element| element.cast(data_type);
    let elements = input.elements.as_ref().and_then(|elements| elements.iter().map(cast).collect());
    Ok(vec![Tensor { data_type, elements, ..input.clone() }.into()])
}

fn clip(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let limit = |index: usize| match call.has(index) {
        true => call.elements(index).and_then(|elements| elements.first().copied()).map(Some),
        false => Some(None),
    };
    let clipped = |element: &Element| {
        let raised = match limit(1)? {
            Some(min) => Binary::Maximum.apply(*element, min, input.data_type)?,
            None => *element,
        };
        match limit(2)? {
            Some(max) => Binary::Minimum.apply(raised, max, input.data_type),
            None => Some(raised),
        }
    };
    // Before version 11 the limits are attributes, of floats.
    let has_attributes = call.node.attribute("min").is_some() || call.node.attribute("max").is_some();
    let elements = input.elements.as_ref().filter(|_| !has_attributes);
    let elements = elements.and_then(|elements| elements.iter().map(clipped).collect());
    Ok(vec![Tensor { elements, ..input.clone() }.into()])
}

fn binary(call: &Call<'_>, operator: Binary) -> Outcome {
    let (left, right) = (call.tensor(0)?, call.tensor(1).or_else(|fault| alone(call, fault))?);
    apply(left, right, operator)
}

/// The only input takes the place of both.
fn alone<'a>(call: &Call<'a>, fault: Fault) -> Result<&'a Tensor, Fault> {
    if call.node.inputs.len() == 1 { call.tensor(0) } else { Err(fault) }
}

fn apply(left: &Tensor, right: &Tensor, operator: Binary) -> Outcome {
    let shape = match (&left.shape, &right.shape) {
        (Some(one), Some(other)) => broadcast_shapes(one, other)?,
        _ => return Err(Fault::Unknown),
    };
    let operands = if left.data_type == 0 { right.data_type } else { left.data_type };
    let data_type = result_type(operator, operands);
    let result = Tensor::new(data_type, shape);
    // One argument without known elements can still decide some of the result.
    let is_tracked = left.elements.is_some() || right.elements.is_some();
    let elements = is_tracked.then(|| zipped(left, right, &result, operator)).flatten();
    Ok(vec![Tensor { elements, ..result }.into()])
}

fn zipped(left: &Tensor, right: &Tensor, result: &Tensor, operator: Binary) -> Option<Vec<Element>> {
    let sizes = result.small_sizes()?;
    let (one, other) = (stretched(left, &sizes)?, stretched(right, &sizes)?);
    let any = Element::any(result.data_type)?;
    let operands = left.data_type;
    let apply = |(left, right): (Element, Element)| operator.apply(left, right, operands).unwrap_or(any);
    Some(one.into_iter().zip(other).map(apply).collect())
}

/// Returns the elements of a tensor that is broadcast to other sizes.
pub(super) fn stretched(tensor: &Tensor, sizes: &[usize]) -> Option<Vec<Element>> {
    let (elements, own) = (tensor.elements_or_any()?, tensor.small_sizes()?);
    let missing = sizes.len().checked_sub(own.len())?;
    let count: usize = sizes.iter().product();
    let place = |index: usize| {
        let (mut left, mut place, mut stride) = (index, 0, 1);
        for axis in (0..sizes.len()).rev() {
            let position = left % sizes[axis];
            left /= sizes[axis];
            if axis >= missing {
                let size = own[axis - missing];
                place += if size == 1 { 0 } else { position * stride };
                stride *= size;
            }
        }
        elements.get(place).copied()
    };
    (0..count).map(place).collect()
}

/// Folds any number of inputs.
fn folded(call: &Call<'_>, operator: Binary) -> Outcome {
    let mut result = call.tensor(0)?.clone();
    for index in 1..call.inputs.len() {
        let facts = apply(&result, call.tensor(index)?, operator)?;
        result = facts.into_iter().next().and_then(|fact| fact.tensor().cloned()).ok_or(Fault::Unknown)?;
    }
    Ok(vec![result.into()])
}

/// The type of the first input, and the shape that all are broadcast to.
pub(super) fn broadcast(call: &Call<'_>) -> Outcome {
    Ok(vec![Tensor::new(call.data_type(0), broadcast_all(call, 0..call.inputs.len())?).into()])
}

/// The shape of the first input, to which the others are broadcast.
fn one_way(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?.to_vec();
    let is_exact = shape.iter().all(|size| size.exact().is_some());
    // Old files have slopes that are broadcast along the channels.
    if let (true, Ok(slope)) = (is_exact, call.shape(1)) {
        let both = broadcast_shapes(&shape, slope);
        if both.is_ok_and(|both| both != shape) {
            return Err(Fault::Invalid("the slope is larger than the input"));
        }
    }
    Ok(vec![Tensor::new(call.data_type(0), shape).into()])
}

fn choose(call: &Call<'_>) -> Outcome {
    let shape = broadcast_all(call, 0..3)?;
    let data_type = if call.data_type(1) == 0 { call.data_type(2) } else { call.data_type(1) };
    let result = Tensor::new(data_type, shape);
    let elements = || {
        let sizes = result.small_sizes()?;
        let of = |index: usize| stretched(call.tensor(index).ok()?, &sizes);
        let (conditions, left, right) = (of(0)?, of(1)?, of(2)?);
        let sides = left.into_iter().zip(right);
        let chosen =
            conditions.into_iter().zip(sides).map(|(is_left, (left, right))| match is_left.truth() {
                Some(true) => left,
                Some(false) => right,
                None => left.hull(right),
            });
        Some(chosen.collect())
    };
    Ok(vec![Tensor { elements: elements(), ..result.clone() }.into()])
}

/// Returns the shape that several inputs are broadcast to.
pub(super) fn broadcast_all(
    call: &Call<'_>,
    indices: impl IntoIterator<Item = usize>,
) -> Result<Vec<Range>, Fault> {
    let mut shape = Vec::new();
    for index in indices {
        shape = broadcast_shapes(&shape, call.shape(index)?)?;
    }
    Ok(shape)
}

/// Returns the shape that two shapes are broadcast to.
pub(super) fn broadcast_shapes(left: &[Range], right: &[Range]) -> Result<Vec<Range>, Fault> {
    let rank = left.len().max(right.len());
    let size = |shape: &[Range], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(axis) => shape[axis],
        None => Range::exactly(1),
    };
    (0..rank).map(|axis| broadcast_sizes(size(left, axis), size(right, axis))).collect()
}

fn broadcast_sizes(left: Range, right: Range) -> Result<Range, Fault> {
    let can_be_one = |size: Range| size.min() <= 1 && size.max() >= 1;
    if left.is_exactly(1) {
        return Ok(right);
    }
    if right.is_exactly(1) {
        return Ok(left);
    }
    match (can_be_one(left), can_be_one(right)) {
        (true, true) => Ok(left.hull(right)),
        // What can be broadcast takes the size of the other.
        (true, false) => Ok(right),
        (false, true) => Ok(left),
        (false, false) => {
            left.intersection(right).ok_or(Fault::Invalid("its inputs cannot be broadcast to each other"))
        }
    }
}

/// Returns the sizes of a tensor, if its elements are tracked.
pub(super) fn tracked_sizes(tensor: &Tensor) -> Option<Vec<usize>> {
    tensor.elements.as_ref()?;
    tensor.small_sizes()
}
