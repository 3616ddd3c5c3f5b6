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
    let decimal = || ends.filter_map(|end| value[..end].parse::<f64>().ok()).next();
    hexadecimal(value)
        .or_else(decimal)
        .filter(|&number| fits(number))
        .ok_or_else(|| refused(key, value, expected))
}

/// Reads a hexadecimal number without a sign, such as `0x.8p1`, up to where it ends.
fn hexadecimal(text: &str) -> Option<f64> {
    let split = |text: &'_ str| text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    let value = |digit: char| f64::from(digit.to_digit(16).unwrap_or(0));
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let (whole, rest) = digits.split_at(split(digits));
    let after_point = rest.strip_prefix('.').unwrap_or("");
    let (part, after_part) = after_point.split_at(split(after_point));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let number = whole.chars().fold(0.0, |number, digit| number * 16.0 + value(digit))
        + part.chars().rev().fold(0.0, |number, digit| (number + value(digit)) / 16.0);
    let rest = if rest.starts_with('.') { after_part } else { rest };
    let exponent = rest.strip_prefix(['p', 'P']).unwrap_or("");
    let ends = (1..=exponent.len()).rev().filter(|&end| exponent.is_char_boundary(end));
    let exponent = ends.filter_map(|end| exponent[..end].parse::<i32>().ok()).next().unwrap_or(0);
    // No `powi` without std. More steps change nothing: all numbers are within 2^-1074 and 2^1024.
    let factor = if exponent < 0 { 0.5 } else { 2.0 };
    Some((0..exponent.unsigned_abs().min(2200)).fold(number, |number, _| number * factor))
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
