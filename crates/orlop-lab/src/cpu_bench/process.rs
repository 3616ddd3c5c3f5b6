//! Memory statistics of this process from the files in `/proc/self`. On systems without them nothing is
//! reported.

use std::fs;

/// Returns the number of page faults since the process began, minor and major.
pub(crate) fn page_faults() -> Option<u64> {
    faults(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Returns the peak of resident memory in bytes since the process began, or since [`reset_peak_resident`].
pub(crate) fn peak_resident() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Returns the resident memory in bytes.
pub(crate) fn resident() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Resets [`peak_resident`]. Returns `false` if the system does not allow it.
pub(crate) fn reset_peak_resident() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Parses fields 10 (minor) and 12 (major) of `/proc/self/stat`. Field 2 is the program's name in parentheses
/// and may contain anything, so fields are counted from the last parenthesis.
fn faults(stat: &str) -> Option<u64> {
    let (_, from_third) = stat.rsplit_once(')')?;
    let mut fields = from_third.split_ascii_whitespace().skip(10 - 3);
    let minor: u64 = fields.next()?.parse().ok()?;
    let major: u64 = fields.nth(1)?.parse().ok()?;
    Some(minor + major)
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_by_field() {
        let stat = "7 (a ) b) R 1 2 3 4 5 6 1000 8 20 10 11 12\n";
        assert_eq!(faults(stat), Some(1020));
        assert_eq!(faults("7 (a) R 1"), None);
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t  12 kB\n";
        assert_eq!(kibibytes(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(kibibytes(status, "VmRSS:"), Some(12 << 10));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }
}
