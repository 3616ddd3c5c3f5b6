//! The arithmetic of the example `engine`: a decoder with one attention head, and neither norms nor a
//! tokenizer. Every function gets the tensors that it reads and writes; none allocates.

use super::{LAYERS, PAGE_TOKENS, VOCABULARY, WIDTH};
use orlop::prelude::*;
use orlop::tensor;
use orlop::tensor::interchange::safetensors::{Metadata, SafeTensors, save};
use std::path::Path;

/// The weights: tensors in a mapped file.
pub(crate) struct Model {
    embedding: Tensor,
    pub(crate) layers: Vec<Layer>,
}

pub(crate) struct Layer {
    number: usize,
    qkv: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
}

impl Model {
    /// Writes a file of random weights.
    pub(crate) fn write(path: &Path) -> tensor::Result<()> {
        let mut shapes = vec![("embedding".to_owned(), [VOCABULARY, WIDTH])];
        for layer in 0..LAYERS {
            shapes.push((format!("layers.{layer}.qkv"), [3 * WIDTH, WIDTH]));
            shapes.push((format!("layers.{layer}.out"), [WIDTH, WIDTH]));
            shapes.push((format!("layers.{layer}.up"), [4 * WIDTH, WIDTH]));
            shapes.push((format!("layers.{layer}.down"), [WIDTH, 4 * WIDTH]));
        }
        let mut tensors = Vec::new();
        for (seed, (name, shape)) in (0..).zip(shapes) {
            let weights = Tensor::randn(shape, seed, DType::F32)?;
            weights.as_mut_slice::<f32>()?.iter_mut().for_each(|weight| *weight *= 0.2);
            tensors.push((name, weights));
        }
        save(path, tensors, &Metadata::new())
    }

    pub(crate) fn map(context: &Context, path: &Path) -> tensor::Result<Self> {
        // SAFETY: the file is neither written nor truncated while its tensors exist.
        let file = unsafe { SafeTensors::map_in(context, path) }?;
        let layer = |number: usize| {
            let tensor = |name| file.tensor(&format!("layers.{number}.{name}")).cloned();
            let (qkv, out, up, down) = (tensor("qkv")?, tensor("out")?, tensor("up")?, tensor("down")?);
            Ok(Layer { number, qkv, out, up, down })
        };
        let layers = (0..LAYERS).map(layer).collect::<tensor::Result<_>>()?;
        Ok(Self { embedding: file.tensor("embedding")?.clone(), layers })
    }

    pub(crate) fn embed(&self, tokens: &[usize], hidden: &Tensor) -> tensor::Result<()> {
        let embedding = self.embedding.as_slice::<f32>()?;
        for (&token, row) in tokens.iter().zip(hidden.as_mut_slice::<f32>()?.chunks_mut(WIDTH)) {
            row.copy_from_slice(&embedding[token * WIDTH..][..WIDTH]);
        }
        Ok(())
    }

    /// Returns the token with the highest score after the last row of `hidden`.
    pub(crate) fn next_token(&self, hidden: &Tensor, scores: &Tensor) -> tensor::Result<usize> {
        scores.zero_()?;
        add_product(&hidden.narrow(0, -1, 1)?, &self.embedding, scores)?;
        let scores = scores.as_slice::<f32>()?;
        Ok((0..VOCABULARY).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or_default())
    }
}

impl Layer {
    /// Attends from the rows of `hidden`, which begin at position `first`, to all positions up to their own.
    pub(crate) fn attend(
        &self,
        [hidden, qkv, mixed]: [&Tensor; 3],
        pages: &[Tensor],
        first: usize,
    ) -> tensor::Result<()> {
        qkv.zero_()?;
        add_product(hidden, &self.qkv, qkv)?;
        let qkv = qkv.as_slice::<f32>()?;
        for (position, row) in (first..).zip(qkv.chunks(3 * WIDTH)) {
            let mut page = pages[position / PAGE_TOKENS].as_mut_slice::<f32>()?;
            for half in 0..2 {
                let start = self.start_in_page(half) + position % PAGE_TOKENS * WIDTH;
                page[start..][..WIDTH].copy_from_slice(&row[(1 + half) * WIDTH..][..WIDTH]);
            }
        }
        let pages = pages.iter().map(Tensor::as_slice::<f32>).collect::<tensor::Result<Vec<_>>>()?;
        // The keys, or the values, of the first `n` positions.
        let rows = |half, n| {
            let start = self.start_in_page(half);
            pages.iter().flat_map(move |page| page[start..].chunks(WIDTH).take(PAGE_TOKENS)).take(n)
        };
        let mut output = mixed.as_mut_slice::<f32>()?;
        output.fill(0.0);
        for ((n, row), output) in (first + 1..).zip(qkv.chunks(3 * WIDTH)).zip(output.chunks_mut(WIDTH)) {
            let score = |key: &[f32]| (dot(&row[..WIDTH], key) / (WIDTH as f32).sqrt()).exp();
            let sum: f32 = rows(0, n).map(score).sum();
            for (key, value) in rows(0, n).zip(rows(1, n)) {
                let weight = score(key) / sum;
                output.iter_mut().zip(value).for_each(|(output, value)| *output += weight * value);
            }
        }
        drop(output);
        add_product(mixed, &self.out, hidden)
    }

    /// Returns the start of this layer's keys (0) or values (1) in a page.
    fn start_in_page(&self, half: usize) -> usize {
        (self.number * 2 + half) * PAGE_TOKENS * WIDTH
    }

    pub(crate) fn feed_forward(&self, hidden: &Tensor, up: &Tensor) -> tensor::Result<()> {
        up.zero_()?;
        add_product(hidden, &self.up, up)?;
        up.as_mut_slice::<f32>()?.iter_mut().for_each(|value| *value = value.tanh());
        add_product(up, &self.down, hidden)
    }
}

/// `output += input × weightsᵀ`
fn add_product(input: &Tensor, weights: &Tensor, output: &Tensor) -> tensor::Result<()> {
    let [rows, columns] = [weights.sizes()[0], weights.sizes()[1]];
    let (input, weights) = (input.as_slice::<f32>()?, weights.as_slice::<f32>()?);
    let mut output = output.as_mut_slice::<f32>()?;
    for (input, output) in input.chunks(columns).zip(output.chunks_mut(rows)) {
        for (weights, output) in weights.chunks(columns).zip(output) {
            *output += dot(input, weights);
        }
    }
    Ok(())
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
