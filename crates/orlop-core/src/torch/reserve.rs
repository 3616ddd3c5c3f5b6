//! [`AddressReserve`]: how many addresses PyTorch sets aside for an expandable segment; [`ReserveClasses`]:
//! how many for segments of some streams.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

const GIB: f64 = (1_u64 << 30) as f64;

/// The addresses that are set aside for one expandable segment (`expandable_segments_reserve`). There are
/// never more than nine eighths of the device's memory, which is also what PyTorch takes without this
/// setting.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum AddressReserve {
    /// This share of the device's memory.
    Share(f64),
    /// This many GiB.
    Gibibytes(f64),
}

impl AddressReserve {
    /// Reads a value such as `0.5` or `40G`. `None` for those that PyTorch ignores, with a warning.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let (number, is_absolute) = match value.strip_suffix(['G', 'g']) {
            Some(number) => (number, true),
            None => (value, false),
        };
        let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0)?;
        Some(if is_absolute { Self::Gibibytes(number) } else { Self::Share(number) })
    }

    /// Returns the bytes on a device with this memory, in bytes.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a size is a size, rounded as PyTorch rounds it; a conversion saturates"
    )]
    pub fn bytes(self, memory: u64) -> u64 {
        match self {
            Self::Share(share) => (share * memory as f64) as u64,
            Self::Gibibytes(count) => (count * GIB) as u64,
        }
    }
}

/// Writes the value of the setting.
impl fmt::Display for AddressReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{share}"),
            Self::Gibibytes(count) => write!(f, "{count}G"),
        }
    }
}

/// The addresses that are set aside for segments of streams that have a class
/// (`expandable_segments_reserve_by_class`), by class. The program names the class of a stream (PyTorch:
/// `setExpandableSegmentReserveClassForStream`, in C++).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReserveClasses {
    /// By name, each once.
    classes: Vec<(String, AddressReserve)>,
}

impl ReserveClasses {
    /// Reads a list without its brackets, such as `prefill:0.5,decode:8G`. Entries whose value PyTorch
    /// ignores are left out, and the last of two entries of one class counts. `None` for what is no such
    /// list.
    pub(super) fn parse(list: &str) -> Option<Self> {
        let mut classes = Self::default();
        let list = list.strip_suffix(',').unwrap_or(list);
        if list.is_empty() {
            return Some(classes);
        }
        for entry in list.split(',') {
            let (class, value) = entry.split_once(':')?;
            if [class, value].iter().any(|part| part.is_empty() || part.contains([':', '[', ']'])) {
                return None;
            }
            if let Some(reserve) = AddressReserve::parse(value) {
                classes.classes.retain(|(other, _)| other != class);
                classes.classes.push((class.into(), reserve));
            }
        }
        Some(classes)
    }

    /// Returns the addresses for segments of streams of a class.
    #[must_use]
    pub fn get(&self, class: &str) -> Option<AddressReserve> {
        self.classes.iter().find(|(other, _)| other == class).map(|&(_, reserve)| reserve)
    }

    /// Returns `true` if there is no class.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }
}

/// Writes the value of the setting.
impl fmt::Display for ReserveClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (place, (class, reserve)) in self.classes.iter().enumerate() {
            let separator = if place == 0 { "" } else { "," };
            write!(f, "{separator}{class}:{reserve}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_pytorch_reads_them() {
        let bytes = |value: &str| AddressReserve::parse(value).map(|reserve| reserve.bytes(1 << 30));
        for (value, expected) in
            [("0.5", 1 << 29), ("+0.5", 1 << 29), ("2", 2 << 30), ("0.25G", 1 << 28), ("1g", 1 << 30)]
        {
            assert_eq!(bytes(value), Some(expected), "{value}");
        }
        assert_eq!(bytes("1e20G"), Some(u64::MAX));
        for ignored in ["0", "-1", "abc", "0.3GB", "0.3Gx", "inf", "nan", "0x.8", "G", ""] {
            assert_eq!(bytes(ignored), None, "{ignored}");
        }
    }

    #[test]
    fn classes_are_read_as_pytorch_reads_them() {
        let written = |list: &str| ReserveClasses::parse(list).map(|classes| alloc::format!("{classes}"));
        for (list, expected) in [
            ("a:0.25,b:0.1G", "[a:0.25,b:0.1G]"),
            ("a:0.25,", "[a:0.25]"),
            ("", "[]"),
            ("a:0.25,b:0.1,a:0.5", "[b:0.1,a:0.5]"),
            ("a:x,b:0.5", "[b:0.5]"),
            ("a:0,b:-1", "[]"),
            ("0.5:a,b:1e9", "[b:1000000000]"),
        ] {
            assert_eq!(written(list).as_deref(), Some(expected), "{list}");
        }
        for refused in
            ["a,b:0.5", "a:0.5:b:0.25", ",a:0.25", ":0.25", "a::0.25", "a:", "[a:0.25]", "a:1,,b:1"]
        {
            assert_eq!(written(refused), None, "{refused}");
        }
    }
}
