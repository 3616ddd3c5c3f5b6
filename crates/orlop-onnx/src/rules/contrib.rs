//! Operators of ONNX Runtime's domain, `com.microsoft`.

use super::conv::{convolution, convolved};
use super::elementwise::{broadcast, same};
use super::matmul::{gemm, product};
use super::normalize::layer;
use super::pool::pooled;
use super::quantize::{dequantize, quantize};
use super::recurrent::recurrent;
use super::reduce::global;
use super::resize::grid_sample;
use super::{Operator, over_first, own};
use crate::infer::{Call, Fact, Fault, Outcome, Range, Tensor, axis_of, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    over_first("FastGelu", same),
    over_first("Gelu", same),
    over_first("QuickGelu", same),
    over_first("BiasGelu", same),
    over_first("BiasDropout", same),
    own("BiasAdd", same),
    own("BiasSoftmax", same),
    own("BiasSplitGelu", halved),
    own("Inverse", same),
    own("Trilu", same),
    own("QLinearSigmoid", same),
    own("QLinearLeakyRelu", same),
    own("QLinearSoftmax", same),
    own("QLinearAdd", binary_quantized),
    own("QLinearMul", binary_quantized),
    own("QLinearConv", |call| {
        one(call.data_type(7), with_channels(call, |shape| convolved(call, shape, 3))?)
    }),
    own("NhwcConv", convolve_last),
    own("NhwcFusedConv", convolve_last),
    own("QLinearConcat", concat_quantized),
    own("QLinearAveragePool", |call| {
        one(call.data_type(0), with_channels(call, |shape| pooled(call, shape))?)
    }),
    own("MaxpoolWithMask", |call| one(call.data_type(0), pooled(call, call.shape(0)?)?)),
    own("NhwcMaxPool", |call| one(call.data_type(0), channels_last(call, |shape| pooled(call, shape))?)),
    own("QLinearGlobalAveragePool", pool_quantized),
    own("QLinearReduceMean", |call| mean_of(call, call.data_type(0))),
    own("QLinearWhere", where_quantized),
    own("QuantizeLinear", quantize),
    own("DequantizeLinear", dequantize),
    own("DynamicQuantizeMatMul", |call| product(call, 0, 1, types::FLOAT)),
    own("MatMulIntegerToFloat", |call| product(call, 0, 1, call.data_type(2))),
    own("MatMulInteger16", |call| product(call, 0, 1, types::INT32)),
    own("MatMulNBits", quantized_weights),
    own("MatMulBnb4", quantized_weights),
    own("MatMulFpQ4", quantized_weights),
    own("FusedMatMul", fused_product),
    own("TransposeMatMul", fused_product),
    own("FusedGemm", gemm),
    own("GemmFastGelu", |call| product(call, 0, 1, call.data_type(0))),
    own("QGemm", quantized_gemm),
    own("FusedConv", |call| convolution(call, 1, call.data_type(0))),
    own("DynamicQuantizeLSTM", recurrent),
    own("MoE", same),
    own("QMoE", same),
    own("GridSample", grid_sample),
    own("LayerNormalization", layer),
    own("SimplifiedLayerNormalization", layer),
    own("SkipLayerNormalization", skip_layer),
    own("SkipSimplifiedLayerNormalization", skip_layer),
    own("SkipGroupNorm", same),
    own("GroupNorm", same),
    own("EmbedLayerNormalization", embed),
    own("Attention", attention),
    own("QAttention", |call| attention_of(call, call.data_type(3))),
    own("MultiHeadAttention", multi_head),
    own("GroupQueryAttention", group_query),
    own("RotaryEmbedding", same),
    own("GatherND", |call| (super::find("", "GatherND").ok_or(Fault::Unknown)?.rule)(call)),
    own("Pad", |call| (super::find("", "Pad").ok_or(Fault::Unknown)?.rule)(call)),
    own("Range", |call| (super::find("", "Range").ok_or(Fault::Unknown)?.rule)(call)),
    own("Unique", |call| (super::find("", "Unique").ok_or(Fault::Unknown)?.rule)(call)),
    own("CDist", |call| one(call.data_type(0), vec![call.size(0, 0)?, call.size(1, 0)?])),
    own("IsAllFinite", |_| one(types::BOOL, Vec::new())),
    own("SampleOp", same),
    own("GatherBlockQuantized", gather_quantized),
    own("ExpandDims", expand_dims),
    own("CropAndResize", crop_and_resize),
    own("ComplexMul", broadcast),
    own("Rfft", spectrum),
    own("MurmurHash3", |call| one(types::INT32, call.shape(0)?.to_vec())),
    own("Tokenizer", |call| one(types::STRING, [call.shape(0)?, &[Range::ANY_SIZE]].concat())),
    own("WordConvEmbedding", |call| one(types::FLOAT, vec![call.size(0, 0)?, call.size(1, 0)?])),
    own("NGramRepeatBlock", |call| Ok(vec![call.fact(1)?.clone()])),
];

