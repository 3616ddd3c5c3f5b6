//! The width of lines: at most 110 columns.
//!
//! Markdown tables and code blocks cannot be wrapped, so they are not checked.

use super::Violation;

/// The largest number of columns of a line.
const MAX_COLUMNS: usize = 110;

/// Returns the wide lines of a Rust or Markdown file.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    let wide: Vec<usize> = match path.rsplit_once('.') {
        Some((_, "rs")) => wide_lines(text.lines().map(Some)),
        Some((_, "md")) => wide_lines(wrappable(text)),
        _ => return Vec::new(),
    };
    let message = format!("more than {MAX_COLUMNS} columns");
    wide.into_iter().map(|line| Violation::error(line, &message)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wide_in(path: &str, text: &str) -> Vec<usize> {
        let violations = check(path, text);
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
}
