//! Values of settings, read as PyTorch reads them: spaces are removed before, a number ends where its digits
//! end, and a minus wraps around.

use super::{ConfError, ROUNDING_INTERVALS};

const MIB: usize = 1 << 20;

/// Splits at commas outside brackets.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

pub(super) fn refused(key: &str, value: &str, expected: &'static str) -> ConfError {
    ConfError::Value { key: key.into(), value: value.into(), expected }
}

/// Reads a whole number, as `std::stoull` does.
pub(super) fn number(text: &str) -> Option<usize> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.find(|c: char| !c.is_ascii_digit()).map_or(unsigned, |end| &unsigned[..end]);
    let count = digits.parse::<u64>().ok()?;
    let count = if text.starts_with('-') { count.wrapping_neg() } else { count };
    Some(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Reads a number of MiB, and returns bytes.
pub(super) fn mebibytes(
    key: &str,
    value: &str,
    expected: &'static str,
    min: usize,
) -> Result<usize, ConfError> {
    let count = number(value).filter(|&count| count >= min);
    count.map(|count| count.min(usize::MAX / MIB) * MIB).ok_or_else(|| refused(key, value, expected))
}

/// Reads a fraction, as `std::stod` does: the longest beginning that is a number.
pub(super) fn share(
    key: &str,
    value: &str,
    expected: &'static str,
    fits: impl Fn(f64) -> bool,
) -> Result<f64, ConfError> {
    let ends = value.char_indices().map(|(start, c)| start + c.len_utf8()).rev();
    let number = ends.filter_map(|end| value[..end].parse::<f64>().ok()).next();
    number.filter(|&number| fits(number)).ok_or_else(|| refused(key, value, expected))
}

pub(super) fn boolean(key: &str, value: &str) -> Result<bool, ConfError> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(refused(key, value, "True or False")),
    }
}

/// Returns what is in the brackets of a list.
pub(super) fn list(value: &str) -> Option<&str> {
    value.strip_prefix('[')?.strip_suffix(']')
}

/// Parses one number for all intervals, or a list such as `[64:8,256:4,>:1]`: 8 for the interval of 64 MiB
/// and all below, 4 for that of 256 MiB, 1 for those above. Intervals between keep their default.
pub(super) fn divisions(value: &str) -> Result<[usize; ROUNDING_INTERVALS], ConfError> {
    let refused = || {
        let expected = "a power of two, or a list like [64:8,256:4,>:1] of powers of two and zeros";
        refused("roundup_power2_divisions", value, expected)
    };
    let power = |text: &str| number(text).filter(|n| n.is_power_of_two());
    if !value.starts_with('[') {
        return Ok([power(value).ok_or_else(refused)?; ROUNDING_INTERVALS]);
    }
    let mut table = [0; ROUNDING_INTERVALS];
    let mut last = None;
    let entries = list(value).ok_or_else(refused)?.split(',');
    for entry in entries.filter(|entry| !entry.is_empty()) {
        let (size, count) = entry.split_once(':').ok_or_else(refused)?;
        let count = number(count).filter(|&n| n == 0 || n.is_power_of_two()).ok_or_else(refused)?;
        if size == ">" {
            let from = last.map_or(0, |last| last + 1);
            table[from..].fill(count);
            continue;
        }
        let interval = power(size).ok_or_else(refused)?.ilog2() as usize;
        let interval = interval.min(ROUNDING_INTERVALS - 1);
        if last.is_none() {
            table[..interval].fill(count);
        }
        table[interval] = count;
        last = Some(interval);
    }
    Ok(table)
}
