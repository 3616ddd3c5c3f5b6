//! The model: a decoder with full, window and state layers, and random weights in a safetensors file.

use super::math::{add_product, normalize};
use orlop::kv::{KvGeometry, LayerGroup};
use orlop::prelude::*;
use orlop::tensor;
use orlop::tensor::interchange::safetensors::{Metadata, SafeTensors, save};
use std::path::Path;

pub(crate) const VOCABULARY: usize = 128;
pub(crate) const WIDTH: usize = 32;
pub(crate) const HEADS: usize = 2;
pub(crate) const HEAD_WIDTH: usize = WIDTH / HEADS;
/// The width inside the feed-forward networks.
pub(crate) const INNER: usize = 2 * WIDTH;
pub(crate) const LAYERS: usize = 6;
/// Queries, keys and values of a token.
pub(crate) const QKV: usize = 3 * WIDTH;
/// The key and the value of a token, in one layer.
pub(crate) const ENTRY: usize = 2 * WIDTH;
/// The state of one layer.
pub(crate) const STATE: usize = HEADS * HEAD_WIDTH * HEAD_WIDTH;
/// The tokens that a window layer attends to.
pub(crate) const WINDOW: u32 = 24;
/// Tokens of a block of the KV memory.
pub(crate) const BLOCK_TOKENS: u32 = 8;

/// What a layer keeps of the tokens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerKind {
    /// The keys and values of all tokens.
    Full,
    /// Those of the last [`WINDOW`] tokens.
    Window,
    /// A state that each token changes.
    State,
}

impl LayerKind {
    /// The kinds of the first layers; then they repeat. Also the order of the groups in the KV memory.
    const ALL: [Self; 3] = [Self::Full, Self::Window, Self::State];
}

/// One layer: its weights, and its place in the KV memory.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) kind: LayerKind,
    /// The layer group.
    pub(crate) group: usize,
    /// The layer's number in the group.
    pub(crate) in_group: u32,
    qkv: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
}

/// The weights: tensors in a mapped file.
#[derive(Debug)]
pub(crate) struct Model {
    embedding: Tensor,
    pub(crate) layers: Vec<Layer>,
}

impl Model {
    /// Writes a file of random weights.
    pub(crate) fn write(path: &Path) -> tensor::Result<()> {
        let mut shapes = vec![("embedding".to_owned(), [VOCABULARY, WIDTH])];
        for layer in 0..LAYERS {
            shapes.push((format!("layers.{layer}.qkv"), [QKV, WIDTH]));
            shapes.push((format!("layers.{layer}.out"), [WIDTH, WIDTH]));
            shapes.push((format!("layers.{layer}.up"), [INNER, WIDTH]));
            shapes.push((format!("layers.{layer}.down"), [WIDTH, INNER]));
        }
        let mut tensors = Vec::new();
        for (seed, (name, shape)) in (1..).zip(shapes) {
            let weights = Tensor::randn(shape, seed, DType::F32)?;
            let scale = (shape[1] as f32).sqrt().recip();
            weights.as_mut_slice::<f32>()?.iter_mut().for_each(|weight| *weight *= scale);
            tensors.push((name, weights));
        }
        save(path, tensors, &Metadata::new())
    }

    /// Maps the file: its bytes are counted as `persistent`, and nothing is copied.
    pub(crate) fn map(context: &Context, path: &Path) -> tensor::Result<Self> {
        // SAFETY: the file is neither written nor truncated while its tensors exist.
        let file = unsafe { SafeTensors::map_in(context, path) }?;
        let layer = |number: usize| {
            let tensor = |name| file.tensor(&format!("layers.{number}.{name}")).cloned();
            let group = number % LayerKind::ALL.len();
            Ok(Layer {
                kind: LayerKind::ALL[group],
                group,
                in_group: u32::try_from(number / LayerKind::ALL.len()).unwrap_or_default(),
                qkv: tensor("qkv")?,
                out: tensor("out")?,
                up: tensor("up")?,
                down: tensor("down")?,
            })
        };
        let layers = (0..LAYERS).map(layer).collect::<tensor::Result<_>>()?;
        Ok(Self { embedding: file.tensor("embedding")?.clone(), layers })
    }

    /// Returns the layer groups of the KV memory.
    pub(crate) fn geometry() -> orlop::kv::Result<KvGeometry> {
        let layers = u32::try_from(LAYERS / LayerKind::ALL.len()).unwrap_or_default();
        let (entry, state) = ((ENTRY * size_of::<f32>()) as u64, (STATE * size_of::<f32>()) as u64);
        KvGeometry::new(vec![
            LayerGroup::full("full", layers, entry).with_block_tokens(BLOCK_TOKENS),
            LayerGroup::window("window", layers, entry, WINDOW).with_block_tokens(BLOCK_TOKENS),
            LayerGroup::state("state", layers, state),
        ])
    }

    pub(crate) fn embed(&self, tokens: &[u32], hidden: &mut [f32]) -> tensor::Result<()> {
        let embedding = self.embedding.as_slice::<f32>()?;
        for (&token, row) in tokens.iter().zip(hidden.chunks_mut(WIDTH)) {
            row.copy_from_slice(&embedding[token as usize * WIDTH..][..WIDTH]);
        }
        Ok(())
    }

    /// Computes the scores of all next tokens, after each row of `hidden`.
    pub(crate) fn score(&self, hidden: &[f32], normed: &mut [f32], logits: &mut [f32]) -> tensor::Result<()> {
        normalize(hidden, normed);
        logits.fill(0.0);
        add_product(normed, &self.embedding.as_slice::<f32>()?, WIDTH, logits);
        Ok(())
    }
}

impl Layer {
    /// Computes queries, keys and values.
    pub(crate) fn project(&self, hidden: &[f32], normed: &mut [f32], qkv: &mut [f32]) -> tensor::Result<()> {
        normalize(hidden, normed);
        qkv.fill(0.0);
        add_product(normed, &self.qkv.as_slice::<f32>()?, WIDTH, qkv);
        Ok(())
    }

    /// Adds what attention or the state returned.
    pub(crate) fn merge(&self, mixed: &[f32], hidden: &mut [f32]) -> tensor::Result<()> {
        add_product(mixed, &self.out.as_slice::<f32>()?, WIDTH, hidden);
        Ok(())
    }

    pub(crate) fn feed_forward(
        &self,
        hidden: &mut [f32],
        normed: &mut [f32],
        inner: &mut [f32],
    ) -> tensor::Result<()> {
        normalize(hidden, normed);
        inner.fill(0.0);
        add_product(normed, &self.up.as_slice::<f32>()?, WIDTH, inner);
        inner.iter_mut().for_each(|value| *value = value.max(0.0));
        add_product(inner, &self.down.as_slice::<f32>()?, INNER, hidden);
        Ok(())
    }
}
