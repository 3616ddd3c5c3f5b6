//! [`KvReport`]: what a pool would have done for a trace, and what other settings would change.

use super::{KvModel, Occupancy, PoolSettings, RequestTrace, Reuse};
use crate::{LabError, Result};
use orlop_core::ByteSize;
use orlop_kv::{CheckpointPolicy, GroupKind, KvError, KvGeometry, KvPool, LengthMix};
use rayon::prelude::*;
use serde::Serialize;

/// Larger pools that are tried, as multiples.
const LARGER_POOLS: [u64; 2] = [4, 16];
/// Pages that are tried, in tokens.
const PAGE_TOKENS: [u32; 3] = [64, 1024, 4096];
/// A difference that is worth a sentence, as a share of all prompt tokens.
const NOTABLE: f64 = 0.005;

/// The reuse with one choice of settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReuseRow {
    /// What differs from the first row.
    pub name: String,
    /// The bytes of the pool.
    pub pool_bytes: u64,
    /// The tokens of a page; `None` for the model's.
    pub page_tokens: Option<u32>,
    /// The tokens between checkpoints besides those at ends of prompts; `None` without.
    pub checkpoint_every: Option<u32>,
    /// Whether states and windows are kept where a prompt leaves a cached one.
    pub junctions: bool,
    /// Whether blocks that were hit outlast those that never were.
    pub scan_resistant: bool,
    /// The result.
    pub reuse: Reuse,
}

/// What a pool would have held, reused and refused for the requests of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KvReport {
    /// The model.
    pub model: String,
    /// The bytes of the pool.
    pub pool_bytes: u64,
    /// The bytes of a large page.
    pub large_page_bytes: u64,
    /// The number of requests.
    pub requests: u64,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// The tokens that fit at once, in requests of the trace's lengths.
    pub capacity_tokens: u64,
    /// All requests at their times, without reuse.
    pub occupancy: Occupancy,
    /// The same in the pool of four times the bytes, if requests waited or were refused.
    pub occupancy_in_larger: Option<Occupancy>,
    /// Prompt tokens that repeat what an earlier prompt had; `None` if the trace does not say.
    pub repeated_tokens: Option<u64>,
    /// The reuse as asked, then with other settings; empty if the trace does not say what prompts share.
    pub rows: Vec<ReuseRow>,
}

impl KvReport {
    /// Replays a trace in a pool of `bytes` bytes, and with other settings.
    ///
    /// # Errors
    /// If the model's groups do not fit together, or the pool is smaller than a large page.
    pub fn of(trace: &RequestTrace, model: &KvModel, bytes: u64) -> Result<Self> {
        let geometry = KvGeometry::new(model.groups.clone())?;
        let large_page_bytes = geometry.large_page_bytes();
        let pool = KvPool::builder(geometry).bytes(bytes).build_detached()?;
        let share = |request: &super::TraceRequest| LengthMix {
            prompt: request.input,
            max_new: request.output,
            weight: 1,
        };
        let mix: Vec<LengthMix> = trace.requests.iter().map(share).collect();
        let occupancy = Occupancy::of(trace, model, bytes)?;
        let is_short = occupancy.delayed + occupancy.refused > 0;
        let larger = || possible(Occupancy::of(trace, model, bytes.saturating_mul(LARGER_POOLS[0])));
        let occupancy_in_larger = if is_short { larger()? } else { None };
        let settings = if trace.unit.is_some() { variants(model, bytes) } else { Vec::new() };
        let rows = settings.into_par_iter().enumerate().map(|(at, (name, settings))| {
            let PoolSettings { bytes, page_tokens, checkpoints, scan_resistant } = settings;
            let reuse = Reuse::of(trace, model, &settings);
            // What was asked for has to be possible.
            let reuse = if at == 0 { Some(reuse?) } else { possible(reuse)? };
            let Some(reuse) = reuse else { return Ok(None) };
            Ok(Some(ReuseRow {
                name,
                pool_bytes: bytes,
                page_tokens,
                checkpoint_every: checkpoints.every,
                junctions: checkpoints.junctions,
                scan_resistant,
                reuse,
            }))
        });
        Ok(Self {
            model: model.name.clone(),
            pool_bytes: bytes,
            large_page_bytes,
            requests: trace.requests.len() as u64,
            prompt_tokens: trace.input_tokens(),
            output_tokens: trace.output_tokens(),
            capacity_tokens: pool.capacity(&mix),
            occupancy,
            occupancy_in_larger,
            repeated_tokens: trace.repeated_tokens(),
            rows: rows.filter_map(Result::transpose).collect::<Result<_>>()?,
        })
    }

    /// Returns the verdict: how much fits, why prompts were computed again, and what would help.
    #[must_use]
    pub fn verdict(&self) -> [String; 3] {
        [self.what_fits(), self.what_is_reused(), self.what_helps()]
    }

    fn what_fits(&self) -> String {
        let Occupancy { peak_running, delayed, refused, .. } = self.occupancy;
        format!(
            "{} hold {} tokens of such requests: {} ran at once, {} waited for memory, {} never fit.",
            ByteSize(self.pool_bytes),
            thousands(self.capacity_tokens),
            thousands(peak_running),
            thousands(delayed),
            thousands(refused),
        )
    }

