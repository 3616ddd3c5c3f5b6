//! Operators of `com.microsoft` into which transformers are fused: attention of packed tokens, with caches
//! and with linear states; projections of several matrices at once.

use super::contrib::{fused_product, halved, mean_of, packed_columns};
use super::elementwise::{broadcast, broadcast_all, same};
use super::{Operator, over_first, own};
use crate::infer::{Call, Fact, Fault, Outcome, Range, Tensor, axis_of, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    over_first("ScaledSiLU", same),
    own("GatedAdd", same),
    own("GatedRMSNorm", same),
    own("BranchwiseRMSNorm", same),
    own("MRotaryEmbedding", same),
    own("LongformerAttention", same),
    own("QOrderedGelu", same),
    own("QOrderedLayerNormalization", same),
    own("QuantizeWithOrder", |call| one(types::INT8, call.shape(0)?.to_vec())),
    own("SwiGLU", |call| if call.has(1) { same(call) } else { halved(call) }),
    own("GemmaRotaryEmbedding", |call| Ok(vec![of_input(call, 1)?, of_input(call, 3)?])),
    own("ComplexMulConj", broadcast),
    own("MulInteger", |call| one(types::INT32, broadcast_all(call, [0, 2])?)),
    own("ReduceSumInteger", |call| mean_of(call, types::INT32)),
    own("FusedMatMulActivation", fused_product),
    own("MatMulNBitsQLoRA", |call| packed_columns(call, "N")),
    own("MatMulNBitsMlp", |call| with_sum(call, &["N"])),
    own("MatMulNBitsQkv", |call| with_sum(call, &["Nq", "Nkv", "Nkv"])),
    own("MatMulBlockQuantizedFp8Weight", rows_of_weights),
    own("MatMulBlockQuantizedFp4Weight", rows_of_weights),
    own("TorchEmbedding", |call| one(call.data_type(0), [call.shape(1)?, &[call.size(0, 1)?]].concat())),
    own("QEmbedLayerNormalization", embed_quantized),
    own("BitmaskDropout", bit_mask),
    own("BitmaskBiasDropout", bit_mask),
    own("RelativePositionBias", position_bias),
    own("GatedRelativePositionBias", gated_position_bias),
    own("RemovePadding", remove_padding),
    own("RestorePadding", |call| one(call.data_type(0), [call.shape(1)?, &[call.size(0, 1)?]].concat())),
    own("PackedAttention", packed_attention),
    own("PackedMultiHeadAttention", packed_multi_head),
    own("DecoderMaskedSelfAttention", masked_self_attention),
    own("DecoderMaskedMultiHeadAttention", masked_multi_head),
    own("SparseAttention", sparse_attention),
    own("PagedAttention", paged_attention),
    own("LinearAttention", linear_attention),
    own("LinearAttentionGate", |call| Ok(vec![of_input(call, 0)?, of_input(call, 0)?])),
    own("CausalConvWithState", causal_convolution),
    own("UnfoldTensor", unfold),
    own("DynamicTimeWarping", warp),
];

/// Returns a tensor with the type and the shape of an input.
fn of_input(call: &Call<'_>, index: usize) -> Result<Fact, Fault> {
    Ok(Tensor::new(call.data_type(index), call.shape(index)?.to_vec()).into())
}

fn number(call: &Call<'_>, attribute: &str) -> Result<Range, Fault> {
    call.int(attribute).map(Range::exactly).ok_or(Fault::Unknown)
}

fn last_of(shape: &[Range]) -> Result<(&[Range], Range), Fault> {
    shape.split_last().map(|(&last, outer)| (outer, last)).ok_or(Fault::Invalid("its input is a scalar"))
}

/// Projections of one input to these numbers of columns, and the sum of the input with what is added to it.
fn with_sum(call: &Call<'_>, columns: &[&str]) -> Outcome {
    let (outer, _) = last_of(call.shape(0)?)?;
    let mut outputs = Vec::new();
    for name in columns {
        outputs.push(Tensor::new(call.data_type(0), [outer, &[number(call, name)?]].concat()).into());
    }
    outputs.push(of_input(call, 0)?);
    Ok(outputs)
}

fn rows_of_weights(call: &Call<'_>) -> Outcome {
    let (outer, _) = last_of(call.shape(0)?)?;
    one(call.data_type(0), [outer, &[call.size(1, 0)?]].concat())
}

/// As without quantization, but all scales are of the result's type.
fn embed_quantized(call: &Call<'_>) -> Outcome {
    let ids = call.shape(0)?;
    let hidden = Tensor::new(call.data_type(8), [ids, &[call.size(2, 1)?]].concat());
    Ok(vec![hidden.into(), Tensor::new(types::INT32, ids[..ids.len().min(1)].to_vec()).into()])
}

