//! Pages of one file: templates with placeholders, and texts in them.

use std::io::{self, Write};

/// Placeholders of a template: `<!--orlop:name-->`.
const OPEN: &str = "<!--orlop:";
const CLOSE: &str = "-->";

/// Writes a template. `part` writes what a placeholder stands for.
pub(crate) fn fill<W: Write>(
    template: &str,
    out: &mut W,
    mut part: impl FnMut(&str, &mut W) -> io::Result<()>,
) -> io::Result<()> {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (name, after) = after.split_once(CLOSE).unwrap_or((after, ""));
        out.write_all(before.as_bytes())?;
        part(name, out)?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Escapes text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(character),
        }
    }
    escaped
}
