//! [`Reuse`]: the requests of a trace one after the other, in a pool that caches their prompts.

use super::{KvModel, RequestTrace, TraceRequest};
use crate::Result;
use orlop_kv::{AdmissionRequest, ChainFields, CheckpointPolicy, KvGeometry, KvPool, MissCause, Tenant};
use serde::Serialize;

/// Prompt tokens of a step.
const CHUNK: u32 = 8192;

/// The settings of a pool in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// The bytes of the pool.
    pub bytes: u64,
    /// Tokens of a page, and of a match unit if that is more than the trace's; `None` for the model's.
    pub page_tokens: Option<u32>,
    /// Where windows and states are kept.
    pub checkpoints: CheckpointPolicy,
    /// Whether blocks that were hit outlast those that never were.
    pub scan_resistant: bool,
}

impl PoolSettings {
    /// The settings of a pool of `bytes` bytes that are chosen without a reason for others: checkpoints at
    /// ends of prompts, at junctions, and every 512 tokens as fillers.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let checkpoints = CheckpointPolicy { every: Some(512), ..CheckpointPolicy::default() };
        Self { bytes, page_tokens: None, checkpoints, scan_resistant: false }
    }
}

/// What was reused of a trace's prompts, in tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Reuse {
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Tokens that were not computed again.
    pub reused: u64,
    /// Tokens that were computed because they were new, or the prompt too short.
    pub new: u64,
    /// Tokens that were computed because they had been evicted.
    pub evicted: u64,
    /// Tokens that were cached, but without the window or the state to continue from.
    pub no_checkpoint: u64,
    /// Tokens that were cached, but the request fitted only without them, or that the model excludes.
    pub excluded: u64,
    /// Tokens of prompts that do not fit into the pool.
    pub refused: u64,
    /// Requests that do not fit.
    pub refused_requests: u64,
}

impl Reuse {
    /// Replays a trace that says what prompts share; without that, everything is new.
    ///
    /// # Errors
    /// If the model's groups do not fit together, or the pool is smaller than a large page.
    pub fn of(trace: &RequestTrace, model: &KvModel, settings: &PoolSettings) -> Result<Self> {
        let groups = match settings.page_tokens {
            Some(tokens) => model.with_block_tokens(tokens),
            None => model.groups.clone(),
        };
        // The trace says nothing about smaller units.
        let unit = trace.unit.unwrap_or(16).max(settings.page_tokens.unwrap_or(0));
        let builder = KvPool::builder(KvGeometry::new(groups)?).bytes(settings.bytes).match_unit(unit);
        let builder = builder.checkpoints(settings.checkpoints).scan_resistant(settings.scan_resistant);
        let mut pool = builder.build_detached()?;
        let (mut prompt, mut reuse) = (Vec::new(), Self::default());
        let mut unknown = u32::try_from(trace.distinct_contents()).unwrap_or(u32::MAX);
        for request in &trace.requests {
            reuse.prompt_tokens += u64::from(request.input);
            request.write_prompt(trace.unit, &mut unknown, &mut prompt);
            if !serve(&mut pool, &prompt)? {
                reuse.refused_requests += 1;
                reuse.refused += u64::from(request.input);
            }
        }
        let stats = pool.stats();
        reuse.reused = stats.hit_tokens;
        reuse.evicted = stats.missed_tokens(MissCause::Evicted);
        reuse.no_checkpoint = stats.missed_tokens(MissCause::NoCheckpoint);
        reuse.excluded = stats.missed_tokens(MissCause::NoReuse) + stats.missed_tokens(MissCause::NoRoom);
        let accounted = reuse.reused + reuse.evicted + reuse.no_checkpoint + reuse.excluded + reuse.refused;
        reuse.new = reuse.prompt_tokens.saturating_sub(accounted);
        Ok(reuse)
    }