/// A dropout whose mask has a bit for each element, in words of 32 bits.
fn bit_mask(call: &Call<'_>) -> Outcome {
    let words = Range::product(call.shape(0)?).map_increasing(|bits| (bits + 31) / 32);
    Ok(vec![of_input(call, 0)?, Tensor::new(types::UINT32, vec![words]).into()])
}

fn position_bias(call: &Call<'_>) -> Outcome {
    let shape = vec![Range::exactly(1), call.size(0, 1)?, call.integer(1)?, call.integer(2)?];
    one(call.data_type(0), shape)
}

fn gated_position_bias(call: &Call<'_>) -> Outcome {
    let batch = if call.has(6) { call.size(6, 0)? } else { call.size(0, 0)? };
    let length = call.size(2, 3)?;
    one(call.data_type(0), vec![batch, number(call, "num_heads")?, length, length])
}

/// How many tokens are left depends on data.
fn remove_padding(call: &Call<'_>) -> Outcome {
    let &[batch, length, hidden] = call.shape(0)? else {
        return Err(Fault::Invalid("its input has not three dimensions"));
    };
    let tokens = Range::up_to(batch.multiply(length).max());
    let integers = |shape: Vec<Range>| Fact::from(Tensor::new(types::INT32, shape));
    Ok(vec![
        Tensor::new(call.data_type(0), vec![tokens, hidden]).into(),
        integers(vec![batch, length]),
        integers(vec![batch.add(Range::exactly(1))]),
        integers(vec![Range::exactly(1)]),
    ])
}

fn packed_attention(call: &Call<'_>) -> Outcome {
    let width = match call.ints("qkv_hidden_sizes") {
        Some(&[_, _, width]) => Range::exactly(width),
        _ => call.size(1, 1)?.divide(Range::exactly(3)).ok_or(Fault::Unknown)?,
    };
    one(call.data_type(0), vec![call.size(0, 0)?, width])
}

/// Queries, keys and values apart, as `[tokens, hidden]`; or packed: `[tokens, heads, 3, size]`.
fn packed_multi_head(call: &Call<'_>) -> Outcome {
    let width = match (call.shape(0)?, call.shape(2)) {
        (&[_, heads, _, size], Err(_)) => heads.multiply(size),
        (_, Ok(&[_, width])) => width,
        _ => return Err(Fault::Unknown),
    };
    one(call.data_type(0), vec![call.size(0, 0)?, width])
}

/// Returns the length of a cache with one more token, or that of a cache that is written in place.
fn cached(call: &Call<'_>, past: Range, new: Range) -> Range {
    if call.flag("past_present_share_buffer") { past } else { past.add(new) }
}

/// One token: weights for queries, keys and values in one matrix, keys and values in one cache.
fn masked_self_attention(call: &Call<'_>) -> Outcome {
    let &[two, batch, heads, past, size] = call.shape(4)? else {
        return Err(Fault::Invalid("its cache has not five dimensions"));
    };
    let length = call.size(0, 1)?;
    let output = vec![call.size(0, 0)?, length, heads.multiply(size)];
    let present = vec![two, batch, heads, cached(call, past, length), size];
    let data_type = call.data_type(0);
    Ok(vec![Tensor::new(data_type, output).into(), Tensor::new(data_type, present).into()])
}

/// One token, with keys and values of the same sequence, or with those of another as a cache.
fn masked_multi_head(call: &Call<'_>) -> Outcome {
    let data_type = call.data_type(0);
    let heads = number(call, "num_heads")?;
    let &[batch, length, width] = call.shape(0)? else { return Err(Fault::Unknown) };
    let of = |shape: Vec<Range>| Fact::from(Tensor::new(data_type, shape));
    if let (Ok(&[_, _, total, _]), Ok(&[_, _, _, size])) = (call.shape(1), call.shape(2)) {
        let scores = of(vec![batch, heads, length, total]);
        return Ok(vec![
            of(vec![batch, length, heads.multiply(size)]),
            of_input(call, 1)?,
            of_input(call, 2)?,
            scores,
        ]);
    }
    let width = match call.size(2, 2) {
        Ok(width) => width,
        Err(_) => width.divide(Range::exactly(3)).ok_or(Fault::Unknown)?,
    };
    let output = of(vec![batch, length, width]);
    let (&[_, _, past, key], &[_, _, _, value]) = (call.shape(5)?, call.shape(6)?) else {
        return Err(Fault::Invalid("its cache has not four dimensions"));
    };
    let total = cached(call, past, length);
    Ok(vec![
        output,
        of(vec![batch, heads, total, key]),
        of(vec![batch, heads, total, value]),
        of(vec![batch, heads, length, total]),
    ])
}

