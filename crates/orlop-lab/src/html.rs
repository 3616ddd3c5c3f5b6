//! Pages of one file: templates with placeholders, and texts in them.

use std::io::{self, BufWriter, Write};

/// Placeholders of a template: `<!--orlop:name-->`.
const OPEN: &str = "<!--orlop:";
const CLOSE: &str = "-->";

/// The parts of a page, which are separate files here and one file in the output.
#[derive(Debug)]
pub(crate) struct PageTemplate {
    /// The page, with the placeholders `title`, `style`, `data` and `script`.
    pub(crate) html: &'static str,
    /// The style sheets, in order.
    pub(crate) styles: &'static [&'static str],
    /// The scripts, in order of dependence.
    pub(crate) scripts: &'static [&'static str],
}

impl PageTemplate {
    /// Writes the page with this title. `data` writes what its scripts show.
    pub(crate) fn write<W: Write>(
        &self,
        title: &str,
        writer: W,
        mut data: impl FnMut(&mut BufWriter<W>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut out = BufWriter::new(writer);
        let mut rest = self.html;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (name, after) = after.split_once(CLOSE).unwrap_or((after, ""));
            out.write_all(before.as_bytes())?;
            match name {
                "title" => out.write_all(escaped(title).as_bytes())?,
                "style" => self.styles.iter().try_for_each(|style| out.write_all(style.as_bytes()))?,
                "data" => data(&mut out)?,
                _ => self.scripts.iter().try_for_each(|script| out.write_all(script.as_bytes()))?,
            }
            rest = after;
        }
        out.write_all(rest.as_bytes())?;
        out.flush()
    }
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
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
