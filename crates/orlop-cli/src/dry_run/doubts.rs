//! [`Doubts`]: what a dry run estimated or assumed, and how far its verdict can be trusted.

use crate::table::bytes;
use orlop_dryrun::settings::{DryRunSettings, WorkspaceRule};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The maximum number of names in a sentence.
const MAX_NAMES: usize = 3;

/// How far a verdict can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Confidence {
    /// Sizes followed from noise, or calls were refused.
    Low,
    /// Workspaces were estimated.
    Medium,
    /// Nothing that decides a size was assumed.
    High,
}

impl Confidence {
    fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// What was estimated or assumed.
#[derive(Debug, Serialize)]
pub(super) struct Doubts {
    confidence: Confidence,
    /// Sentences, the most important first.
    #[serde(rename = "doubts")]
    sentences: Vec<String>,
}

impl Doubts {
    /// Judges the answers of all processes.
    pub(super) fn of(answers: &[Value], settings: &DryRunSettings) -> Self {
        let mut doubts = Self { confidence: Confidence::High, sentences: Vec::new() };
        let assumptions = &settings.assumptions;
        let (distinct, maximum) = (assumptions.distinct_values, assumptions.maximum);
        let part = assumptions.true_elements;
        for (field, what, setting) in [
            ("sizes_read_as_zero", "values that decide sizes were read as zero".to_owned(), ""),
            (
                "distinct_values_assumed",
                format!("tensors were assumed to have {distinct} distinct values"),
                "; --assume unique=N sets that",
            ),
            (
                "maxima_assumed",
                format!("maxima of integers were assumed to be {maximum}"),
                "; --assume max=N sets that",
            ),
            (
                "masks_assumed",
                format!("masks were assumed to be true in {part} of their elements"),
                "; --assume mask=PART sets that",
            ),
            ("repeats_assumed", "tensors were assumed to repeat each element once".to_owned(), ""),
            ("bins_assumed", "tensors were assumed to fill their bins evenly".to_owned(), ""),
            (
                "products_assumed",
                "steps of products and sums of sparse matrices had assumed elements".to_owned(),
                "",
            ),
        ] {
            if let Some((count, lines)) = counted(answers, field) {
                doubts.add(Confidence::Low, format!("{count} {what}, at {lines}{setting}"));
            }
        }
        if let Some((count, functions)) = counted(answers, "refused_functions") {
            doubts.add(Confidence::Low, format!("{count} calls were refused: {functions}"));
        }
        let nccl_bytes = nccl_bytes(answers);
        if nccl_bytes > 0 {
            let bytes = bytes(nccl_bytes);
            doubts.add(Confidence::Medium, format!("NCCL was taken to have {bytes} for its communicators"));
        }
        let solvers = sum_of(answers, "solver_workspaces_estimated");
        if solvers > 0 {
            let sentence =
                format!("{solvers} workspaces of cuSOLVER are interpolated, or of cuSPARSE left out");
            doubts.add(Confidence::Medium, sentence);
        }
        let transforms = sum_of(answers, "transforms_estimated");
        if transforms > 0 {
            let sentence = format!("{transforms} workspaces of Fourier transforms follow rules");
            doubts.add(Confidence::Medium, sentence);
        }
        if let Some((count, _)) = counted(answers, "convolutions_estimated") {
            let workspaces = match settings.workspaces {
                WorkspaceRule::None => "no workspace: reserved bytes are too low",
                WorkspaceRule::Learned => "an estimated workspace; --workspaces none and most are the bounds",
                WorkspaceRule::Most => "more workspace than a GPU takes, as a bound",
            };
            let sentence = format!("{count} plans of convolutions have {workspaces}");
            doubts.add(Confidence::Medium, sentence);
        }
        doubts
    }

    fn add(&mut self, confidence: Confidence, sentence: String) {
        self.confidence = self.confidence.min(confidence);
        self.sentences.push(sentence);
    }
}

impl fmt::Display for Doubts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "confidence     {}", self.confidence.name())?;
        self.sentences.iter().try_for_each(|sentence| writeln!(f, "  because      {sentence}"))
    }
}

/// Returns the sum of a field's counts in all answers, and the names with the highest ones; `None` if there
/// are none.
fn counted(answers: &[Value], field: &str) -> Option<(u64, String)> {
    let mut counts = BTreeMap::new();
    for entries in answers.iter().filter_map(|answers| answers.get(field)?.as_object()) {
        for (name, count) in entries {
            *counts.entry(name.as_str()).or_insert(0) += count.as_u64().unwrap_or(0);
        }
    }
    let mut names: Vec<(&str, u64)> = counts.into_iter().collect();
    names.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let named = names.iter().take(MAX_NAMES).map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let others = names.len().saturating_sub(MAX_NAMES);
    let named = if others > 0 { format!("{named} and {others} others") } else { named };
    let sum = names.iter().map(|(_, count)| count).sum();
    (sum > 0).then_some((sum, named))
}

/// Returns the sum of a field's number, or of its counts, in all answers.
pub(super) fn sum_of(answers: &[Value], field: &str) -> u64 {
    let total = |value: &Value| match value {
        Value::Object(entries) => entries.values().filter_map(Value::as_u64).sum(),
        other => other.as_u64().unwrap_or(0),
    };
    answers.iter().filter_map(|answers| answers.get(field)).map(total).sum()
}

/// Returns the memory of NCCL's communicators on a device, in bytes: of the process that has the most.
pub(super) fn nccl_bytes(answers: &[Value]) -> u64 {
    answers.iter().filter_map(|answers| answers.get("nccl_bytes")?.as_u64()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_dryrun::gpu::GpuModel;
    use serde_json::json;

    fn doubts(answers: &[Value]) -> Doubts {
        Doubts::of(answers, &DryRunSettings::new(GpuModel::named("h100").unwrap()))
    }

    #[test]
    fn what_decides_sizes_lowers_the_confidence() {
        assert_eq!(doubts(&[json!({"reads_answered_zero": {"kernel": 3}})]).confidence, Confidence::High);
        let estimated = json!({"convolutions_estimated": {"shape": 1}});
        assert_eq!(doubts(std::slice::from_ref(&estimated)).confidence, Confidence::Medium);
        let nccl = doubts(&[json!({"nccl_bytes": 1 << 20}), json!({"nccl_bytes": 3 << 20})]);
        assert_eq!(nccl.sentences, ["NCCL was taken to have 3.00 MiB for its communicators"]);
        let mask = json!({"masks_assumed": {"a.py:1 f": 1, "b.py:2 g": 2}});
        let all = doubts(&[mask, json!({"masks_assumed": {"a.py:1 f": 4}}), estimated]);
        assert_eq!((all.confidence, all.sentences.len()), (Confidence::Low, 2));
        assert!(
            all.sentences[0]
                .starts_with("7 masks were assumed to be true in 0 of their elements, at a.py:1 f, b")
        );
    }
}
