//! [`Counters`]: what was answered by assumption, for the report.

use crate::caller::Guess;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The answers to reads of device memory, and functions that are not simulated.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Reads answered with what was copied there.
    pub(crate) kept: u64,
    /// Reads answered with zeros, by the kernel that was launched last.
    pub(crate) zero: BTreeMap<String, u64>,
    /// Reads of one byte after an and-reduction, answered with 1.
    pub(crate) true_after_and: u64,
    /// What was decided by noise or assumed, by kind and line of the program.
    pub(crate) guesses: BTreeMap<(Guess, String), u64>,
    /// Masks whose true elements were counted in what was copied to the device.
    pub(crate) masks_counted: u64,
    /// The peak of the memory of NCCL's communicators on a device, in bytes.
    pub(crate) nccl_bytes: u64,
    /// Workspaces of cuSOLVER and cuSPARSE, which follow a model.
    pub(crate) solver_workspaces: u64,
    /// Plans of Fourier transforms, whose workspaces are estimated.
    pub(crate) transforms: u64,
    /// Refused functions, with the library that called them last, and how often.
    pub(crate) refused: BTreeMap<String, (String, u64)>,
    /// Convolutions without an entry in the table of workspaces.
    pub(crate) estimated_convolutions: BTreeMap<String, u64>,
}

impl Counters {
    /// Returns a JSON object. Keys are in alphabetical order.
    pub(crate) fn json(&self) -> String {
        let refused =
            self.refused.iter().map(|(name, (caller, count))| (format!("{name} by {caller}"), count));
        let (zero, estimated) = (object(&self.zero), object(&self.estimated_convolutions));
        let (kept, and, counted) = (self.kept, self.true_after_and, self.masks_counted);
        let refused = object(refused);
        let guesses = |kind| {
            let of_kind = self.guesses.iter().filter(move |((guess, _), _)| *guess == kind);
            object(of_kind.map(|((_, line), count)| (line, count)))
        };
        let [values, sizes, masks, distinct, maxima, repeats, bins, products] = Guess::ALL.map(guesses);
        [
            format!("{{\"reads_answered_as_copied\": {kept}"),
            format!("\"reads_answered_true\": {and}"),
            format!("\"reads_answered_zero\": {zero}"),
            format!("\"values_read_as_zero\": {values}"),
            format!("\"sizes_read_as_zero\": {sizes}"),
            format!("\"masks_assumed\": {masks}"),
            format!("\"distinct_values_assumed\": {distinct}"),
            format!("\"maxima_assumed\": {maxima}"),
            format!("\"repeats_assumed\": {repeats}"),
            format!("\"bins_assumed\": {bins}"),
            format!("\"products_assumed\": {products}"),
            format!("\"masks_counted\": {counted}"),
            format!("\"nccl_bytes\": {}", self.nccl_bytes),
            format!("\"solver_workspaces_estimated\": {}", self.solver_workspaces),
            format!("\"transforms_estimated\": {}", self.transforms),
            format!("\"refused_functions\": {refused}"),
            format!("\"convolutions_estimated\": {estimated}}}\n"),
        ]
        .join(", ")
    }
}

fn object<K: AsRef<str>, V: std::fmt::Display>(entries: impl IntoIterator<Item = (K, V)>) -> String {
    let mut text = String::from("{");
    for (index, (key, value)) in entries.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}\"{}\": {value}", escaped(key.as_ref()));
    }
    text + "}"
}

/// Escapes a text for JSON.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(escaped, "\\u{:04x}", u32::from(control));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_json() {
        let mut counters = Counters { kept: 2, ..Counters::default() };
        counters.zero.insert("a\"\n".to_owned(), 3);
        let text = counters.json();
        assert!(text.starts_with("{\"reads_answered_as_copied\": 2, "), "{text}");
        assert!(text.contains("{\"a\\\"\\u000a\": 3}"), "{text}");
    }
}
