//! [`ByteSize`]: byte counts with units, for reports, settings and command lines.
//!
//! Printing uses three significant digits and binary units. Parsing is integer arithmetic, so the result is
//! exact.

use core::{fmt, str::FromStr};

use crate::{Error, Expected, Result, stack_str::StackStr};

/// A number of bytes that prints as `512 B`, `1.50 KiB` or `80.0 GiB` and parses likewise.
///
/// Parsing takes a decimal number, an optional space, and a unit in either case: none or `B` for bytes;
/// `KiB`, `MiB`, `GiB`, `TiB`, `PiB`, `EiB` and the bare letters `k`, `m`, `g`, `t`, `p`, `e` for powers of
/// 1024; `kB`, `MB`, `GB`, `TB`, `PB`, `EB` for powers of 1000. A fraction of a byte is dropped.
///
/// ```
/// use orlop_core::ByteSize;
///
/// assert_eq!("1.5 GiB".parse::<ByteSize>()?, ByteSize(3 << 29));
/// assert_eq!("64MB".parse::<ByteSize>()?, ByteSize(64_000_000));
/// assert_eq!(ByteSize(80 << 30).to_string(), "80.0 GiB");
/// # Ok::<(), orlop_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Units in increasing powers of 1024; `u64::MAX` is just below 16 EiB.
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl ByteSize {
    /// Returns the smallest size that is not below this one and that three digits print exactly: for a size
    /// that has to suffice.
    ///
    /// ```
    /// use orlop_core::ByteSize;
    ///
    /// assert_eq!(ByteSize(1_000_000).to_string(), "977 KiB");
    /// assert_eq!(ByteSize(1_000_500).to_string(), "977 KiB");
    /// assert_eq!(ByteSize(1_000_500).rounded_up().to_string(), "978 KiB");
    /// ```
    #[must_use]
    pub fn rounded_up(self) -> Self {
        let bytes = u128::from(self.0);
        let mut one: u128 = 1;
        while one * 1024 <= bytes {
            one *= 1024;
        }
        // Bytes are printed exactly, and below 1000 units one of the scales has three digits at most.
        let steps = |scale: u128| (bytes * scale).div_ceil(one);
        let scale = [100, 10].into_iter().find(|&scale| steps(scale) < 1000).unwrap_or(1);
        u64::try_from(steps(scale) * one / scale).map_or(Self(u64::MAX), Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = u128::from(self.0);
        if bytes < 1024 {
            return StackStr::<16>::pad(f, format_args!("{bytes} B"));
        }
        let mut one: u128 = 1;
        for unit in &UNITS[1..] {
            one *= 1024;
            let rounded = |scale: u128| (bytes * scale + one / 2) / one;
            // A value that rounds up to 1024 of this unit is 1.00 of the next.
            if rounded(1) >= 1024 {
                continue;
            }
            let (hundredths, tenths) = (rounded(100), rounded(10));
            return if hundredths < 1000 {
                StackStr::<16>::pad(f, format_args!("{}.{:02} {unit}", hundredths / 100, hundredths % 100))
            } else if tenths < 1000 {
                StackStr::<16>::pad(f, format_args!("{}.{} {unit}", tenths / 10, tenths % 10))
            } else {
                StackStr::<16>::pad(f, format_args!("{} {unit}", rounded(1)))
            };
        }
        // Unreachable: u64::MAX is below 1024 EiB.
        StackStr::<32>::pad(f, format_args!("{bytes} B"))
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        parse(s.trim()).map(Self).ok_or(Error::Parse { expected: Expected::ByteSize })
    }
}

/// The number of fractional digits that are parsed: enough to distinguish single bytes of an EiB.
const MAX_FRACTION_DIGITS: usize = 19;

fn parse(s: &str) -> Option<u64> {
    let number_end = s.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(s.len());
    let (number, unit) = s.split_at(number_end);
    let unit = unit_bytes(unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = u128::from(whole.parse::<u64>().ok()?).checked_mul(unit)?;
    let mut part: u128 = 0;
    let mut scale: u128 = 1;
    for digit in fraction.bytes().take(MAX_FRACTION_DIGITS) {
        part = part * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    // Both factors are below 10^19 and 2^60: the product fits.
    u64::try_from(whole.checked_add(part * unit / scale)?).ok()
}

fn unit_bytes(unit: &str) -> Option<u128> {
    let mut letters = unit.bytes().map(|byte| byte.to_ascii_lowercase());
    let power = match letters.next() {
        None => return Some(1),
        Some(b'b') => return letters.next().is_none().then_some(1),
        Some(letter) => 1 + u32::try_from(b"kmgtpe".iter().position(|&known| known == letter)?).ok()?,
    };
    let base: u128 = match (letters.next(), letters.next(), letters.next()) {
        (None, ..) | (Some(b'i'), Some(b'b'), None) => 1024,
        (Some(b'b'), None, _) => 1000,
        _ => return None,
    };
    Some(base.pow(power))
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use super::*;

    #[test]
    fn prints_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (10 * 1024 - 1, "10.0 KiB"),
            (1_048_575, "1.00 MiB"),
            (1000 << 10, "1000 KiB"),
            (80 << 30, "80.0 GiB"),
            (141 << 30, "141 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>10}|", ByteSize(512)), "     512 B|");
    }

    #[test]
    fn what_is_rounded_up_suffices_as_printed() {
        let step = if cfg!(miri) { 301 } else { 7 };
        let near = |bytes: u64| (bytes.saturating_sub(600)..bytes + 600).step_by(step);
        let powers = (0..63).flat_map(|power| near(1 << power));
        for bytes in powers.chain((0..63).flat_map(|power| near(999 << power >> 9))) {
            let up = ByteSize(bytes).rounded_up();
            let printed: ByteSize = up.to_string().parse().unwrap();
            assert!(up.0 >= bytes && printed == up, "{bytes} {up:?} {printed:?}");
            // By less than one in the last digit.
            assert!(u128::from(up.0 - bytes) * 100 <= u128::from(bytes), "{bytes} {up:?}");
        }
        assert_eq!(ByteSize(u64::MAX).rounded_up(), ByteSize(u64::MAX));
    }

    #[test]
    fn parses_what_people_type() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512k", 512 << 10),
            ("80GiB", 80 << 30),
            ("64MB", 64_000_000),
            ("1.5 GiB", 3 << 29),
            ("1.5 gib", 3 << 29),
            (" 7 B ", 7),
            ("0.1 KiB", 102),
            ("0.999999999999999999999999999999 k", 1023),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            "GiB",
            ".5k",
            "5.",
            "1.2.3",
            "-1",
            "1 kib b",
            "1x",
            "16 EiB",
            "99999999999999999999",
            "1e3",
            "1 bb",
        ] {
            assert_eq!(
                text.parse::<ByteSize>(),
                Err(Error::Parse { expected: Expected::ByteSize }),
                "{text:?}"
            );
        }
    }
}
