//! The width of lines: at most 110 columns.
//!
//! Files that are not wrapped yet are listed in [`EXEMPT`] and only counted. Markdown tables and code blocks
//! cannot be wrapped, so they are not checked.

use std::collections::BTreeMap;

use super::Violation;

/// The largest number of columns of a line.
const MAX_COLUMNS: usize = 110;

/// Paths, relative to the root, whose lines are not wrapped yet: files or folders. The list may only shrink.
const EXEMPT: [&str; 6] = [
    "benches",
    "crates/orlop",
    "crates/orlop-alloc",
    "crates/orlop-device",
    "crates/orlop-plan",
    "crates/orlop-sync",
];

/// Wide lines of the exempt paths.
#[derive(Debug, Default)]
pub(super) struct WideLines {
    by_path: BTreeMap<&'static str, usize>,
}

impl WideLines {
    /// Returns the wide lines of a Rust or Markdown file, or only counts them if its path is exempt.
    pub(super) fn check(&mut self, path: &str, text: &str) -> Vec<Violation> {
        let wide: Vec<usize> = match path.rsplit_once('.') {
            Some((_, "rs")) => wide_lines(text.lines().map(Some)),
            Some((_, "md")) => wide_lines(wrappable(text)),
            _ => return Vec::new(),
        };
        if let Some(exempt) = EXEMPT.iter().find(|exempt| is_at_or_below(path, exempt)) {
            *self.by_path.entry(exempt).or_default() += wide.len();
            return Vec::new();
        }
        let message = format!("more than {MAX_COLUMNS} columns");
        wide.into_iter().map(|line| Violation::error(line, &message)).collect()
    }

    /// Returns a warning for each exempt path, and an error for those that need no exemption any more.
    pub(super) fn exemptions(&self) -> impl Iterator<Item = (&'static str, Violation)> {
        self.by_path.iter().map(|(&path, &lines)| {
            let violation = match lines {
                0 => Violation::error(1, "has no wide lines: remove it from EXEMPT in xtask's tidy"),
                _ => Violation::warning(1, format!("{lines} lines of more than {MAX_COLUMNS} columns")),
            };
            (path, violation)
        })
    }
}

/// Returns the numbers, from 1, of wide lines; `None` stands for a line that is not checked.
fn wide_lines<'a>(lines: impl Iterator<Item = Option<&'a str>>) -> Vec<usize> {
    let is_wide = |line: Option<&str>| line.is_some_and(|line| line.chars().count() > MAX_COLUMNS);
    lines.enumerate().filter(|(_, line)| is_wide(*line)).map(|(index, _)| index + 1).collect()
}

/// Returns the lines of a Markdown text, with `None` for those of tables and code blocks.
fn wrappable(text: &str) -> impl Iterator<Item = Option<&str>> {
    let mut in_code = false;
    text.lines().map(move |line| {
        let start = line.trim_start();
        let is_fence = start.starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence && !start.starts_with('|')).then_some(line)
    })
}

/// Returns `true` if a path, relative to the root, is this file or inside this folder.
pub(super) fn is_at_or_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide_in(path: &str, text: &str) -> Vec<usize> {
        let violations = WideLines::default().check(path, text);
        violations.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn columns_are_characters() {
        assert_eq!(wide_in("a.rs", &"é".repeat(110)), [0_usize; 0]);
        assert_eq!(wide_in("a.rs", &format!("{0}\n{0}\nx\n", "é".repeat(111))), [1, 2]);
        assert_eq!(wide_in("a.toml", &"x".repeat(111)), [0_usize; 0]);
    }

    #[test]
    fn tables_and_code_of_markdown_may_be_wide() {
        let wide = "x".repeat(111);
        let text = format!("{wide}\n| {wide} |\n```text\n{wide}\n```\n{wide}\n");
        assert_eq!(wide_in("crates/a/README.md", &text), [1, 6]);
        assert_eq!(wide_in("a.rs", &text), [1, 2, 4, 6]);
    }

    #[test]
    fn exempt_paths_are_counted_and_named_once_clean() {
        let mut lines = WideLines::default();
        let wide = "x".repeat(111);
        for path in ["crates/orlop/src/a.rs", "crates/orlop/README.md"] {
            assert_eq!(lines.check(path, &wide), []);
        }
        assert_eq!(lines.check("crates/orlop-core/a.rs", &wide).len(), 1);
        assert_eq!(lines.check("benches/a.rs", "x"), []);
        let all: BTreeMap<_, _> = lines.exemptions().collect();
        assert_eq!(all["crates/orlop"], Violation::warning(1, "2 lines of more than 110 columns"));
        assert!(!all["benches"].warning);
        assert_eq!(all.len(), 2);
    }
}