    fn what_is_reused(&self) -> String {
        let Some(ReuseRow { reuse, .. }) = self.rows.first() else {
            return "The trace does not say what prompts share: nothing is known of reuse.".to_owned();
        };
        let repeated = reuse.share(self.repeated_tokens.unwrap_or(0));
        let mut text = format!(
            "{} of the prompt tokens are reused, of {} that repeat an earlier prompt",
            percent(reuse.share(reuse.reused)),
            percent(repeated)
        );
        let causes = [
            (reuse.evicted, "computed after an eviction"),
            (reuse.no_checkpoint, "behind the last checkpoint"),
            (reuse.excluded, "cached, but in the way of the request"),
            (reuse.refused, "in prompts that do not fit"),
        ];
        let causes = causes.into_iter().filter(|&(tokens, _)| reuse.share(tokens) >= NOTABLE);
        let causes: Vec<String> =
            causes.map(|(tokens, cause)| format!("{} {cause}", percent(reuse.share(tokens)))).collect();
        if !causes.is_empty() {
            text = format!("{text}: {}", causes.join(", "));
        }
        text + "."
    }

    fn what_helps(&self) -> String {
        let shares = |row: &ReuseRow| row.reuse.share(row.reuse.reused);
        let best = |rows: &mut dyn Iterator<Item = &ReuseRow>| {
            let best = rows.max_by(|a, b| shares(a).total_cmp(&shares(b)))?;
            Some((best.name.clone(), shares(best)))
        };
        if let Some(first) = self.rows.first() {
            let others = || self.rows[1..].iter();
            let same = best(&mut others().filter(|row| row.pool_bytes == self.pool_bytes));
            let larger = others().find(|row| row.pool_bytes > self.pool_bytes);
            let gains = |found: &(String, f64)| found.1 - shares(first) >= NOTABLE;
            if let Some((name, share)) = same.filter(gains) {
                return format!("With {name}, {} would be reused.", percent(share));
            }
            if let Some(larger) = larger.filter(|row| shares(row) - shares(first) >= NOTABLE) {
                let size = ByteSize(larger.pool_bytes);
                return format!("In {size}, {} would be reused.", percent(shares(larger)));
            }
        }
        match &self.occupancy_in_larger {
            Some(Occupancy { delayed, refused, .. }) => {
                let size = ByteSize(self.pool_bytes.saturating_mul(LARGER_POOLS[0]));
                let (delayed, refused) = (thousands(*delayed), thousands(*refused));
                format!("In {size}, {delayed} would wait, and {refused} never fit.")
            }
            None => {
                let peak = ByteSize(self.occupancy.peak_held);
                format!("At the peak, running requests held {peak}: the rest is there for reuse.")
            }
        }
    }
}

/// Returns `None` for a pool that cannot be made: the settings that are tried besides those asked for may be
/// too large, or its groups do not fit together.
fn possible<T>(result: Result<T>) -> Result<Option<T>> {
    use KvError::{InvalidGroup, OutOfRange, PoolTooSmall};
    match result {
        Err(LabError::Kv(InvalidGroup { .. } | OutOfRange { .. } | PoolTooSmall { .. })) => Ok(None),
        result => result.map(Some),
    }
}

/// Returns the settings that are tried, the first as asked.
fn variants(model: &KvModel, bytes: u64) -> Vec<(String, PoolSettings)> {
    let base = PoolSettings::new(bytes);
    let mut variants = vec![("as asked".to_owned(), base)];
    for factor in LARGER_POOLS {
        let bytes = bytes.saturating_mul(factor);
        variants.push((format!("a pool of {}", ByteSize(bytes)), PoolSettings { bytes, ..base }));
    }
    let keeps_all = |group: &orlop_kv::LayerGroup| {
        matches!(group.kind, GroupKind::Full | GroupKind::Compressed { .. } | GroupKind::Cross)
    };
    if !model.groups.iter().all(keeps_all) {
        let cadences = [
            (
                "checkpoints at ends of prompts",
                CheckpointPolicy { junctions: false, ..CheckpointPolicy::default() },
            ),
            ("checkpoints at ends and junctions", CheckpointPolicy::default()),
            ("checkpoints every 4,096 tokens", CheckpointPolicy { every: Some(4096), ..base.checkpoints }),
        ];
        let cadences =
            cadences.map(|(name, checkpoints)| (name.to_owned(), PoolSettings { checkpoints, ..base }));
        variants.extend(cadences);
    }
    variants.push(("scan resistance".to_owned(), PoolSettings { scan_resistant: true, ..base }));
    for tokens in PAGE_TOKENS {
        let name = format!("pages of {} tokens", thousands(tokens.into()));
        variants.push((name, PoolSettings { page_tokens: Some(tokens), ..base }));
    }
    variants
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Formats a number with commas between thousands.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_says_nothing_of_reuse_has_a_verdict() {
        let trace = RequestTrace::parse("input_tokens,output_tokens\n1000,10\n2000,10\n").unwrap();
        let model = KvModel::find("llama-3-8b").unwrap();
        let report = KvReport::of(&trace, &model, 1 << 30).unwrap();
        let [fits, reused, helps] = report.verdict();
        // The last token's keys and values are not needed, and blocks have 16 tokens.
        assert!(fits.starts_with("1.00 GiB hold 8,1"), "{fits}");
        assert!(fits.contains("2 ran at once, 0 waited for memory, 0 never fit"), "{fits}");
        assert!(reused.contains("does not say"), "{reused}");
        assert!(helps.starts_with("At the peak, running requests held 380 MiB"), "{helps}");
        assert!(report.rows.is_empty() && thousands(1_234_567) == "1,234,567");
    }

    #[test]
    fn settings_that_a_pool_is_too_small_for_are_left_out() {
        let text = "{\"timestamp\": 0, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [1]}";
        let trace = RequestTrace::parse(text).unwrap();
        // 4,096 tokens have 512 MiB.
        let report = KvReport::of(&trace, &KvModel::find("llama-3-8b").unwrap(), 256 << 20).unwrap();
        let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names[0], "as asked");
        assert!(
            names.contains(&"pages of 1,024 tokens") && !names.contains(&"pages of 4,096 tokens"),
            "{names:?}"
        );
    }
}