    /// Returns a number of tokens as a share of all prompt tokens.
    #[must_use]
    pub fn share(&self, tokens: u64) -> f64 {
        tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

/// Computes a prompt, and leaves it in the cache. Returns `false` if it does not fit.
fn serve(pool: &mut KvPool, prompt: &[u32]) -> Result<bool> {
    let input = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
    let mut request = AdmissionRequest::new(ChainFields::new(Tenant::Shared, "", ""), prompt, 1);
    request.chunk = Some(CHUNK);
    let Ok(admission) = pool.admit(&request) else { return Ok(false) };
    let mut len = admission.hit;
    while len < input {
        let checkpoint = pool.tokens_to_checkpoint(&admission.sequence)?.unwrap_or(CHUNK);
        let tokens = checkpoint.min(input - len).min(CHUNK);
        pool.append(&admission.sequence, tokens)?;
        let step = pool.close_step();
        pool.settle(step)?;
        len += tokens;
    }
    pool.finish(admission.sequence)?;
    Ok(true)
}

impl TraceRequest {
    /// Writes tokens such that prompts begin with equal ones where their contents are equal. Tokens without
    /// a known content get one that no other has.
    fn write_prompt(&self, unit: Option<u32>, unknown: &mut u32, prompt: &mut Vec<u32>) {
        prompt.clear();
        let (unit, input) = (unit.unwrap_or(u32::MAX) as usize, self.input as usize);
        for &content in &self.contents {
            prompt.resize(input.min(prompt.len() + unit), content);
        }
        if prompt.len() < input {
            *unknown = unknown.wrapping_add(1);
            prompt.resize(input, *unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(ids: &[&[u32]]) -> RequestTrace {
        let line = |ids: &&[u32]| {
            let (tokens, ids) = (ids.len() * 512, format!("{ids:?}"));
            format!("{{\"timestamp\":0,\"input_length\":{tokens},\"output_length\":1,\"hash_ids\":{ids}}}\n")
        };
        RequestTrace::parse(&ids.iter().map(line).collect::<String>()).unwrap()
    }

    #[test]
    fn every_token_has_one_cause() {
        let trace = requests(&[&[1, 2, 3], &[1, 2, 4], &[9, 8, 7, 6, 5, 4], &[1, 2, 3], &[0; 99]]);
        let model = KvModel::find("llama-3-8b").unwrap();
        let large = Reuse::of(&trace, &model, &PoolSettings::new(10 << 30)).unwrap();
        assert_eq!((large.reused, large.evicted, large.refused), (2 * 1024, 0, 0));
        assert_eq!(large.new, large.prompt_tokens - 2 * 1024);
        let small = Reuse::of(&trace, &model, &PoolSettings::new(3500 * 32 * 4096)).unwrap();
        assert_eq!((small.refused_requests, small.refused), (1, 99 * 512));
        assert!(small.evicted > 0 && small.reused < large.reused);
        let sum = small.reused + small.new + small.evicted + small.no_checkpoint + small.excluded;
        assert_eq!(sum + small.refused, small.prompt_tokens);
    }

    /// A larger unit finds less, and a model with states needs checkpoints.
    #[test]
    fn pages_and_cadence() {
        // The first prompt ends at three units, and the second leaves it after two.
        let trace = requests(&[&[1, 2, 3, 5], &[1, 2, 4, 6]]);
        let model = KvModel::find("qwen3-next-80b").unwrap();
        let settings = PoolSettings::new(10 << 30);
        let reused = |settings: &PoolSettings| Reuse::of(&trace, &model, settings).unwrap().reused;
        assert_eq!(reused(&settings), 1024);
        assert_eq!(reused(&PoolSettings { page_tokens: Some(1024), ..settings }), 1024);
        assert_eq!(reused(&PoolSettings { page_tokens: Some(4096), ..settings }), 0);
        let ends = PoolSettings { checkpoints: CheckpointPolicy::default(), ..settings };
        let found = Reuse::of(&trace, &model, &ends).unwrap();
        assert_eq!((found.reused, found.no_checkpoint > 0), (0, true));
    }
}
