//! Products of matrices, sums of products, attention.

use super::elementwise::{broadcast_shapes, same};
use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, Tensor, axis_of, one, types};
use std::collections::BTreeMap;

pub(super) const OPERATORS: &[Operator] = &[
    own("MatMul", |call| product(call, 0, 1, call.data_type(0))),
    own("MatMulInteger", |call| product(call, 0, 1, types::INT32)),
    own("QLinearMatMul", |call| product(call, 0, 3, call.data_type(7))),
    own("Gemm", gemm),
    own("Einsum", einsum),
    own("Det", determinant),
    own("Attention", attention),
    own("LinearAttention", linear_attention),
    own("SwiGLU", same),
    own("FlexAttention", flex_attention),
];

pub(super) fn product(call: &Call<'_>, left: usize, right: usize, data_type: i32) -> Outcome {
    one(data_type, multiplied(call.shape(left)?, call.shape(right)?)?)
}

/// Returns the shape of a product of (stacks of) matrices; a vector is a row on the left, a column on the
/// right.
pub(super) fn multiplied(left: &[Range], right: &[Range]) -> Result<Vec<Range>, Fault> {
    let (rows, inner) = match left {
        [] => return Err(Fault::Invalid("it multiplies a scalar")),
        [inner] => (None, *inner),
        [.., rows, inner] => (Some(*rows), *inner),
    };
    let (other, columns) = match right {
        [] => return Err(Fault::Invalid("it multiplies a scalar")),
        [other] => (*other, None),
        [.., other, columns] => (*other, Some(*columns)),
    };
    if inner.intersection(other).is_none() {
        return Err(Fault::Invalid("it multiplies matrices whose inner sizes differ"));
    }
    let stack = |shape: &[Range]| shape[..shape.len().saturating_sub(2)].to_vec();
    let mut shape = broadcast_shapes(&stack(left), &stack(right))?;
    shape.extend(rows);
    shape.extend(columns);
    Ok(shape)
}

pub(super) fn gemm(call: &Call<'_>) -> Outcome {
    let side = |index: usize, transposed: &str| match (call.shape(index)?, call.flag(transposed)) {
        (&[rows, columns], false) | (&[columns, rows], true) => Ok((rows, columns)),
        _ => Err(Fault::Invalid("it multiplies what is no matrix")),
    };
    let ((rows, inner), (other, columns)) = (side(0, "transA")?, side(1, "transB")?);
    if inner.intersection(other).is_none() {
        return Err(Fault::Invalid("it multiplies matrices whose inner sizes differ"));
    }
    one(call.data_type(0), vec![rows, columns])
}

fn einsum(call: &Call<'_>) -> Outcome {
    let equation: String = call.text("equation").ok_or(Fault::Unknown)?.split_whitespace().collect();
    let (terms, result) = match equation.split_once("->") {
        Some((terms, result)) => (terms, Some(result)),
        None => (&*equation, None),
    };
    let mut sizes: BTreeMap<char, Range> = BTreeMap::new();
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    let mut stack: Vec<Range> = Vec::new();
    for (index, term) in terms.split(',').enumerate() {
        let shape = call.shape(index)?;
        let letters = term.replace('.', "").chars().count();
        let stacked =
            shape.len().checked_sub(letters).ok_or(Fault::Invalid("its equation has other dimensions"))?;
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        let (first, last) = (before.chars().count(), before.chars().count() + stacked);
        stack = broadcast_shapes(&stack, shape.get(first..last).ok_or(Fault::Unknown)?)?;
        let named = shape[..first].iter().chain(&shape[last..]);
        for (letter, &size) in before.chars().chain(after.chars()).zip(named) {
            *counts.entry(letter).or_default() += 1;
            let known = sizes.entry(letter).or_insert(size);
            *known = broadcast_shapes(&[*known], &[size])?[0];
        }
    }
    let once = || counts.iter().filter(|&(_, &count)| count == 1).map(|(&letter, _)| letter);
    let result = result.map_or_else(|| "...".chars().chain(once()).collect(), str::to_owned);
    let (before, after) = result.split_once("...").unwrap_or((&*result, ""));
    let named = |letters: &str| {
        let size =
            |letter| sizes.get(&letter).copied().ok_or(Fault::Invalid("its result has an unknown letter"));
        letters.chars().map(size).collect::<Result<Vec<_>, _>>()
    };
    let stack = if result.contains("...") { stack } else { Vec::new() };
    one(call.data_type(0), [named(before)?, stack, named(after)?].concat())
}

fn determinant(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let outer = shape.len().checked_sub(2).ok_or(Fault::Invalid("its input is no matrix"))?;
    one(call.data_type(0), shape[..outer].to_vec())
}

/// Queries, keys and values as `[batch, heads, length, size]`, or `[batch, length, heads × size]`.
fn attention(call: &Call<'_>) -> Outcome {
    let data_type = call.data_type(0);
    let (query, key, value) = (call.shape(0)?, call.shape(1)?, call.shape(2)?);
    let heads = |name: &str| call.int(name).map(Range::exactly).ok_or(Fault::Unknown);
    let split = |shape: &[Range], name: &str| match *shape {
        [batch, heads, length, size] => Ok([batch, heads, length, size]),
        [batch, length, width] => {
            let heads = heads(name)?;
            let size = width.divide(heads).ok_or(Fault::Invalid("it has no heads"))?;
            Ok([batch, heads, length, size])
        }
        _ => Err(Fault::Invalid("its input has not three or four dimensions")),
    };
    let [batch, query_heads, length, _] = split(query, "q_num_heads")?;
    let [_, key_heads, key_length, key_size] = split(key, "kv_num_heads")?;
    let [_, _, _, value_size] = split(value, "kv_num_heads")?;
    let total = if call.has(4) { call.size(4, 2)?.add(key_length) } else { key_length };
    let output = match query.len() {
        3 => vec![batch, length, query_heads.multiply(value_size)],
        _ => vec![batch, query_heads, length, value_size],
    };
    let tensor = |shape: Vec<Range>| Tensor::new(data_type, shape).into();
    Ok(vec![
        tensor(output),
        tensor(vec![batch, key_heads, total, key_size]),
        tensor(vec![batch, key_heads, total, value_size]),
        tensor(vec![batch, query_heads, length, total]),
    ])
}

fn linear_attention(call: &Call<'_>) -> Outcome {
    let (query, key, value) = (call.shape(0)?, call.shape(1)?, call.shape(2)?);
    let heads = |name: &str| call.int(name).map(Range::exactly).ok_or(Fault::Unknown);
    let (&[batch, length, _], &[_, _, key_width], &[_, _, value_width]) = (query, key, value) else {
        return Err(Fault::Unknown);
    };
    let (query_heads, key_heads) = (heads("q_num_heads")?, heads("kv_num_heads")?);
    let per_head = |width: Range| width.divide(key_heads).ok_or(Fault::Invalid("it has no heads"));
    let (key_size, value_size) = (per_head(key_width)?, per_head(value_width)?);
    let state_type = if call.has(3) { call.data_type(3) } else { call.data_type(0) };
    let output_heads = query_heads.maximum(key_heads);
    Ok(vec![
        Tensor::new(call.data_type(0), vec![batch, length, output_heads.multiply(value_size)]).into(),
        Tensor::new(state_type, vec![batch, key_heads, key_size, value_size]).into(),
    ])
}

fn flex_attention(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let last = axis_of(-1, shape.len())?;
    shape[last] = *call.shape(2)?.last().ok_or(Fault::Unknown)?;
    one(call.data_type(0), shape)
}
