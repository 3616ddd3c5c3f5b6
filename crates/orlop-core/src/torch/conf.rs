//! PyTorch's settings, as people write them into `PYTORCH_CUDA_ALLOC_CONF` (or `PYTORCH_ALLOC_CONF`).
//!
//! `key:value` pairs, separated by commas; a value may be a list in brackets. What PyTorch refuses is refused
//! here, too, with the reason. Settings that do not change where blocks go (pinned memory, locks) are checked
//! for being known and are otherwise kept out of it.
//!
//! Source: `AllocatorConfig.cpp` and `CUDAAllocatorConfig.cpp` of PyTorch; the golden files say what they
//! lead to.

use super::values::{self, boolean, divisions, mebibytes, pairs, share};
use super::{AddressReserve, ReserveClasses, TieRule};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

const MIB: usize = 1 << 20;

/// Intervals of `roundup_power2_divisions`: 1 MiB, 2 MiB, … 32 GiB and more.
pub const ROUNDING_INTERVALS: usize = 16;

/// The settings of PyTorch's CUDA allocator that decide the addresses of blocks.
///
/// ```
/// use orlop_core::torch::TorchConf;
///
/// let conf: TorchConf = "expandable_segments:True,roundup_power2_divisions:[256:1,>:4]".parse()?;
/// assert!(conf.expandable_segments);
/// assert_eq!(conf.to_string(), "expandable_segments:True,roundup_power2_divisions:[256:1,>:4]");
///
/// let error = "max_split_size_mb:10".parse::<TorchConf>().unwrap_err();
/// assert!(error.to_string().starts_with("max_split_size_mb cannot be 10, expected a whole number of MiB"));
/// # Ok::<(), orlop_core::torch::ConfError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TorchConf {
    /// Blocks of this many bytes and more are never split (`max_split_size_mb`). `None`: all may be.
    pub max_split_size: Option<usize>,
    /// A request of `max_split_size` and more takes a block that is larger by less than this many bytes
    /// (`max_non_split_rounding_mb`).
    pub max_non_split_rounding: usize,
    /// The bytes of a segment for large requests below 10 MiB (`large_segment_size_mb`).
    pub large_segment_size: usize,
    /// The share of the limit from which on old blocks go back to the device before it grows
    /// (`garbage_collection_threshold`); 0: never. It needs a memory fraction.
    pub garbage_collection_threshold: f64,
    /// The number of steps that each power of two is divided into, by interval (`roundup_power2_divisions`);
    /// 0 and 1: multiples of 512 bytes.
    pub roundup_power2_divisions: [usize; ROUNDING_INTERVALS],
    /// Segments grow in place (`expandable_segments`).
    pub expandable_segments: bool,
    /// The addresses of an expandable segment (`expandable_segments_reserve`). `None`: nine eighths of the
    /// device's memory.
    pub address_reserve: Option<AddressReserve>,
    /// The addresses of an expandable segment of a stream that has a class
    /// (`expandable_segments_reserve_by_class`).
    pub address_reserve_by_class: ReserveClasses,
    /// The limit of reserved bytes, as a share of the device's memory (`per_process_memory_fraction`).
    pub memory_fraction: Option<f64>,
    /// A request that would take reserved bytes beyond the device's memory, and not beyond the limit, fails
    /// before anything is released for it (`throw_on_cudamalloc_oom`).
    pub throw_on_oom: bool,
    /// Which of several free blocks of one size is taken. No setting: the versions of PyTorch differ.
    pub ties: TieRule,
}

impl Default for TorchConf {
    fn default() -> Self {
        Self {
            max_split_size: None,
            max_non_split_rounding: 20 * MIB,
            large_segment_size: 20 * MIB,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; ROUNDING_INTERVALS],
            expandable_segments: false,
            address_reserve: None,
            address_reserve_by_class: ReserveClasses::default(),
            memory_fraction: None,
            throw_on_oom: false,
            ties: TieRule::default(),
        }
    }
}

/// An error in settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfError {
    /// The setting does not exist.
    #[error("{key} is not a setting of PyTorch's CUDA allocator")]
    UnknownKey {
        /// The name that was found.
        key: Box<str>,
    },
    /// The value is not valid for the setting.
    #[error("{key} cannot be {value}, expected {expected}")]
    Value {
        /// The setting.
        key: Box<str>,
        /// Its value.
        value: Box<str>,
        /// What is valid.
        expected: &'static str,
    },
    /// The setting has no value.
    #[error("{key} has no value: write {key}:value")]
    NoValue {
        /// The setting.
        key: Box<str>,
    },
    /// The backend is not PyTorch's own allocator.
    #[error("the backend {backend} is not PyTorch's own allocator: only native can be simulated")]
    Backend {
        /// Its name.
        backend: Box<str>,
    },
}

/// Switches that do not change the addresses of blocks here.
const SWITCHES: [&str; 7] = [
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
];

/// Numbers that do not change the addresses of blocks.
const NUMBERS: [&str; 3] =
    ["pinned_max_cached_size_mb", "pinned_max_round_threshold_mb", "pinned_reserve_segment_size_mb"];

