//! The text of what the live memory is.

use crate::table::{self, bytes, count, percent, plain};
use orlop::lab::category::{Category, CategoryUsage, Evidence, MemoryCategories, ModuleUsage};
use std::fmt::Write as _;

/// Formats the categories at the peak and at the end, and the modules with the most activations.
pub(crate) fn text(text: &mut String, categories: &MemoryCategories, width: Option<u16>) {
    if categories.at_peak.is_empty() {
        return;
    }
    let evidence = match categories.evidence {
        Evidence::CallSites => "by call sites and lifetimes",
        _ => "estimated from lifetimes, because no call sites are recorded",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\nwhat it is, {evidence}");
    let mut table = table::new_with_text(["at the peak", "share", "blocks", "at the end"], "category", width);
    let of = |usages: &[CategoryUsage], category: Category| {
        usages.iter().find(|usage| usage.category == category).cloned()
    };
    let ended = categories.at_end.iter().map(|usage| usage.category);
    let only_at_end = ended.filter(|&category| of(&categories.at_peak, category).is_none());
    let order: Vec<Category> =
        categories.at_peak.iter().map(|usage| usage.category).chain(only_at_end).collect();
    for category in order {
        let (peak, end) = (of(&categories.at_peak, category), of(&categories.at_end, category));
        let numbers = [
            bytes(peak.as_ref().map_or(0, |usage| usage.bytes)),
            percent(peak.as_ref().map_or(0.0, |usage| usage.share)),
            count(peak.as_ref().map_or(0, |usage| usage.blocks)),
            bytes(end.map_or(0, |usage| usage.bytes)),
        ];
        table.add_row(table::row_with_text(numbers, category.name()));
    }
    text.push_str(&table::indented(&table));
    if !categories.modules.is_empty() {
        text.push_str(&modules(&categories.modules, width));
    }
}

fn modules(modules: &[ModuleUsage], width: Option<u16>) -> String {
    let mut table =
        table::new_with_text(["activations", "blocks"], "module: the line that calls it > its file", width);
    for module in modules {
        let numbers = [bytes(module.bytes), count(module.blocks)];
        table.add_row(table::row_with_text(numbers, &plain(&module.name)));
    }
    format!("\n{}", table::indented(&table))
}
