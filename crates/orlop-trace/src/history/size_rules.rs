//! The sizes of blocks and segments under a program's PyTorch settings, in the numbers of a recording.
//!
//! Recordings have the requested bytes, not those that the allocator took. PyTorch's rules
//! ([`orlop_core::torch`]) give the difference.

use orlop_core::torch::{
    MIN_BLOCK_BYTES, SMALL_REQUEST_BYTES, TorchConf, UNSPLIT_REST_BYTES, kept_rest, round_size, segment_size,
};

/// PyTorch's size rules under the settings of a recording. Sizes in a recording are arbitrary: results beyond
/// 2^64 saturate.
///
/// ```
/// use orlop_trace::history::SizeRules;
///
/// let rules = SizeRules::parse("roundup_power2_divisions:4");
/// assert_eq!(rules.taken(1200 << 10, 20 << 20, false), 1280 << 10);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SizeRules(TorchConf);

impl SizeRules {
    /// Creates the rules for these settings.
    #[must_use]
    pub fn new(conf: &TorchConf) -> Self {
        Self(conf.clone())
    }

    /// Creates the rules for an option string. Options that are not understood are ignored.
    #[must_use]
    pub fn parse(options: &str) -> Self {
        Self(TorchConf::known(options).0)
    }

    /// Returns the size that a request is rounded to.
    pub(crate) fn round(&self, requested: u64) -> u64 {
        self.rounded(requested).map_or(u64::MAX, |bytes| bytes as u64)
    }

    fn rounded(&self, requested: u64) -> Option<usize> {
        let requested = usize::try_from(requested).ok()?;
        round_size(requested, MIN_BLOCK_BYTES, &self.0.roundup_power2_divisions)
    }

    /// Returns the smallest size that a request is rounded to under any settings.
    pub(crate) fn granules(&self, requested: u64) -> u64 {
        requested.max(1).checked_next_multiple_of(MIN_BLOCK_BYTES as u64).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that a request takes of a free chunk of `room` bytes: all, if the remainder is too
    /// small to split off. Small and expandable segments are split `finely`.
    #[must_use]
    pub fn taken(&self, requested: u64, room: u64, finely: bool) -> u64 {
        let rounded = self.round(requested);
        let split = room.saturating_sub(rounded) > self.max_remainder(finely, rounded);
        if split { rounded } else { room }
    }

    /// Returns the largest remainder that is not split off a block of `bytes` bytes.
    pub(crate) fn max_remainder(&self, finely: bool, bytes: u64) -> u64 {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let max_split = self.0.max_split_size.unwrap_or(usize::MAX);
        let finely = finely || self.0.expandable_segments;
        kept_rest(bytes, finely, MIN_BLOCK_BYTES, max_split, UNSPLIT_REST_BYTES) as u64
    }

    /// Returns `true` if segments for small requests serve this request.
    #[must_use]
    pub fn is_small(&self, requested: u64) -> bool {
        requested <= SMALL_REQUEST_BYTES as u64
    }

    /// Returns the size of the segment that is allocated for a request; `None` on overflow.
    #[must_use]
    pub fn segment_bytes(&self, requested: u64) -> Option<u64> {
        let size = self.rounded(requested)?;
        segment_size(size, SMALL_REQUEST_BYTES, self.0.large_segment_size).map(|bytes| bytes as u64)
    }

    /// Returns `true` if a segment of this length serves small requests: all of those have the same length,
    /// and no others have it.
    #[must_use]
    pub fn is_small_segment(&self, bytes: u64) -> bool {
        self.segment_bytes(1).is_some_and(|small| bytes <= small)
    }

    /// Returns `true` if pages of `bytes` bytes, mapped at once, serve small requests: less than one large
    /// page. The settings may have changed since, so this does not depend on whether segments are expandable.
    #[must_use]
    pub fn is_small_page(&self, bytes: u64) -> bool {
        bytes < self.0.large_segment_size as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn requests_are_rounded_as_by_pytorch() {
        let plain = SizeRules::parse("");
        assert_eq!([0, 1, 512, 513, 1 << 20].map(|bytes| plain.round(bytes)), [512, 512, 512, 1024, 1 << 20]);
        let four = SizeRules::parse("garbage_collection_threshold:0.8, roundup_power2_divisions:4");
        assert_eq!(four.round(1200 * 1024), 1280 * 1024);
        assert_eq!(four.round(1 << 21), 1 << 21);
        assert_eq!(four.round(2048), 2048);
        assert_eq!(four.round(2049), 2560);
        assert_eq!(four.granules(2049), 2560);
        assert_eq!(four.granules(1200 * 1024 + 1), 1200 * 1024 + 512);
        assert_eq!([four.round(u64::MAX), four.granules(u64::MAX)], [u64::MAX; 2]);
    }

    #[test]
    fn remainders_depend_on_the_settings() {
        let limited = SizeRules::parse("max_split_size_mb:32");
        assert_eq!(limited.taken(2 * MIB, 4 * MIB, false), 2 * MIB);
        assert_eq!(limited.taken(2 * MIB, 3 * MIB, false), 3 * MIB);
        assert_eq!(limited.taken(2 * MIB, 3 * MIB, true), 2 * MIB);
        assert_eq!(limited.taken(32 * MIB, 50 * MIB, false), 50 * MIB);
        assert_eq!(SizeRules::parse("expandable_segments:True").taken(2 * MIB, 3 * MIB, false), 2 * MIB);
    }

    #[test]
    fn unknown_settings_are_ignored() {
        let odd = [
            "[",
            "roundup_power2_divisions:[>:4]",
            "roundup_power2_divisions:[x:1,:,1:]",
            ":::",
            "roundup_power2_divisions:[0:3]",
            "max_split_size_mb:many",
        ];
        for odd in odd {
            let rules = SizeRules::parse(&format!("{odd},expandable_segments:True"));
            assert!(rules.round(1 << 30) >= 1 << 30, "{odd}");
        }
        let later = SizeRules::parse("some_day:1,expandable_segments:True");
        assert_eq!(later, SizeRules::parse("expandable_segments:True"));
    }

    #[test]
    fn regions_differ_by_their_length() {
        let plain = SizeRules::parse("");
        assert!(plain.is_small(MIB) && !plain.is_small(MIB + 1));
        assert!(plain.is_small_segment(2 * MIB) && !plain.is_small_segment(20 * MIB));
        assert!(plain.is_small_page(2 * MIB) && !plain.is_small_page(20 * MIB));
        assert!(
            !SizeRules::parse("expandable_segments:True,large_segment_size_mb:12").is_small_page(12 * MIB)
        );
        assert_eq!(plain.segment_bytes(u64::MAX), None);
        assert_eq!(plain.segment_bytes(11 * MIB), Some(12 * MIB));
    }
}