/// The most threads that register pinned memory.
const MAX_REGISTER_THREADS: usize = 128;

impl FromStr for TorchConf {
    type Err = ConfError;

    fn from_str(text: &str) -> Result<Self, ConfError> {
        let (conf, errors) = Self::known(text);
        errors.into_iter().next().map_or(Ok(conf), Err)
    }
}

impl TorchConf {
    /// Returns these settings with another rule for free blocks of equal size.
    #[must_use]
    pub fn with_ties(self, ties: TieRule) -> Self {
        Self { ties, ..self }
    }

    /// Parses the settings that are valid, and returns the errors of the others, which are left out:
    /// recordings can be of other versions of PyTorch.
    #[must_use]
    pub fn known(text: &str) -> (Self, Vec<ConfError>) {
        let mut conf = Self::default();
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        if text.is_empty() {
            return (conf, Vec::new());
        }
        // One comma may follow the last setting.
        let pairs = pairs(text.strip_suffix(',').unwrap_or(&text));
        // The minimum of these settings is the size of segments, wherever that is set.
        let is_later = |pair: &&str| {
            pair.starts_with("max_split_size_mb") || pair.starts_with("max_non_split_rounding_mb")
        };
        let (later, first): (Vec<_>, Vec<_>) = pairs.partition(is_later);
        let errors = first.into_iter().chain(later).filter_map(|pair| conf.set(pair).err()).collect();
        (conf, errors)
    }

    fn set(&mut self, pair: &str) -> Result<(), ConfError> {
        if pair.is_empty() {
            return Err(ConfError::UnknownKey { key: ",".into() });
        }
        let found = pair.split_once(':').filter(|(_, value)| !value.is_empty());
        let (key, value) = found.ok_or_else(|| ConfError::NoValue { key: pair.into() })?;
        if !value.starts_with('[') && value.contains([':', '[', ']']) {
            return Err(values::refused(key, value, "one value; settings are separated by commas"));
        }
        match key {
            "backend" if value == "native" => {}
            "backend" => return Err(ConfError::Backend { backend: value.into() }),
            "max_split_size_mb" => self.max_split_size = Some(self.segment_or_more(key, value)?),
            "max_non_split_rounding_mb" => self.max_non_split_rounding = self.segment_or_more(key, value)?,
            "large_segment_size_mb" => {
                self.large_segment_size = mebibytes(key, value, "a whole number of MiB above 10", 11)?;
            }
            "garbage_collection_threshold" => {
                let expected = "a share between 0 and 1";
                let fits = |x| x > 0.0 && x < 1.0;
                self.garbage_collection_threshold = share(key, value, expected, fits)?;
            }
            "per_process_memory_fraction" => {
                let fits = |x| (0.0..=1.0).contains(&x);
                self.memory_fraction = Some(share(key, value, "a share from 0 to 1", fits)?);
            }
            "expandable_segments" => self.expandable_segments = boolean(key, value)?,
            "throw_on_cudamalloc_oom" => self.throw_on_oom = boolean(key, value)?,
            "roundup_power2_divisions" => self.roundup_power2_divisions = divisions(value)?,
            "expandable_segments_reserve" => {
                if value.starts_with('[') {
                    return Err(values::refused(key, value, "a share such as 0.5, or a size such as 40G"));
                }
                self.address_reserve = AddressReserve::parse(value);
            }
            "expandable_segments_reserve_by_class" => {
                let list =
                    values::list(value).ok_or_else(|| values::refused(key, value, "a list in brackets"))?;
                // PyTorch accepts any list here; one of other entries names no class.
                self.address_reserve_by_class = ReserveClasses::parse(list).unwrap_or_default();
            }
            "pinned_num_register_threads" => {
                let fits = |&count: &usize| count.is_power_of_two() && count <= MAX_REGISTER_THREADS;
                let refused = || values::refused(key, value, "a power of two up to 128");
                values::number(value).filter(fits).ok_or_else(refused)?;
            }
            key if SWITCHES.contains(&key) => {
                boolean(key, value)?;
            }
            key if NUMBERS.contains(&key) => {
                // Without reserved segments PyTorch wants no setting.
                let min = usize::from(key == "pinned_reserve_segment_size_mb");
                mebibytes(key, value, "a whole number of MiB", min)?;
            }
            key => return Err(ConfError::UnknownKey { key: key.into() }),
        }
        Ok(())
    }

    /// Parses bytes that are not less than a segment's.
    fn segment_or_more(&self, key: &str, value: &str) -> Result<usize, ConfError> {
        let expected = "a whole number of MiB, at least large_segment_size_mb (20)";
        mebibytes(key, value, expected, self.large_segment_size / MIB)
    }
}

