//! Finding numbers in text.

use orlop_core::ByteSize;

/// The text after the first occurrence of `marker`.
pub(super) fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    text.split_once(marker).map(|(_, rest)| rest)
}

/// The first `bytes` bytes of a text, or a few more that end a character.
pub(super) fn start_of(text: &str, bytes: usize) -> &str {
    let end = (bytes.min(text.len())..=text.len()).find(|&end| text.is_char_boundary(end));
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// The text up to the next message: the first of `starts` behind its own beginning.
pub(super) fn until_next(text: &str, starts: impl IntoIterator<Item = &'static str>) -> &str {
    let next = |start| text.get(1..).and_then(|rest| rest.find(start));
    let end = starts.into_iter().filter_map(next).min().map_or(text.len(), |end| end + 1);
    text.get(..end).unwrap_or(text)
}

/// The last `bytes` bytes of a text before a position, or a few less that begin with a character.
pub(super) fn before(text: &str, at: usize, bytes: usize) -> &str {
    let start = (at.saturating_sub(bytes)..=at).find(|&start| text.is_char_boundary(start));
    start.and_then(|start| text.get(start..at)).unwrap_or_default()
}

/// The size directly after `marker`: `35.60 GiB`, `35.60GiB` or `1234 bytes`.
pub(super) fn size_after(text: &str, marker: &str) -> Option<u64> {
    size_at_start(after(text, marker)?)
}

/// The size directly before `marker`: `(…; 7.79 GiB total capacity` or `and 0 bytes is reserved`.
pub(super) fn size_before(text: &str, marker: &str) -> Option<u64> {
    let (before, _) = text.split_once(marker)?;
    let words: Vec<&str> = before.trim_end().rsplitn(3, [' ', '(', ';']).collect();
    let unit = words.first()?;
    match words.get(1) {
        Some(number) if number.starts_with(|digit: char| digit.is_ascii_digit()) => {
            size_at_start(&format!("{number} {unit}"))
        }
        _ => size_at_start(unit),
    }
}

/// The size directly after `marker` in XLA's short form, binary without a `B`: `21.95G` or `530.00M`.
pub(super) fn short_size_after(text: &str, marker: &str) -> Option<u64> {
    let rest = after(text, marker)?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = rest.split_at_checked(end)?;
    let unit = match unit.chars().next()? {
        letter @ ('K' | 'M' | 'G' | 'T') => format!("{letter}iB"),
        _ => "B".to_owned(),
    };
    format!("{number}{unit}").parse().ok().map(|ByteSize(bytes)| bytes)
}

/// The digits at the start of a text, at least one.
pub(super) fn digits_at_start(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end).filter(|digits| !digits.is_empty())
}

/// The text with the units that are meant where those of decimal sizes are written: `7.5kB` is `7.5KiB`.
pub(super) fn with_binary_units(text: &str) -> String {
    let units = [("kB", "KiB"), ("KB", "KiB"), ("MB", "MiB"), ("GB", "GiB"), ("TB", "TiB")];
    units.iter().fold(text.to_owned(), |text, (written, meant)| text.replace(written, meant))
}

/// The size at the start of a text.
pub(super) fn size_at_start(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(digits)?;
    let has_space = rest.starts_with(' ');
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let unit = match rest.get(..letters)? {
        "bytes" | "byte" => "B",
        unit if unit.len() <= 3 && unit.ends_with('B') => unit,
        // A number alone is in bytes, and a word may follow it; `15.06G` is neither.
        _ if rest.starts_with(|letter: char| letter.is_ascii_alphabetic()) && !has_space => return None,
        _ => "B",
    };
    let number = number.trim_end_matches('.');
    format!("{number}{unit}").parse().ok().map(|ByteSize(bytes)| bytes)
}
