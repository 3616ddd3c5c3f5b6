//! The activations of a step: buffers with planned places in one arena.

use super::Result;
use super::model::{INNER, LAYERS, Layer, Model, QKV, VOCABULARY, WIDTH};
use orlop::exec::{BufferId, BufferSpec, Execution, PlanBuilder};
use orlop::prelude::*;

/// The maximum of tokens in a step.
pub(crate) const ROWS: usize = 32;
/// The maximum of rows in a step after which a token is sampled.
pub(crate) const SAMPLES: usize = 16;

/// The buffers of a layer. The first three are used in one step of the plan, the others in the next.
struct LayerBuffers {
    normed: BufferId,
    qkv: BufferId,
    mixed: BufferId,
    inner_normed: BufferId,
    inner: BufferId,
}

pub(crate) struct Activations {
    execution: Execution,
    hidden: BufferId,
    layers: Vec<LayerBuffers>,
    /// The rows after which tokens are sampled, as they are and normalized.
    last: [BufferId; 2],
    logits: BufferId,
}

impl Activations {
    /// Plans the buffers, and reserves their arena.
    pub(crate) fn new(context: &Context) -> Result<Self> {
        let spec = |name: &str, rows, width| BufferSpec::new(name, [rows, width], DType::F32);
        let end = 1 + 2 * LAYERS as u64;
        let mut plan = PlanBuilder::new();
        let hidden = plan.buffer(spec("hidden", ROWS, WIDTH)?, 0..=end)?;
        let mut layers = Vec::new();
        for step in (1..end).step_by(2) {
            layers.push(LayerBuffers {
                normed: plan.buffer(spec("normed", ROWS, WIDTH)?, step..=step)?,
                qkv: plan.buffer(spec("qkv", ROWS, QKV)?, step..=step)?,
                mixed: plan.buffer(spec("mixed", ROWS, WIDTH)?, step..=step)?,
                inner_normed: plan.buffer(spec("normed", ROWS, WIDTH)?, step + 1..=step + 1)?,
                inner: plan.buffer(spec("inner", ROWS, INNER)?, step + 1..=step + 1)?,
            });
        }
        let last = [
            plan.buffer(spec("last", SAMPLES, WIDTH)?, end..=end)?,
            plan.buffer(spec("last, normed", SAMPLES, WIDTH)?, end..=end)?,
        ];
        let logits = plan.buffer(spec("logits", SAMPLES, VOCABULARY)?, end..=end)?;
        let mut execution = plan.finish()?.prepare(context)?;
        // Without optimisation it would check each step that buffers are not used after their time, which
        // allocates.
        execution.sanitize(false)?;
        Ok(Self { execution, hidden, layers, last, logits })
    }

    /// Returns the bytes of the arena.
    pub(crate) fn planned_bytes(&self) -> u64 {
        self.execution.plan().workspace_bytes() as u64
    }

    /// Computes a step: `tokens` are its rows, and `samples` those after which a token is sampled. `mix`
    /// attends, with the KV memory; `logits` gets the scores of the samples.
    pub(crate) fn forward(
        &mut self,
        model: &Model,
        tokens: &[u32],
        samples: &[usize],
        logits: &mut Vec<f32>,
        mut mix: impl FnMut(&Layer, &[f32], &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let rows = tokens.len();
        self.execution.begin()?;
        let lent = self.execution.step(0)?;
        model.embed(tokens, &mut lent.tensor(self.hidden)?.as_mut_slice::<f32>()?[..rows * WIDTH])?;
        for (number, layer) in model.layers.iter().enumerate() {
            self.mix(number, layer, rows, &mut mix)?;
            self.feed_forward(number, layer, rows)?;
        }
        let lent = self.execution.step(1 + 2 * LAYERS as u64)?;
        let hidden = lent.tensor(self.hidden)?.as_slice::<f32>()?;
        let mut last = lent.tensor(self.last[0])?.as_mut_slice::<f32>()?;
        let mut normed = lent.tensor(self.last[1])?.as_mut_slice::<f32>()?;
        let mut scores = lent.tensor(self.logits)?.as_mut_slice::<f32>()?;
        for (&row, last) in samples.iter().zip(last.chunks_mut(WIDTH)) {
            last.copy_from_slice(&hidden[row * WIDTH..][..WIDTH]);
        }
        let (width, scores) = (samples.len() * WIDTH, &mut scores[..samples.len() * VOCABULARY]);
        model.score(&last[..width], &mut normed[..width], scores)?;
        logits.clear();
        logits.extend_from_slice(scores);
        Ok(())
    }

    fn mix(
        &mut self,
        number: usize,
        layer: &Layer,
        rows: usize,
        mix: &mut impl FnMut(&Layer, &[f32], &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let (lent, buffers) = (self.execution.step(1 + 2 * number as u64)?, &self.layers[number]);
        let mut hidden = lent.tensor(self.hidden)?.as_mut_slice::<f32>()?;
        let mut normed = lent.tensor(buffers.normed)?.as_mut_slice::<f32>()?;
        let mut qkv = lent.tensor(buffers.qkv)?.as_mut_slice::<f32>()?;
        let mut mixed = lent.tensor(buffers.mixed)?.as_mut_slice::<f32>()?;
        let hidden = &mut hidden[..rows * WIDTH];
        let (qkv, mixed) = (&mut qkv[..rows * QKV], &mut mixed[..rows * WIDTH]);
        layer.project(hidden, &mut normed[..rows * WIDTH], qkv)?;
        mix(layer, qkv, mixed)?;
        Ok(layer.merge(mixed, hidden)?)
    }

    fn feed_forward(&mut self, number: usize, layer: &Layer, rows: usize) -> Result<()> {
        let (lent, buffers) = (self.execution.step(2 + 2 * number as u64)?, &self.layers[number]);
        let mut hidden = lent.tensor(self.hidden)?.as_mut_slice::<f32>()?;
        let mut normed = lent.tensor(buffers.inner_normed)?.as_mut_slice::<f32>()?;
        let mut inner = lent.tensor(buffers.inner)?.as_mut_slice::<f32>()?;
        let (normed, inner) = (&mut normed[..rows * WIDTH], &mut inner[..rows * INNER]);
        Ok(layer.feed_forward(&mut hidden[..rows * WIDTH], normed, inner)?)
    }
}
