//! The settings that a sweep tries.

use crate::simulate::AllocatorRules;

/// Common settings of PyTorch, alone and combined.
const SETTINGS: [&str; 19] = [
    "",
    "expandable_segments:True",
    "expandable_segments:True,large_segment_size_mb:12",
    "expandable_segments:True,roundup_power2_divisions:8",
    "large_segment_size_mb:12",
    "large_segment_size_mb:32",
    "large_segment_size_mb:64",
    "large_segment_size_mb:128",
    "max_split_size_mb:20",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:128,roundup_power2_divisions:8",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
];

/// PyTorch collects garbage only with a limit; a fraction of 1 is none.
const WITH_LIMIT: [&str; 2] = [
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.99",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.99",
];

/// Returns PyTorch's settings and the other allocators: 24 with a memory limit, 22 without.
#[must_use]
pub fn settings(with_limit: bool) -> Vec<AllocatorRules> {
    let limited = if with_limit { &WITH_LIMIT[..] } else { &[] };
    let torch = SETTINGS.iter().chain(limited).filter_map(|conf| AllocatorRules::torch(conf).ok());
    torch.chain([AllocatorRules::Orlop, AllocatorRules::OrlopSegments, AllocatorRules::TensorFlow]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_are_pytorchs_and_are_written_as_it_reads_them() {
        let rules = settings(true);
        assert_eq!((rules.len(), settings(false).len()), (24, 22));
        let confs: Vec<String> = rules.iter().filter_map(AllocatorRules::conf).collect();
        assert!(confs.iter().eq(SETTINGS.iter().chain(&WITH_LIMIT)));
    }
}
