//! How long a block is that was asked for with so many bytes: PyTorch's rounding and splitting.
//!
//! Source: `CUDACachingAllocator.cpp`, `round_size` and `should_split`; the options of `PYTORCH_CUDA_ALLOC_CONF`.

use super::state::Region;

/// Blocks are multiples of this.
const GRANULE: u64 = 512;

/// A rest of a large block that is no longer than this stays with it.
const LARGE_REST: u64 = 1 << 20;

const MIB: u64 = 1 << 20;

/// How many powers of two have their own number of divisions: from 1 MiB on.
const INTERVALS: usize = 16;

/// The settings that matter for how long a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Into how many parts the space between two powers of two is divided, for rounding. 0 and 1: not at all.
    divisions: [u64; INTERVALS],
    /// Blocks of this many bytes are never split.
    max_split: u64,
    expandable: bool,
}

impl Rules {
    /// Of an option string. What is not understood is as if it were not there.
    pub(crate) fn parse(options: &str) -> Self {
        let mut rules = Self { divisions: [0; INTERVALS], max_split: u64::MAX, expandable: false };
        for (name, value) in fields(options) {
            match name {
                "expandable_segments" => rules.expandable = value.eq_ignore_ascii_case("true"),
                "max_split_size_mb" => {
                    let bytes = value.parse().ok().and_then(|mib: u64| mib.checked_mul(MIB));
                    rules.max_split = bytes.unwrap_or(u64::MAX);
                }
                "roundup_power2_divisions" => rules.divide(value),
                _ => {}
            }
        }
        rules
    }

    /// `4` for all, or `[1:2,256:4,>:8]` by mebibytes; `>` is for all that are larger than the last.
    fn divide(&mut self, value: &str) {
        let Some(table) = value.strip_prefix('[') else {
            self.divisions = [value.parse().unwrap_or(0); INTERVALS];
            return;
        };
        let mut last = None;
        for entry in table.trim_end_matches(']').split(',') {
            let Some((from, divisions)) = entry.split_once(':') else { continue };
            let Ok(divisions) = divisions.trim().parse() else { continue };
            if from.trim() == ">" {
                let after = last.map_or(1, |last| last + 1);
                self.divisions.iter_mut().skip(after).for_each(|place| *place = divisions);
                continue;
            }
            let Ok(from) = from.trim().parse::<u64>() else { continue };
            let index = (from.checked_ilog2().unwrap_or(0) as usize).min(INTERVALS - 1);
            // What is smaller than the first is as the first.
            let first = if last.is_none() { 0 } else { index };
            self.divisions[first..=index].fill(divisions);
            last = Some(index);
        }
    }

    /// What a request is rounded to.
    pub(super) fn round(&self, requested: u64) -> u64 {
        if requested < GRANULE {
            return GRANULE;
        }
        let index = (requested.ilog2() as usize).saturating_sub(MIB.ilog2() as usize).min(INTERVALS - 1);
        let divisions = self.divisions[index];
        if divisions > 1 && requested / GRANULE >= divisions && requested > GRANULE * divisions {
            let step = (1_u64 << requested.ilog2()) >> divisions.ilog2();
            return requested.checked_next_multiple_of(step.max(1)).unwrap_or(u64::MAX);
        }
        plain(requested)
    }

    /// The longest rest that a block of `bytes` keeps.
    pub(super) fn kept(&self, region: &Region, bytes: u64) -> u64 {
        self.kept_in(region.small || region.expandable, bytes)
    }

    /// How much of a free piece of `room` bytes a request takes.
    pub(crate) fn taken(&self, requested: u64, room: u64, finely: bool) -> u64 {
        let rounded = self.round(requested);
        let split = room.saturating_sub(rounded) > self.kept_in(finely, rounded);
        if split { rounded } else { room }
    }

    /// The longest rest, where small ones are split off (`finely`) and where not.
    fn kept_in(&self, finely: bool, bytes: u64) -> u64 {
        if finely || self.expandable {
            GRANULE - 1
        } else if bytes >= self.max_split {
            u64::MAX
        } else {
            LARGE_REST
        }
    }
}

/// What a request is rounded to without divisions.
pub(super) fn plain(requested: u64) -> u64 {
    requested.max(1).checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX)
}

/// `name:value` pairs, separated by commas that are not in brackets.
fn fields(options: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut inside = false;
    let pairs = options.split(move |letter: char| {
        inside = match letter {
            '[' => true,
            ']' => false,
            _ => inside,
        };
        letter == ',' && !inside
    });
    pairs.filter_map(|pair| pair.split_once(':')).map(|(name, value)| (name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_as_by_pytorch() {
        let plain = Rules::parse("");
        assert_eq!([0, 1, 512, 513, 1 << 20].map(|bytes| plain.round(bytes)), [512, 512, 512, 1024, 1 << 20]);
        let four = Rules::parse("garbage_collection_threshold:0.8, roundup_power2_divisions:4");
        assert_eq!(four.round(1200 * 1024), 1280 * 1024);
        assert_eq!(four.round(1 << 21), 1 << 21);
        assert_eq!(four.round(2048), 2048);
        assert_eq!(four.round(2049), 2560);
        assert_eq!(four.round(u64::MAX), u64::MAX);
    }

    #[test]
    fn divisions_may_depend_on_the_size() {
        let table = Rules::parse("roundup_power2_divisions:[2:1,4:2,>:8],max_split_size_mb:32");
        assert_eq!(table.divisions[..5], [1, 1, 2, 8, 8]);
        assert_eq!(table.max_split, 32 * MIB);
        assert!(!table.expandable);
        assert!(Rules::parse("expandable_segments:True").expandable);
        for odd in
            ["[", "[>:4]", "roundup_power2_divisions:[x:1,:,1:]", ":::", "roundup_power2_divisions:[0:3]"]
        {
            let _ = Rules::parse(odd).round(1 << 30);
        }
    }
}
