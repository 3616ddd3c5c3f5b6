//! Policies for random programs.

use super::random::Random;
use orlop_device::{Growth, IndexKind, Policy, TorchConf};

/// Returns PyTorch's policy with random valid settings, or [`Policy::orlop`] or its variant without pages.
#[must_use]
pub fn shipped(random: &mut Random) -> Policy {
    match random.below(5) {
        0 => Policy::orlop(),
        1 => Policy::orlop_without_pages(),
        2 => Policy::orlop_bounded_waste(),
        _ => Policy::torch(&settings(random)),
    }
}

fn settings(random: &mut Random) -> TorchConf {
    let mut parts: Vec<String> = Vec::new();
    for (key, values) in SETTINGS {
        if random.one_in(3)
            && let Some(value) = random.pick(values)
        {
            parts.push(format!("{key}:{value}"));
        }
    }
    // Invalid combinations are errors: the defaults replace them.
    parts.join(",").parse().unwrap_or_default()
}

/// Settings of `PYTORCH_CUDA_ALLOC_CONF`, with ordinary and extreme values.
const SETTINGS: [(&str, &[&str]); 8] = [
    ("max_split_size_mb", &["20", "21", "64", "200", "17592186044415"]),
    ("max_non_split_rounding_mb", &["21", "100", "17592186044415"]),
    ("large_segment_size_mb", &["11", "20", "32", "513"]),
    ("garbage_collection_threshold", &["0.000001", "0.5", "0.999999"]),
    ("per_process_memory_fraction", &["0", "1", "0.5", "0.9999999999999999"]),
    ("expandable_segments", &["True", "False"]),
    ("roundup_power2_divisions", &["1", "2", "16", "1024", "[1:4,2:8,4:16,8:1,16:2,32:4,>:8]", "[>:4]"]),
    ("pinned_use_cuda_host_register", &["True"]),
];

/// Returns every pair of settings with each pair of their values, and each value alone.
#[must_use]
pub fn pairs_of_settings() -> Vec<String> {
    let mut all = Vec::new();
    for (place, (key, values)) in SETTINGS.iter().enumerate() {
        for value in *values {
            all.push(format!("{key}:{value}"));
            for (other, others) in &SETTINGS[place + 1..] {
                all.extend(others.iter().map(|second| format!("{key}:{value},{other}:{second}")));
            }
        }
    }
    all
}

/// Returns a policy with random values in all fields.
#[must_use]
pub fn any(random: &mut Random) -> Policy {
    let mut policy = shipped(random);
    let extensions = &mut policy.extensions;
    for flag in [
        &mut extensions.poll_one,
        &mut extensions.limit_run_ahead,
        &mut extensions.steal,
        &mut extensions.search_after_wait,
        &mut extensions.keep_last_freed,
        &mut extensions.by_lifetime,
        &mut extensions.bound_waste,
        &mut extensions.large_pages,
        &mut extensions.grow_ranges,
        &mut extensions.plan_periods,
    ] {
        *flag ^= random.one_in(2);
    }
    if random.one_in(2) {
        extensions.hold_to_peak = random.pick(&[None, Some(0), Some(3), Some(7), Some(64)]).flatten();
    }
    let mut set = |field: &mut usize, one_in: usize, values: &[usize]| {
        if random.one_in(one_in) {
            *field = random.pick(values).unwrap_or(*field);
        }
    };
    set(&mut policy.granule, 3, &[0, 1, 256, 1000, 4096, 1 << 20, 3 << 20, usize::MAX]);
    set(&mut policy.small_limit, 4, &[0, 1, 4096, 3 << 20, usize::MAX]);
    set(&mut policy.large_region, 4, &[0, 1, 7 << 20, 64 << 20, usize::MAX]);
    set(&mut policy.large_rest, 4, &[0, 511, 8 << 20, usize::MAX]);
    set(&mut policy.max_split, 3, &[0, 1, 5 << 20, 20 << 20, 64 << 20]);
    set(&mut policy.max_non_split_rounding, 4, &[0, 1, 20 << 20, usize::MAX]);
    for divisions in &mut policy.rounding {
        set(divisions, 6, &[0, 1, 2, 3, 7, 1024, usize::MAX]);
    }
    if random.one_in(3) {
        let values = [1000, 64 << 10, 2 << 20, 3 << 20, 20 << 20];
        let [small, large] = [(); 2].map(|()| random.pick(&values).unwrap_or(2 << 20));
        let pages = Growth::Pages { small, large };
        policy.growth = if random.one_in(3) { Growth::Regions } else { pages };
    }
    if random.one_in(4) {
        policy.collect_from = random.pick(&[0.01, 0.5, 1.0, 2.0, -1.0, f64::NAN]).unwrap_or(0.5);
        policy.fraction = Some(random.share());
    }
    if random.one_in(3) {
        policy.small_index = if random.one_in(2) { IndexKind::Ordered } else { IndexKind::Segregated };
    }
    policy
}