/// Applies a rule for images to one whose channels are its last dimension, if an attribute says so.
fn with_channels(
    call: &Call<'_>,
    rule: impl Fn(&[Range]) -> Result<Vec<Range>, Fault>,
) -> Result<Vec<Range>, Fault> {
    if call.flag("channels_last") { channels_last(call, rule) } else { rule(call.shape(0)?) }
}

fn channels_last(
    call: &Call<'_>,
    rule: impl Fn(&[Range]) -> Result<Vec<Range>, Fault>,
) -> Result<Vec<Range>, Fault> {
    let mut shape = call.shape(0)?.to_vec();
    let channels = shape.pop().filter(|_| !shape.is_empty());
    shape.insert(1, channels.ok_or(Fault::Invalid("its input has no channels"))?);
    let mut result = rule(&shape)?;
    let channels = result.remove(1);
    result.push(channels);
    Ok(result)
}

/// Rows of a table whose elements may be packed into bytes; they become those of the scales.
fn gather_quantized(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let packed = axis_of(call.int_or("quantize_axis", 1), shape.len())?;
    if call.data_type(0) == types::UINT8 {
        let bits = Range::exactly(call.int_or("bits", 4));
        let per_byte = Range::exactly(8).divide(bits).ok_or(Fault::Invalid("its elements have no bits"))?;
        shape[packed] = shape[packed].multiply(per_byte);
    }
    let axis = axis_of(call.int_or("gather_axis", 0), shape.len())?;
    let gathered = [&shape[..axis], call.shape(1)?, &shape[axis + 1..]].concat();
    one(call.data_type(2), gathered)
}

/// A convolution of images with channels in the last dimension.
fn convolve_last(call: &Call<'_>) -> Outcome {
    one(call.data_type(0), channels_last(call, |shape| convolved(call, shape, 1))?)
}

/// Halves the last dimension.
pub(super) fn halved(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let last = shape.last_mut().ok_or(Fault::Invalid("its input is a scalar"))?;
    *last = last.divide(Range::exactly(2)).ok_or(Fault::Unknown)?;
    one(call.data_type(0), shape)
}

/// Inputs with their scale and their zero point: the second tensor is the fourth input.
fn binary_quantized(call: &Call<'_>) -> Outcome {
    one(call.data_type(0), super::elementwise::broadcast_all(call, [0, 3])?)
}

fn where_quantized(call: &Call<'_>) -> Outcome {
    one(call.data_type(1), super::elementwise::broadcast_all(call, [0, 1, 4])?)
}

/// Scale and zero point of the output, then three inputs for each part.
fn concat_quantized(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(2)?.to_vec();
    let axis = axis_of(call.int_or("axis", 1), shape.len())?;
    for index in (5..call.inputs.len()).step_by(3) {
        shape[axis] = shape[axis].add(call.size(index, axis)?);
    }
    one(call.data_type(2), shape)
}

fn pool_quantized(call: &Call<'_>) -> Outcome {
    if !call.flag("channels_last") {
        return global(call);
    }
    let mut shape = call.shape(0)?.to_vec();
    let last = shape.len().saturating_sub(1);
    shape.get_mut(1..last).ok_or(Fault::Invalid("its input has no channels"))?.fill(Range::exactly(1));
    one(call.data_type(0), shape)
}

/// Reduces along the axes of an attribute.
pub(super) fn mean_of(call: &Call<'_>, data_type: i32) -> Outcome {
    let shape = call.shape(0)?;
    let axes = call.ints("axes").unwrap_or_default();
    let mut is_reduced = vec![axes.is_empty(); shape.len()];
    for &axis in axes {
        is_reduced[axis_of(axis, shape.len())?] = true;
    }
    let keeps = call.int_or("keepdims", 1) != 0;
    let kept = shape.iter().zip(is_reduced).filter_map(|(&size, is_reduced)| match is_reduced {
        false => Some(size),
        true => keeps.then_some(Range::exactly(1)),
    });
    one(data_type, kept.collect())
}