/// Writes the value of `PYTORCH_CUDA_ALLOC_CONF`; empty for the defaults.
impl fmt::Display for TorchConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let mut separator = "";
        let mut put = |f: &mut fmt::Formatter<'_>, key: &str, value: &dyn fmt::Display| {
            let before = core::mem::replace(&mut separator, ",");
            write!(f, "{before}{key}:{value}")
        };
        if self.expandable_segments {
            put(f, "expandable_segments", &"True")?;
        }
        if let Some(reserve) = self.address_reserve {
            put(f, "expandable_segments_reserve", &reserve)?;
        }
        if !self.address_reserve_by_class.is_empty() {
            put(f, "expandable_segments_reserve_by_class", &self.address_reserve_by_class)?;
        }
        if let Some(bytes) = self.max_split_size {
            put(f, "max_split_size_mb", &(bytes / MIB))?;
        }
        if self.max_non_split_rounding != default.max_non_split_rounding {
            put(f, "max_non_split_rounding_mb", &(self.max_non_split_rounding / MIB))?;
        }
        if self.large_segment_size != default.large_segment_size {
            put(f, "large_segment_size_mb", &(self.large_segment_size / MIB))?;
        }
        if self.garbage_collection_threshold > 0.0 {
            put(f, "garbage_collection_threshold", &self.garbage_collection_threshold)?;
        }
        if self.roundup_power2_divisions != default.roundup_power2_divisions {
            put(f, "roundup_power2_divisions", &Divisions(&self.roundup_power2_divisions))?;
        }
        if let Some(fraction) = self.memory_fraction {
            put(f, "per_process_memory_fraction", &fraction)?;
        }
        if self.throw_on_oom {
            put(f, "throw_on_cudamalloc_oom", &"True")?;
        }
        Ok(())
    }
}

struct Divisions<'a>(&'a [usize; ROUNDING_INTERVALS]);

impl fmt::Display for Divisions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0;
        let last = table[ROUNDING_INTERVALS - 1];
        let tail = table.iter().rposition(|&count| count != last).map_or(0, |place| place + 1);
        if tail == 0 {
            return write!(f, "{last}");
        }
        f.write_str("[")?;
        // The first entry also holds for all intervals below it.
        let first = table.iter().position(|&count| count != table[0]).map_or(0, |place| place - 1);
        for (interval, &count) in table.iter().enumerate().take(tail).skip(first) {
            if count != 0 || interval == first || interval + 1 == tail {
                write!(f, "{}:{count},", 1_u64 << interval)?;
            }
        }
        write!(f, ">:{last}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;
    use proptest::prelude::*;

    fn parse(text: &str) -> TorchConf {
        text.parse().unwrap()
    }

    #[test]
    fn the_table_of_rounding_is_pytorchs() {
        let table =
            parse("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]").roundup_power2_divisions;
        assert_eq!(table, [8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 4, 1, 1, 1, 1, 1]);
        assert_eq!(parse("roundup_power2_divisions:4").roundup_power2_divisions, [4; 16]);
        let sparse = parse("roundup_power2_divisions:[64:8,256:4,1024:4,>:1]").roundup_power2_divisions;
        assert_eq!(sparse, [8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn what_has_no_influence_is_known_and_what_is_unknown_is_refused() {
        assert_eq!(
            parse("pinned_use_background_threads:True, release_lock_on_cudamalloc:True,"),
            TorchConf::default()
        );
        assert_eq!(parse(""), TorchConf::default());
        for text in [
            "colour:blue",
            "expandable_segments:yes",
            "backend:cudaMallocAsync",
            "garbage_collection_threshold:1.5",
        ] {
            assert!(text.parse::<TorchConf>().is_err(), "{text}");
        }
        for text in [
            "max_split_size_mb",
            "max_split_size_mb:1",
            "expandable_segments:true",
            "expandable_segments:True,,max_split_size_mb:64",
            "pinned_num_register_threads:3",
            "large_segment_size_mb:64,max_non_split_rounding_mb:32",
            "roundup_power2_divisions:[3:4]",
            "roundup_power2_divisions:[64]",
        ] {
            assert!(text.parse::<TorchConf>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_smaller_segment_allows_smaller_splits() {
        assert!("max_split_size_mb:12".parse::<TorchConf>().is_err());
        assert_eq!(parse("max_split_size_mb:12,large_segment_size_mb:12").max_split_size, Some(12 * MIB));
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "thousands of steps of safe code; half a minute under Miri")]
        fn any_text_is_settings_or_an_error(text in ".{0,80}") {
            let _ = text.parse::<TorchConf>();
        }

        #[test]
        #[cfg_attr(miri, ignore = "safe code, and long under Miri")]
        fn what_is_printed_reads_the_same(
            expandable: bool,
            split in proptest::option::of(20_usize..5000),
            table in proptest::array::uniform16(proptest::sample::select(&[0_usize, 1, 2, 4, 16][..])),
        ) {
            let conf = TorchConf {
                expandable_segments: expandable,
                max_split_size: split.map(|mib| mib * MIB),
                roundup_power2_divisions: table,
                ..TorchConf::default()
            };
            prop_assert_eq!(conf.to_string().parse::<TorchConf>(), Ok(conf));
        }
    }
}
