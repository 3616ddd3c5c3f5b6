//! Texts and call sites in one cell of a line.

use crate::history::{RefusalDetail, RefusalOutcome, SiteId, Sites, cause_from_name};
use std::borrow::Cow;
use std::fmt::Write;

/// Separators, and the characters that replace them after a backslash.
const ESCAPES: [(char, char); 5] = [('\\', '\\'), ('|', 'p'), (';', 's'), ('\n', 'n'), ('\r', 'r')];

/// First characters that make a spreadsheet interpret a cell as a formula.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];

/// Escapes the separators in a text. Blanks at the ends are escaped, because cells are trimmed, and so is the
/// first character of a formula: texts of recordings are untrusted, and tables are opened in spreadsheets.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    let special = |c: char| ESCAPES.iter().any(|&(from, _)| from == c);
    let trimmed = text.starts_with(is_space) || text.ends_with(is_space);
    if !trimmed && !text.starts_with(FORMULA) && !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len() + 8);
    let last = text.len();
    for (at, c) in text.char_indices() {
        let end = at == 0 || at + c.len_utf8() == last;
        match ESCAPES.iter().find(|&&(from, _)| from == c) {
            Some(&(_, to)) => written.extend(['\\', to]),
            None if (end && is_space(c)) || (at == 0 && FORMULA.contains(&c)) => {
                let _ = write!(written, "\\x{:02x}", u32::from(c));
            }
            None => written.push(c),
        }
    }
    Cow::Owned(written)
}

/// Returns `true` for the characters of [`u8::is_ascii_whitespace`].
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace()
}

/// Reverses [`escaped`]. Returns `None` if the cell is not UTF-8 or has an unknown escape.
pub(super) fn unescaped(cell: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(cell).ok()?;
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut read = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            read.push(c);
            continue;
        }
        match rest.next()? {
            'x' => {
                let digits: String = rest.by_ref().take(2).collect();
                let kept = char::from(u8::from_str_radix(&digits, 16).ok()?);
                read.push(Some(kept).filter(|&kept| is_space(kept) || FORMULA.contains(&kept))?);
            }
            to => read.push(ESCAPES.iter().find(|&&(_, known)| known == to)?.0),
        }
    }
    Some(Cow::Owned(read))
}

/// Formats a call site as a cell; empty for the unknown site.
pub(super) fn frames(site: SiteId, sites: &Sites) -> String {
    let mut cell = String::new();
    for frame in sites.frames(site) {
        if !cell.is_empty() {
            cell.push(';');
        }
        let (function, file) = (sites.name(frame.function), sites.name(frame.file));
        let _ = write!(cell, "{}|{}|{}", escaped(function), escaped(file), frame.line);
    }
    cell
}

/// Parses a call site from a cell.
pub(super) fn site(cell: &[u8], sites: &mut Sites) -> Option<SiteId> {
    let mut frames = Vec::new();
    for frame in cell.split(|&byte| byte == b';') {
        let mut parts = frame.split(|&byte| byte == b'|');
        let (function, file, line) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let line = u32::try_from(super::super::table_rows::number(line, 10)?).ok()?;
        frames.push(sites.frame(&unescaped(function)?, &unescaped(file)?, line));
    }
    Some(sites.stack(&frames))
}

/// Formats what is known about a refusal as a cell.
pub(super) fn refusal(refusal: &RefusalDetail, sites: &Sites) -> String {
    let refuser = sites.name(refusal.refuser);
    format!("{}|{}|{}", refusal.cause.name(), escaped(refuser), refusal.outcome.name())
}

/// Parses a refusal from a cell, without its event.
pub(super) fn read_refusal(cell: &[u8], sites: &mut Sites) -> Option<RefusalDetail> {
    let mut parts = cell.split(|&byte| byte == b'|');
    let (cause, refuser, outcome) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let cause = cause_from_name(std::str::from_utf8(cause).ok()?)?;
    let outcome = RefusalOutcome::from_name(std::str::from_utf8(outcome).ok()?)?;
    Some(RefusalDetail { event: 0, cause, refuser: sites.text(&unescaped(refuser)?), outcome })
}

/// Appends a cell, in quotes if necessary.
pub(super) fn quote(cell: &str, line: &mut Vec<u8>) {
    if !cell.contains([',', '"']) {
        line.extend_from_slice(cell.as_bytes());
        return;
    }
    line.push(b'"');
    line.extend_from_slice(cell.replace('"', "\"\"").as_bytes());
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        for text in [
            "",
            "plain",
            " a ",
            "\t",
            "a|b;c\\d\r\ne",
            "\\x20",
            "\u{a0}x\u{c}",
            "é \\",
            " ",
            "=1+1",
            "-",
            "@a",
            "+\t",
        ] {
            let cell = escaped(text);
            assert!(!cell.starts_with(['=', '+', '-', '@', '\t', '\r']), "{cell:?}");
            assert!(!cell.contains(['|', ';', '\n', '\r']), "{cell:?}");
            assert_eq!(cell.trim_ascii(), cell, "{cell:?}");
            assert_eq!(unescaped(cell.as_bytes()).as_deref(), Some(text));
        }
        for wrong in [&b"\\"[..], b"\\q", b"\\x4", b"\\x41", b"\\xzz", b"\xff"] {
            assert_eq!(unescaped(wrong), None);
        }
    }

    #[test]
    fn sites_come_back() {
        let mut sites = Sites::default();
        let frames_of = [sites.frame("f<|>", "a;b.py", 3), sites.frame("", "??", 0)];
        let site_of = sites.stack(&frames_of);
        let cell = frames(site_of, &sites);
        assert_eq!(cell, "f<\\p>|a\\sb.py|3;|??|0");
        assert_eq!(site(cell.as_bytes(), &mut sites), Some(site_of));
        assert_eq!(frames(SiteId::UNKNOWN, &sites), "");
        for wrong in ["f", "f|g", "f|g|x", "f|g|1|2", "f|g|1;", "f|g|4294967296"] {
            assert_eq!(site(wrong.as_bytes(), &mut sites), None, "{wrong}");
        }
    }
}