/// Weights of N rows, whose packed form does not say it.
fn quantized_weights(call: &Call<'_>) -> Outcome {
    packed_columns(call, "N")
}

/// A product with as many columns as an attribute says.
pub(super) fn packed_columns(call: &Call<'_>, columns: &str) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    *shape.last_mut().ok_or(Fault::Invalid("its input is a scalar"))? =
        Range::exactly(call.int(columns).ok_or(Fault::Unknown)?);
    one(call.data_type(0), shape)
}

/// A matrix may have its rows in front of the batch.
pub(super) fn fused_product(call: &Call<'_>) -> Outcome {
    let side = |index: usize, is_batch_transposed: bool, is_transposed: bool| {
        let mut shape = call.shape(index)?.to_vec();
        let rank = shape.len();
        if is_batch_transposed && rank > 1 {
            shape[..rank - 1].rotate_left(1);
        }
        if is_transposed && rank > 1 {
            shape.swap(rank - 1, rank - 2);
        }
        Ok(shape)
    };
    let left = side(0, call.flag("transBatchA"), call.flag("transA"))?;
    let right = side(1, call.flag("transBatchB"), call.flag("transB"))?;
    one(call.data_type(0), super::matmul::multiplied(&left, &right)?)
}

/// `A`, scale, zero point, `B`, scale, zero point, `C`, scale, zero point of the output.
fn quantized_gemm(call: &Call<'_>) -> Outcome {
    let side = |index: usize, transposed: &str| match (call.shape(index)?, call.flag(transposed)) {
        (&[rows, columns], false) | (&[columns, rows], true) => Ok((rows, columns)),
        _ => Err(Fault::Invalid("it multiplies what is no matrix")),
    };
    let ((rows, _), (_, columns)) = (side(0, "transA")?, side(3, "transB")?);
    let data_type = if call.has(8) { call.data_type(8) } else { types::FLOAT };
    one(data_type, vec![rows, columns])
}

/// Statistics, and the sum of the inputs as the fourth output.
fn skip_layer(call: &Call<'_>) -> Outcome {
    let mut outputs = layer(call)?;
    let sum = outputs.first().cloned().ok_or(Fault::Unknown)?;
    outputs.push(sum);
    Ok(outputs)
}

/// Token ids `[batch, length]`, and a table of the words as the third input.
fn embed(call: &Call<'_>) -> Outcome {
    let (&[batch, length], hidden) = (call.shape(0)?, call.size(2, 1)?) else {
        return Err(Fault::Invalid("its ids have not two dimensions"));
    };
    let table = call.data_type(2);
    let hidden = Tensor::new(table, vec![batch, length, hidden]);
    let mask = Tensor::new(types::INT32, vec![batch]);
    Ok(vec![hidden.clone().into(), mask.into(), hidden.into()])
}

/// `[batch, length, hidden]`, weights for queries, keys and values in one matrix; the state of all keys and
/// values is the second output.
fn attention(call: &Call<'_>) -> Outcome {
    attention_of(call, call.data_type(0))
}

fn attention_of(call: &Call<'_>, data_type: i32) -> Outcome {
    let &[batch, length, _] = call.shape(0)? else {
        return Err(Fault::Invalid("its input has not three dimensions"));
    };
    let sizes = call.ints("qkv_hidden_sizes").filter(|sizes| sizes.len() == 3);
    let width = match sizes {
        Some(sizes) => Range::exactly(sizes[2]),
        None => {
            let all = call.size(1, 1).or_else(|_| call.size(2, 0))?;
            all.divide(Range::exactly(3)).ok_or(Fault::Unknown)?
        }
    };
    let heads = Range::exactly(call.int("num_heads").ok_or(Fault::Unknown)?);
    let output = Tensor::new(data_type, vec![batch, length, width]);
    let past = if call.node.operator == "QAttention" { 8 } else { 4 };
    let total = if call.has(past) { call.size(past, 3)?.add(length) } else { length };
    let size = width.divide(heads).ok_or(Fault::Invalid("it has no heads"))?;
    let present = vec![Range::exactly(2), batch, heads, total, size];
    Ok(vec![output.into(), Tensor::new(data_type, present).into()])
}

