//! The conditions of a recorded run: its memory limit, and its calls of `empty_cache`.
//!
//! Neither is recorded. Both follow from the releases of memory to the device. PyTorch's allocator releases
//! memory in three cases:
//!
//! * a request finds no room and the device refuses to provide more: all cached memory is released (a retry);
//! * a request has to grow while more than `garbage_collection_threshold` of the limit is reserved: old
//!   segments are released;
//! * the program calls `empty_cache`.
//!
//! The first two are part of a request: growth or a failure follows. A replay reproduces them if it has the
//! same limit, while calls have to be added. A release that is not followed by growth was a call. If growth
//! follows, it was also a call if the request cannot have caused it: a free block would have served the
//! request; the call sites differ; or no limit explains it, because the run had as many reserved bytes at
//! another time as would have been refused here.
//!
//! One kind of call cannot be distinguished from a retry: in a recording without call sites, directly before
//! a request that no free block served, at the peak of reserved bytes. The inferred limit is then one that
//! the run did not have, but not less than its peak.
//!
//! The remaining releases bound the limit: it allowed the peak of reserved bytes, and it refused the reserved
//! bytes at a retry plus the growth that followed. A garbage collection shows that its fraction of the limit
//! was exceeded; growth without one, while there was garbage, that it was not.

mod evidence;
mod occupancy;

use self::evidence::Evidence;
use super::fidelity::Fidelity;
use orlop_core::torch::TorchConf;
use orlop_trace::history::DeviceHistory;
use orlop_trace::history::Timeline;
use serde::Serialize;

/// The maximum number of blocks to inspect for the causes of releases. A run has few retries; a file with
/// more must not take more time, and the remaining releases are attributed to requests.
const MAX_INSPECTED_BLOCKS: usize = 1 << 22;

/// The circumstances of a recorded run besides its requests, for
/// [`Simulation::under`](super::Simulation::under).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunConditions {
    /// The memory limit; `None` if nothing was refused. Without call sites, a call of `empty_cache` directly
    /// before a request that raises the peak looks like a refusal, and yields a limit that did not exist.
    pub limit: Option<MemoryLimit>,
    /// The events at which the program emptied the cache, in order: the first released region of each call.
    pub cache_releases: Vec<u32>,
}

/// The memory limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryLimit {
    /// The smallest limit in bytes that explains the recording.
    pub bytes: u64,
    /// An upper bound in bytes on limits that explain the recording. `None` if the device's free memory is
    /// recorded, or if no limit explains everything.
    pub below: Option<u64>,
    /// Whether the limit was on the process (PyTorch: `set_per_process_memory_fraction`) and not the device's
    /// memory. Only then does PyTorch collect garbage.
    pub of_process: bool,
}

impl RunConditions {
    /// Infers the conditions of a run of PyTorch's allocator with these settings.
    ///
    /// A recording without segments yields nothing. One of another allocator
    /// ([`Fidelity::applies_to`](super::Fidelity::applies_to)) only yields the memory at the time of failed
    /// requests.
    #[must_use]
    pub fn of(history: &DeviceHistory, conf: &TorchConf) -> Self {
        if !history.has_segments() {
            return Self::default();
        }
        let mut evidence = Evidence::of(history, conf);
        if !Fidelity::applies_to(history) {
            evidence.releases.clear();
        }
        let settings = conf.to_string();
        let (mut cache_releases, mut timeline, mut budget) = (Vec::new(), None, MAX_INSPECTED_BLOCKS);
        for release in std::mem::take(&mut evidence.releases) {
            let by_request = evidence.may_be_request(&release)
                && (budget == 0 || {
                    let timeline =
                        timeline.get_or_insert_with(|| Timeline::with_settings(history, Some(&settings)));
                    !release.was_unnecessary(history, conf, timeline, &mut budget)
                });
            if by_request {
                evidence.releases.push(release);
            } else if !release.is_private {
                cache_releases.push(u32::try_from(release.first).unwrap_or(u32::MAX));
            }
        }
        Self { limit: evidence.limit(), cache_releases }
    }
}
