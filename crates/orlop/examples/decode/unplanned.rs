//! The same model without any of it: every buffer is a tensor of its own, and every token computes its whole
//! prefix again.

use super::Result;
use super::math::{attend, scan};
use super::model::{ENTRY, INNER, LayerKind, Model, QKV, STATE, VOCABULARY, WIDTH, WINDOW};
use orlop::prelude::*;

/// Returns the scores of all next tokens after `tokens`.
pub(crate) fn logits(context: &Context, model: &Model, tokens: &[u32]) -> Result<Vec<f32>> {
    let options = TensorOptions::new().context(context).kind(MemoryKind::Workspace);
    let empty = |width: usize| Tensor::empty([tokens.len(), width], options);
    let hidden = empty(WIDTH)?;
    let mut hidden = hidden.as_mut_slice::<f32>()?;
    model.embed(tokens, &mut hidden)?;
    for layer in &model.layers {
        let (normed, qkv, mixed) = (empty(WIDTH)?, empty(QKV)?, empty(WIDTH)?);
        let (mut qkv, mut mixed) = (qkv.as_mut_slice::<f32>()?, mixed.as_mut_slice::<f32>()?);
        layer.project(&hidden, &mut normed.as_mut_slice::<f32>()?, &mut qkv)?;
        match layer.kind {
            LayerKind::State => {
                let mut state = vec![0.0; STATE];
                for (row, output) in qkv.chunks(QKV).zip(mixed.chunks_mut(WIDTH)) {
                    scan(&mut state, row, output);
                }
            }
            LayerKind::Full | LayerKind::Window => {
                let window = if layer.kind == LayerKind::Full { usize::MAX } else { WINDOW as usize };
                let entries: Vec<f32> = qkv.chunks(QKV).flat_map(|row| &row[WIDTH..]).copied().collect();
                let rows = qkv.chunks(QKV).zip(mixed.chunks_mut(WIDTH));
                for (end, (row, output)) in (1..).zip(rows) {
                    let first = usize::saturating_sub(end, window);
                    attend(&row[..WIDTH], &entries[first * ENTRY..end * ENTRY], output);
                }
            }
        }
        layer.merge(&mixed, &mut hidden)?;
        let (normed, inner) = (empty(WIDTH)?, empty(INNER)?);
        let mut normed = normed.as_mut_slice::<f32>()?;
        layer.feed_forward(&mut hidden, &mut normed, &mut inner.as_mut_slice::<f32>()?)?;
    }
    let last = &hidden[hidden.len() - WIDTH..];
    let (normed, logits) = (Tensor::empty([WIDTH], options)?, Tensor::empty([VOCABULARY], options)?);
    model.score(last, &mut normed.as_mut_slice::<f32>()?, &mut logits.as_mut_slice::<f32>()?)?;
    Ok(logits.to_vec()?)
}
