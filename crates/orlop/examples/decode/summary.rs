//! What a run of the decoder cost, beside its plan.

use super::Result;
use super::decoder::{Decoder, StepReport};
use orlop::kv::{KvStats, MissCause, TierStats};
use orlop::prelude::*;
use orlop::types::ByteSize;
use std::fmt;
use std::time::Duration;

/// The bytes of a memory kind: as planned, and the peak.
#[derive(Debug)]
pub(crate) struct KindUse {
    pub(crate) kind: MemoryKind,
    device: Device,
    content: &'static str,
    pub(crate) planned: u64,
    pub(crate) peak: u64,
    /// Whether less than planned may be in use.
    is_limit: bool,
}

#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) kinds: Vec<KindUse>,
    pub(crate) kv: KvStats,
    /// The numbers of the host tier, if there is one.
    pub(crate) tiers: Option<TierStats>,
    pub(crate) texts: usize,
    pub(crate) preemptions: usize,
    /// Tokens that were generated, and the steps that took; after the warm-up, those that only generated.
    pub(crate) tokens: usize,
    pub(crate) steps: usize,
    pub(crate) steady_steps: usize,
    /// The allocations in steady steps.
    pub(crate) steady_allocations: u64,
    /// The time of all steps, and of a token in the model without plan and cache.
    time: Duration,
    pub(crate) time_unplanned: Duration,
}

impl Summary {
    /// Starts the summary of a run: what is planned is known before the first step.
    /// `tiers` is the budget of the host tier, 0 without one.
    pub(crate) fn new(device: Device, decoder: &Decoder<'_>, weights: u64, tiers: u64) -> Self {
        let kind = |kind, device, content, planned| {
            let is_limit = kind == MemoryKind::HostPinned && tiers > 0;
            KindUse { kind, device, content, planned, peak: 0, is_limit }
        };
        let pinned = if tiers > 0 { "staging, host tier" } else { "staging" };
        let pool = decoder.pool.memory().map_or(0, |memory| memory.len() as u64);
        let (arena, staging) = (decoder.activations.planned_bytes(), decoder.pages.staging_bytes());
        Self {
            kinds: vec![
                kind(MemoryKind::Persistent, Device::CPU, "weights, mapped", weights),
                kind(MemoryKind::Workspace, Device::CPU, "activations, one arena", arena),
                kind(MemoryKind::KvCache, device, "keys, values, states", pool),
                kind(MemoryKind::HostPinned, Device::CPU, pinned, staging + tiers),
            ],
            kv: KvStats::default(),
            tiers: None,
            texts: 0,
            preemptions: 0,
            tokens: 0,
            steps: 0,
            steady_steps: 0,
            steady_allocations: 0,
            time: Duration::ZERO,
            time_unplanned: Duration::ZERO,
        }
    }

    /// Adds a step, with the allocations after the warm-up. They count in steady steps.
    pub(crate) fn add(&mut self, step: StepReport, time: Duration, allocations: Option<u64>) {
        self.steps += 1;
        self.tokens += step.sampled;
        self.time += time;
        if let Some(allocations) = allocations.filter(|_| step.is_steady) {
            self.steady_steps += 1;
            self.steady_allocations += allocations;
        }
    }

    /// Reads the figures of the context and of the pool after the last step.
    pub(crate) fn end(&mut self, context: &Context, decoder: &mut Decoder<'_>) {
        for kind in &mut self.kinds {
            kind.peak = context.stats(kind.device).kind(kind.kind).peak_bytes;
        }
        self.kv = decoder.pool.stats();
        self.tiers = decoder.pool.tier_stats();
        self.texts = decoder.texts.len();
        self.preemptions = decoder.preemptions;
    }

    /// Checks what the program promises.
    pub(crate) fn verify(&self) -> Result<()> {
        for KindUse { kind, planned, peak, is_limit, .. } in &self.kinds {
            if planned != peak && !(*is_limit && peak < planned) {
                return Err(format!("{kind}: {planned} B were planned, and {peak} B were in use").into());
            }
        }
        if self.steady_allocations > 0 || self.steady_steps == 0 {
            return Err(format!("{} allocations in steady steps", self.steady_allocations).into());
        }
        if self.kv.evictions == 0 || self.preemptions == 0 {
            return Err("the budget forced no eviction, or no preemption".into());
        }
        if self.tiers.is_some_and(|tiers| tiers.hit_tokens == 0) {
            return Err("nothing was restored from the host tier".into());
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kv, texts, tokens, steps, .. } = self;
        writeln!(f, "{texts} texts, {tokens} tokens in {steps} steps, {} preemptions", self.preemptions)?;
        writeln!(f, "the scores of all tokens are those of the model without plan and cache, bit for bit\n")?;
        writeln!(f, "{:<12} {:<8} {:>10} {:>10}  content", "kind", "device", "planned", "peak")?;
        for KindUse { kind, device, content, planned, peak, .. } in &self.kinds {
            let (kind, device) = (kind.to_string(), device.to_string());
            let (planned, peak) = (ByteSize(*planned).to_string(), ByteSize(*peak).to_string());
            writeln!(f, "{kind:<12} {device:<8} {planned:>10} {peak:>10}  {content}")?;
        }
        let (steady, allocations) = (self.steady_steps, self.steady_allocations);
        writeln!(f, "\nafter the warm-up, {steady} steps only generated tokens: {allocations} allocations")?;
        let (step, token) = (per(self.time, *steps), per(self.time, *tokens));
        writeln!(f, "{step:.1?} a step, {token:.1?} a token; unplanned {:.1?} a token", self.time_unplanned)?;
        let share = 100.0 * kv.hit_tokens as f64 / kv.query_tokens as f64;
        writeln!(f, "\nprompts: {} tokens, {} reused ({share:.0} %)", kv.query_tokens, kv.hit_tokens)?;
        for cause in MissCause::ALL {
            let missed = kv.missed_tokens(cause);
            if missed > 0 {
                writeln!(f, "  {missed} computed: {}", describe(cause))?;
            }
        }
        if let Some(tiers) = &self.tiers {
            let [stored, loaded] = [tiers.stored_bytes, tiers.loaded_bytes].map(ByteSize);
            let restored = tiers.hit_tokens;
            writeln!(f, "host tier: {stored} stored, {loaded} loaded, {restored} tokens restored")?;
        }
        writeln!(f, "{} boundaries evicted, {} cached at the end", kv.evictions, kv.boundaries)
    }
}

fn per(time: Duration, count: usize) -> Duration {
    time.div_f64(count.max(1) as f64)
}

fn describe(cause: MissCause) -> &'static str {
    match cause {
        MissCause::BelowUnit => "the prompt is not longer than a match unit",
        MissCause::NeverSeen => "never computed before",
        MissCause::Evicted => "evicted",
        MissCause::NoCheckpoint => "cached, but without a window or state to continue from",
        MissCause::NoReuse => "reuse was excluded",
        MissCause::NoRoom => "cached, but the request fits only without it",
        MissCause::OtherTenant => "cached for another tenant",
        MissCause::FailedLoad => "a load failed",
        MissCause::Late => "another text computed it at that moment",
        _ => "another cause",
    }
}
