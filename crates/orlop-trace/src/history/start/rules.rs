//! How long blocks and regions are under a program's settings: those of [`Policy::torch`], in the numbers of a recording.

use super::state::StartRegion;
use orlop_device::{Growth, Policy, TorchConf};

/// PyTorch's rules under the settings of a recording. A recording may say any number: what no memory is as large as
/// saturates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PoolRules(Policy);

impl PoolRules {
    /// Of settings.
    pub(crate) fn of(conf: &TorchConf) -> Self {
        Self(Policy::torch(conf))
    }

    /// Of an option string. What is not understood is as if it were not there: the recording was made all the same.
    pub(crate) fn parse(options: &str) -> Self {
        Self::of(&TorchConf::known(options).0)
    }

    /// What a request is rounded to.
    pub(super) fn round(&self, requested: u64) -> u64 {
        let rounded = usize::try_from(requested).ok().and_then(|bytes| self.0.round(bytes));
        rounded.map_or(u64::MAX, |bytes| bytes as u64)
    }

    /// What a request is rounded to at least, whatever the settings.
    pub(super) fn granules(&self, requested: u64) -> u64 {
        requested.max(1).checked_next_multiple_of(self.0.granule as u64).unwrap_or(u64::MAX)
    }

    /// The longest rest that a block of `bytes` keeps.
    pub(super) fn kept(&self, region: &StartRegion, bytes: u64) -> u64 {
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
        self.0.kept_rest(finely, usize::try_from(bytes).unwrap_or(usize::MAX)) as u64
    }

    /// Whether a request is served by regions for small ones.
    pub(crate) fn is_small(&self, requested: u64) -> bool {
        requested <= self.0.small_limit as u64
    }

    /// How large a region would be gained for a request; `None` if no memory is so large.
    pub(crate) fn region_bytes(&self, requested: u64) -> Option<u64> {
        let size = self.0.round(usize::try_from(requested).ok()?)?;
        self.0.region_bytes(size).map(|bytes| bytes as u64)
    }

    /// Whether a region of this length serves small requests: all that do are as long, and no others.
    pub(crate) fn is_small_region(&self, bytes: u64) -> bool {
        self.region_bytes(1).is_some_and(|small| bytes <= small)
    }

    /// Whether pages that were mapped at once, so many bytes of them, serve small requests: fewer than one large page.
    pub(crate) fn is_small_page(&self, bytes: u64) -> bool {
        match self.0.growth {
            Growth::Pages { large, .. } => bytes < large as u64,
            // Pages, but not by the settings that are known: those may have been changed since.
            _ => bytes < self.0.large_region as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn requests_are_rounded_as_by_pytorch() {
        let plain = PoolRules::parse("");
        assert_eq!([0, 1, 512, 513, 1 << 20].map(|bytes| plain.round(bytes)), [512, 512, 512, 1024, 1 << 20]);
        let four = PoolRules::parse("garbage_collection_threshold:0.8, roundup_power2_divisions:4");
        assert_eq!(four.round(1200 * 1024), 1280 * 1024);
        assert_eq!(four.round(1 << 21), 1 << 21);
        assert_eq!(four.round(2048), 2048);
        assert_eq!(four.round(2049), 2560);
        assert_eq!(four.granules(2049), 2560);
        assert_eq!(four.granules(1200 * 1024 + 1), 1200 * 1024 + 512);
        assert_eq!([four.round(u64::MAX), four.granules(u64::MAX)], [u64::MAX; 2]);
    }

    #[test]
    fn rests_stay_by_the_settings() {
        let limited = PoolRules::parse("max_split_size_mb:32");
        assert_eq!(limited.taken(2 * MIB, 4 * MIB, false), 2 * MIB);
        assert_eq!(limited.taken(2 * MIB, 3 * MIB, false), 3 * MIB);
        assert_eq!(limited.taken(2 * MIB, 3 * MIB, true), 2 * MIB);
        assert_eq!(limited.taken(32 * MIB, 50 * MIB, false), 50 * MIB);
        assert_eq!(PoolRules::parse("expandable_segments:True").taken(2 * MIB, 3 * MIB, false), 2 * MIB);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let odd = [
            "[",
            "roundup_power2_divisions:[>:4]",
            "roundup_power2_divisions:[x:1,:,1:]",
            ":::",
            "roundup_power2_divisions:[0:3]",
            "max_split_size_mb:many",
        ];
        for odd in odd {
            let rules = PoolRules::parse(&format!("{odd},expandable_segments:True"));
            assert!(rules.round(1 << 30) >= 1 << 30, "{odd}");
        }
        let later = PoolRules::parse("some_day:1,expandable_segments:True");
        assert_eq!(later, PoolRules::parse("expandable_segments:True"));
    }

    #[test]
    fn regions_are_told_apart_by_their_length() {
        let plain = PoolRules::parse("");
        assert!(plain.is_small(MIB) && !plain.is_small(MIB + 1));
        assert!(plain.is_small_region(2 * MIB) && !plain.is_small_region(20 * MIB));
        assert!(plain.is_small_page(2 * MIB) && !plain.is_small_page(20 * MIB));
        assert!(
            !PoolRules::parse("expandable_segments:True,large_segment_size_mb:12").is_small_page(12 * MIB)
        );
        assert_eq!(plain.region_bytes(u64::MAX), None);
        assert_eq!(plain.region_bytes(11 * MIB), Some(12 * MIB));
    }
}