/// The caches have their maximum length from the beginning.
fn sparse_attention(call: &Call<'_>) -> Outcome {
    let &[batch, length, _] = call.shape(0)? else { return Err(Fault::Unknown) };
    let width = number(call, "num_heads")?.multiply(call.size(3, 3)?);
    let output = Tensor::new(call.data_type(0), vec![batch, length, width]);
    Ok(vec![output.into(), of_input(call, 3)?, of_input(call, 4)?])
}

fn paged_attention(call: &Call<'_>) -> Outcome {
    let (tokens, width) = (call.size(0, 0)?, call.size(0, 1)?);
    let heads = number(call, "num_heads")?;
    let is_packed = !call.has(1);
    let size = match call.int_or("v_head_size", 0) {
        0 if is_packed => {
            let key_heads = number(call, "kv_num_heads")?;
            width.divide(heads.add(key_heads).add(key_heads)).ok_or(Fault::Invalid("it has no heads"))?
        }
        0 => width.divide(heads).ok_or(Fault::Invalid("it has no heads"))?,
        size => Range::exactly(size),
    };
    let output = Tensor::new(call.data_type(0), vec![tokens, heads.multiply(size)]);
    let mut outputs = vec![output.into(), of_input(call, 3)?];
    outputs.extend(of_input(call, 4));
    Ok(outputs)
}

/// `[batch, length, heads × size]`; the state has keys times values for each head.
fn linear_attention(call: &Call<'_>) -> Outcome {
    let (query_heads, heads) = (number(call, "q_num_heads")?, number(call, "kv_num_heads")?);
    let per_head = |width: Range, heads: Range| width.divide(heads).ok_or(Fault::Invalid("it has no heads"));
    let &[batch, length, query] = call.shape(0)? else { return Err(Fault::Unknown) };
    let (key, value) = (per_head(query, query_heads)?, per_head(call.size(2, 2)?, heads)?);
    let output = vec![batch, length, query_heads.maximum(heads).multiply(value)];
    let mut state = vec![batch, heads, key, value];
    if let window @ 1.. = call.int_or("state_window", 0) {
        state.insert(0, Range::exactly(window));
    }
    let state_type = if call.has(3) { call.data_type(3) } else { call.data_type(0) };
    Ok(vec![Tensor::new(call.data_type(0), output).into(), Tensor::new(state_type, state).into()])
}

/// The state holds what the kernel reaches back to.
fn causal_convolution(call: &Call<'_>) -> Outcome {
    let is_extended = ["state_update_capacity", "input_channels", "channels_last", "state_channels_last"];
    if is_extended.iter().any(|name| call.flag(name)) || call.int_or("ndim", 1) != 1 {
        return Err(Fault::Unknown);
    }
    let mut outputs = vec![of_input(call, 0)?];
    outputs.push(match of_input(call, 3) {
        Ok(past) => past,
        Err(_) => {
            let reach = call.size(1, 2)?.subtract(Range::exactly(1));
            let length = reach.multiply(Range::exactly(call.int_or("dilation", 1)));
            let mut state = vec![call.size(0, 0)?, call.size(0, 1)?, length.maximum(Range::exactly(0))];
            if let window @ 1.. = call.int_or("state_window", 0) {
                state.insert(0, Range::exactly(window));
            }
            Tensor::new(call.data_type(0), state).into()
        }
    });
    Ok(outputs)
}

/// Windows along an axis, whose elements are a new last one.
fn unfold(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_of(call.int_or("dim", -1), shape.len())?;
    let (size, step) = (number(call, "size")?, Range::exactly(call.int_or("step", 1)));
    let places = shape[axis].subtract(size).divide(step).ok_or(Fault::Invalid("its step is 0"))?;
    if places.max() < 0 {
        return Err(Fault::Invalid("its window is larger than its input"));
    }
    shape[axis] = places.maximum(Range::exactly(0)).add(Range::exactly(1));
    shape.push(size);
    one(call.data_type(0), shape)
}

/// A path through a matrix.
fn warp(call: &Call<'_>) -> Outcome {
    let ([.., rows, columns], 2..=3) = (call.shape(0)?, call.rank(0)?) else {
        return Err(Fault::Invalid("its input is no matrix"));
    };
    let longest = rows.add(*columns).subtract(Range::exactly(1)).maximum(Range::exactly(0));
    one(types::INT32, vec![Range::exactly(2), rows.maximum(*columns).minimum(longest).hull(longest)])
}
