//! A transformer decoder with a KV cache.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::{rms_norm, silu, softmax_last_dim};
use candle_nn::{Embedding, Linear, Module};
use orlop::memory::Tag;
use orlop::memory::bare::GlobalAllocator;
use orlop::prelude::MemoryKind;

/// The size of a token's vector in elements.
pub const WIDTH: usize = 512;
const HEADS: usize = 8;
const HEAD_WIDTH: usize = WIDTH / HEADS;
const HIDDEN: usize = 4 * WIDTH;

/// A decoder with random weights.
#[derive(Debug)]
pub struct Decoder {
    embedding: Embedding,
    layers: Vec<DecoderLayer>,
    norm: Tensor,
    head: Linear,
}

#[derive(Debug)]
struct DecoderLayer {
    attention_norm: Tensor,
    queries: Linear,
    keys: Linear,
    values: Linear,
    output: Linear,
    mlp_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
    /// Keys and values of all tokens so far, in two tensors of 1 × heads × tokens × width.
    cache: Option<(Tensor, Tensor)>,
}

/// Counts what `f` allocates under a kind and a tag.
fn scope<R>(kind: MemoryKind, tag: &'static str, f: impl FnOnce() -> R) -> R {
    GlobalAllocator::scope(kind, Tag::new(tag), f)
}

fn weight(rows: usize, columns: usize) -> Result<Tensor> {
    Tensor::randn(0f32, 0.02, (rows, columns), &Device::Cpu)
}

fn linear(from: usize, to: usize) -> Result<Linear> {
    Ok(Linear::new(weight(to, from)?, None))
}

fn ones() -> Result<Tensor> {
    Tensor::ones(WIDTH, DType::F32, &Device::Cpu)
}

impl Decoder {
    /// Creates the weights of `layers` layers, for a vocabulary of this size.
    ///
    /// # Errors
    ///
    /// Those of candle.
    pub fn new(layers: usize, vocabulary: usize) -> Result<Self> {
        scope(MemoryKind::Persistent, "weights", || {
            Ok(Self {
                embedding: Embedding::new(weight(vocabulary, WIDTH)?, WIDTH),
                layers: (0..layers).map(|_| DecoderLayer::new()).collect::<Result<_>>()?,
                norm: ones()?,
                head: linear(WIDTH, vocabulary)?,
            })
        })
    }

    /// Appends tokens and returns the most likely next one.
    ///
    /// # Errors
    ///
    /// Those of candle.
    pub fn forward(&mut self, tokens: &[u32]) -> Result<u32> {
        scope(MemoryKind::Workspace, "residual stream", || {
            let ids = Tensor::new(tokens, &Device::Cpu)?;
            let mut stream = self.embedding.forward(&ids)?.unsqueeze(0)?;
            for layer in &mut self.layers {
                stream = layer.forward(&stream)?;
            }
            scope(MemoryKind::Workspace, "logits", || {
                let last = stream.narrow(1, tokens.len() - 1, 1)?.contiguous()?;
                let logits = self.head.forward(&rms_norm(&last, &self.norm, 1e-5)?)?;
                logits.flatten_all()?.argmax(D::Minus1)?.to_scalar::<u32>()
            })
        })
    }
}

impl DecoderLayer {
    fn new() -> Result<Self> {
        Ok(Self {
            attention_norm: ones()?,
            queries: linear(WIDTH, WIDTH)?,
            keys: linear(WIDTH, WIDTH)?,
            values: linear(WIDTH, WIDTH)?,
            output: linear(WIDTH, WIDTH)?,
            mlp_norm: ones()?,
            gate: linear(WIDTH, HIDDEN)?,
            up: linear(WIDTH, HIDDEN)?,
            down: linear(HIDDEN, WIDTH)?,
            cache: None,
        })
    }

    fn forward(&mut self, stream: &Tensor) -> Result<Tensor> {
        let attended = scope(MemoryKind::Workspace, "attention", || self.attend(stream))?;
        let stream = (stream + attended)?;
        let changed = scope(MemoryKind::Workspace, "mlp", || {
            let input = rms_norm(&stream, &self.mlp_norm, 1e-5)?;
            let hidden = (silu(&self.gate.forward(&input)?)? * self.up.forward(&input)?)?;
            self.down.forward(&hidden)
        })?;
        stream + changed
    }

    fn attend(&mut self, stream: &Tensor) -> Result<Tensor> {
        let (_, count, _) = stream.dims3()?;
        let input = rms_norm(stream, &self.attention_norm, 1e-5)?;
        let by_head = |linear: &Linear| {
            linear.forward(&input)?.reshape((1, count, HEADS, HEAD_WIDTH))?.transpose(1, 2)?.contiguous()
        };
        let queries = by_head(&self.queries)?;
        let (keys, values) = (by_head(&self.keys)?, by_head(&self.values)?);
        let (keys, values) = scope(MemoryKind::KvCache, "kv cache", || match self.cache.take() {
            None => Ok::<_, candle_core::Error>((keys.copy()?, values.copy()?)),
            Some((old_keys, old_values)) => {
                Ok((Tensor::cat(&[&old_keys, &keys], 2)?, Tensor::cat(&[&old_values, &values], 2)?))
            }
        })?;
        self.cache = Some((keys.clone(), values.clone()));
        let scale = 1.0 / f64::from(u32::try_from(HEAD_WIDTH).unwrap_or(1)).sqrt();
        let mut scores = (queries.matmul(&keys.t()?.contiguous()?)? * scale)?;
        if count > 1 {
            scores = scores.broadcast_add(&causal_mask(count, keys.dim(2)?)?)?;
        }
        let mixed = softmax_last_dim(&scores)?.matmul(&values)?;
        self.output.forward(&mixed.transpose(1, 2)?.contiguous()?.reshape((1, count, WIDTH))?)
    }
}

/// Returns a mask that hides later tokens: the last `count` of `total` attend.
fn causal_mask(count: usize, total: usize) -> Result<Tensor> {
    let hidden = |row: usize, column: usize| column > total - count + row;
    let mask: Vec<f32> = (0..count)
        .flat_map(|row| {
            (0..total).map(move |column| if hidden(row, column) { f32::NEG_INFINITY } else { 0.0 })
        })
        .collect();
    Tensor::from_vec(mask, (count, total), &Device::Cpu)
}