/// Queries, keys and values apart, as `[batch, length, hidden]`; or packed: `[batch, length, heads, 3,
/// size]`.
fn multi_head(call: &Call<'_>) -> Outcome {
    let data_type = call.data_type(0);
    let heads = Range::exactly(call.int("num_heads").ok_or(Fault::Unknown)?);
    let of = |shape: Vec<Range>| Fact::from(Tensor::new(data_type, shape));
    let per_head = |width: Range| width.divide(heads).ok_or(Fault::Invalid("it has no heads"));
    let (batch, length, key_length, key_size, value_size) =
        match (call.shape(0)?, call.shape(1), call.shape(2)) {
            (&[batch, length, heads_in, three, size], _, _) if three.is_exactly(3) && heads_in == heads => {
                (batch, length, length, size, size)
            }
            (&[batch, length, width], Ok(&[_, _, key_length, _]), Ok(&[_, _, _, value_size])) => {
                (batch, length, key_length, per_head(width)?, value_size)
            }
            (&[batch, length, width], Ok(&[_, key_length, _, _, size]), Err(_)) => {
                (batch, length, key_length, per_head(width)?, size)
            }
            (&[batch, length, width], Ok(&[_, key_length, _]), Ok(&[_, _, value_width])) => {
                (batch, length, key_length, per_head(width)?, per_head(value_width)?)
            }
            _ => return Err(Fault::Unknown),
        };
    let total = if call.has(6) { call.size(6, 2)?.add(key_length) } else { key_length };
    Ok(vec![
        of(vec![batch, length, heads.multiply(value_size)]),
        of(vec![batch, heads, total, key_size]),
        of(vec![batch, heads, total, value_size]),
        of(vec![batch, heads, length, total]),
    ])
}

/// The outputs for keys and values have the size of the buffers that come in.
fn group_query(call: &Call<'_>) -> Outcome {
    let data_type = call.data_type(0);
    let &[batch, length, width] = call.shape(0)? else {
        return Err(Fault::Invalid("its input has not three dimensions"));
    };
    let heads = |name| Ok(Range::exactly(call.int(name).ok_or(Fault::Unknown)?));
    let (query_heads, key_heads) = (heads("num_heads")?, heads("kv_num_heads")?);
    let all = match call.has(1) {
        true => query_heads,
        false => query_heads.add(key_heads).add(key_heads),
    };
    let size = width.divide(all).ok_or(Fault::Invalid("it has no heads"))?;
    let present = || -> Result<Vec<Range>, Fault> {
        let past = call.size(3, 2)?;
        // The total length is an input; without it there are at most the past and the new ones.
        let grown = past.add(length);
        let total = match call.integer(6).ok().and_then(Range::exact) {
            Some(total) => past.maximum(Range::exactly(total)),
            None => past.hull(grown),
        };
        Ok(vec![batch, key_heads, total, size])
    };
    let output: Fact = Tensor::new(data_type, vec![batch, length, query_heads.multiply(size)]).into();
    let with_state = |data_type: i32, shape: Vec<Range>| {
        let scores = Tensor::new(call.data_type(0), vec![batch, query_heads, length, shape[2]]);
        let present = Fact::from(Tensor::new(data_type, shape));
        vec![output.clone(), present.clone(), present, scores.into()]
    };
    Ok(match present() {
        Ok(shape) => with_state(call.data_type(3), shape),
        Err(_) if !call.has(3) => with_state(data_type, vec![batch, key_heads, length, size]),
        Err(_) => vec![output],
    })
}

fn expand_dims(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let axis = call.integer(1)?.exact().ok_or(Fault::Unknown)?;
    shape.insert(axis_of(axis, shape.len() + 1)?, Range::exactly(1));
    one(call.data_type(0), shape)
}

fn crop_and_resize(call: &Call<'_>) -> Outcome {
    let target = super::shape::sizes(call.ranges(3)?)?;
    let &[height, width] = &*target else { return Err(Fault::Invalid("its size has not two numbers")) };
    one(call.data_type(0), vec![call.size(1, 0)?, call.size(0, 1)?, height, width])
}

/// A real signal along the last axis becomes real and imaginary parts of half of its spectrum.
fn spectrum(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let last = shape.last_mut().ok_or(Fault::Invalid("its input is a scalar"))?;
    *last = super::signal::half(*last);
    shape.push(Range::exactly(2));
    one(call.data_type(0), shape)
}
