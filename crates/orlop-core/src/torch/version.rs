//! Releases of PyTorch, and which settings each of them has.

use super::TorchConf;
use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

/// A release of PyTorch: its major and its minor number.
///
/// ```
/// use orlop_core::torch::{TorchConf, TorchVersion};
///
/// let conf: TorchConf = "large_segment_size_mb:64".parse()?;
/// assert_eq!(conf.since(), TorchVersion::new(2, 11));
/// assert!("2.6.0+cu124".parse::<TorchVersion>()? < conf.since());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TorchVersion {
    major: u16,
    minor: u16,
}

/// The releases of PyTorch that a recording can be of, by what it contains.
///
/// ```
/// use orlop_core::torch::{TorchReleases, TorchVersion};
///
/// let releases = TorchReleases { since: TorchVersion::new(2, 10), before: Some(TorchVersion::new(2, 13)) };
/// assert_eq!(releases.to_string(), "2.10 to 2.12");
/// assert!(releases.can_be_before(TorchVersion::new(2, 11)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TorchReleases {
    /// The oldest of them.
    pub since: TorchVersion,
    /// The first release that would have recorded more; `None` if it can be the newest one.
    pub before: Option<TorchVersion>,
}

impl TorchReleases {
    /// All releases: the recording says nothing about its own.
    pub const ALL: Self = Self { since: TorchVersion::OLDEST, before: None };

    /// Returns one release alone.
    #[must_use]
    pub const fn of(release: TorchVersion) -> Self {
        let next = TorchVersion { major: release.major, minor: release.minor.saturating_add(1) };
        Self { since: release, before: Some(next) }
    }

    /// Returns `true` if one of the releases is older than `version`.
    #[must_use]
    pub fn can_be_before(&self, version: TorchVersion) -> bool {
        self.since < version
    }

    /// Returns `true` if one of the releases is `version` or newer.
    #[must_use]
    pub fn can_be_since(&self, version: TorchVersion) -> bool {
        self.before.is_none_or(|before| before > version)
    }
}

impl Default for TorchReleases {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for TorchReleases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.before {
            None => write!(f, "{} or newer", self.since),
            // No release is known by another major number.
            Some(TorchVersion { major, minor }) => {
                let last = TorchVersion { major, minor: minor.saturating_sub(1) };
                if last <= self.since { self.since.fmt(f) } else { write!(f, "{} to {last}", self.since) }
            }
        }
    }
}

/// A text that is not a release of PyTorch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a release of PyTorch: write 2.6, for example")]
pub struct TorchVersionError {
    text: Box<str>,
}

impl TorchVersion {
    /// The oldest release whose allocator this crate describes.
    pub const OLDEST: Self = Self::new(2, 1);

    /// Creates the version of a release.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Returns the major number.
    #[must_use]
    pub const fn major(self) -> u16 {
        self.major
    }

    /// Returns the minor number.
    #[must_use]
    pub const fn minor(self) -> u16 {
        self.minor
    }
}

impl TorchConf {
    /// Returns the first release of PyTorch that has all these settings.
    ///
    /// Source: the names of settings in `libc10_cuda` and `libc10` of the published releases.
    #[must_use]
    pub fn since(&self) -> TorchVersion {
        let default = Self::default();
        let newer = [
            (self.max_non_split_rounding != default.max_non_split_rounding, TorchVersion::new(2, 6)),
            (self.memory_fraction.is_some(), TorchVersion::new(2, 10)),
            (self.large_segment_size != default.large_segment_size, TorchVersion::new(2, 11)),
        ];
        let needed = newer.into_iter().filter(|(is_set, _)| *is_set).map(|(_, version)| version);
        needed.max().unwrap_or(TorchVersion::OLDEST)
    }
}

impl FromStr for TorchVersion {
    type Err = TorchVersionError;

    /// Parses `2.6`, and longer forms as `torch.__version__` has them: `2.6.0+cu124`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.trim().splitn(3, '.');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        match (number(), number()) {
            (Some(major), Some(minor)) => Ok(Self { major, minor }),
            _ => Err(TorchVersionError { text: text.into() }),
        }
    }
}

impl fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    fn version(text: &str) -> Option<TorchVersion> {
        text.parse().ok()
    }

    #[test]
    fn versions_are_read_as_pytorch_writes_them() {
        for text in ["2.6", "2.6.0", " 2.6.0+cu124", "2.6.0a0+git1234"] {
            assert_eq!(version(text), Some(TorchVersion::new(2, 6)), "{text}");
        }
        for text in ["", "2", "2.", "two.six", "-2.6", "2.x"] {
            assert_eq!(version(text), None, "{text}");
        }
        assert!(TorchVersion::new(2, 9) < TorchVersion::new(2, 10));
    }

    #[test]
    fn releases_are_named_by_the_first_and_the_last() {
        let since = TorchVersion::new(2, 5);
        let releases = |before: Option<u16>| TorchReleases {
            since,
            before: before.map(|minor| TorchVersion::new(2, minor)),
        };
        assert_eq!(releases(None).to_string(), "2.5 or newer");
        assert_eq!(releases(Some(9)).to_string(), "2.5 to 2.8");
        assert_eq!(releases(Some(6)).to_string(), "2.5");
        let old = releases(Some(9));
        assert!(old.can_be_before(TorchVersion::new(2, 6)) && !old.can_be_before(since));
        assert!(old.can_be_since(TorchVersion::new(2, 8)) && !old.can_be_since(TorchVersion::new(2, 9)));
    }

    #[test]
    fn settings_need_the_release_that_brought_them() {
        let since = |conf: &str| conf.parse::<TorchConf>().map(|conf| conf.since()).ok();
        assert_eq!(since(""), Some(TorchVersion::OLDEST));
        assert_eq!(since("expandable_segments:True,max_split_size_mb:64"), Some(TorchVersion::OLDEST));
        assert_eq!(since("max_non_split_rounding_mb:32"), Some(TorchVersion::new(2, 6)));
        assert_eq!(since("per_process_memory_fraction:0.5"), Some(TorchVersion::new(2, 10)));
        let both = "large_segment_size_mb:64,per_process_memory_fraction:0.5";
        assert_eq!(since(both), Some(TorchVersion::new(2, 11)));
    }
}
