//! The conditions of a recorded run: how much memory it could hold, and where it emptied the allocator's
//! cache.
//!
//! Neither is written in a recording. Both follow from the memory that went back to the device. PyTorch's
//! allocator gives memory back in three cases:
//!
//! * a request finds no room and the device refuses to give more: all cached memory goes back (a retry);
//! * a request has to grow while more than `garbage_collection_threshold` of the limit is held: old segments
//!   go back;
//! * the program calls `empty_cache`.
//!
//! The first two are part of a request: its growth follows, or its failure. A replay makes them by itself if
//! it has the same limit. A call it has to be told. Memory that goes back where no growth follows was a call.
//! Where growth follows it was one, too, if the request cannot have done it: a free block would have served
//! the request; the call sites differ; or no limit explains it, because the run held as much at another time
//! as it would have been refused here.
//!
//! One call cannot be told from a retry: in a recording without call sites, right before a request that no
//! free block served, where the run held the most. A limit is concluded from it that the run did not have: no
//! less than it held.
//!
//! What is left bounds the limit: it allowed the most that was ever held, and it refused what was held at a
//! retry together with the growth that followed. A collection tells that its share of the limit was passed,
//! and growth without one, while there was something to collect, that it was not.

mod evidence;
mod occupancy;

use self::evidence::Evidence;
use super::fidelity::Fidelity;
use orlop_core::torch::TorchConf;
use orlop_trace::history::DeviceHistory;
use orlop_trace::history::Timeline;
use serde::Serialize;

/// How many blocks are inspected to find the cause of releases. A run has few retries; a file that claims
/// more must not take more time, and the remaining releases are attributed to requests.
const LOOKS: usize = 1 << 22;

/// The circumstances of a recorded run beside its requests, for
/// [`Simulation::under`](super::Simulation::under).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunConditions {
    /// The memory that the run could hold; `None` if nothing was refused. Without call sites, a call of
    /// `empty_cache` right before a request that raises the peak looks like a refusal, and gives a limit that
    /// was not there.
    pub limit: Option<MemoryLimit>,
    /// The events at which the program emptied the cache, in order: of each call the first region that went
    /// back.
    pub cache_releases: Vec<u32>,
}

/// The memory that a run could hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryLimit {
    /// In bytes: the least that explains the recording.
    pub bytes: u64,
    /// A limit that explains the recording is below this many bytes. `None` if the device told what it had
    /// left, or if no limit explains all of it.
    pub below: Option<u64>,
    /// Whether the process had this limit (PyTorch: `set_per_process_memory_fraction`), not the device. Only
    /// then does PyTorch collect garbage.
    pub of_process: bool,
}

impl RunConditions {
    /// Finds the conditions of a run that PyTorch's allocator served under these settings.
    ///
    /// A recording without segments tells nothing of them. One of another allocator
    /// ([`Fidelity::applies_to`](super::Fidelity::applies_to)) only tells how much memory there was when a
    /// request failed.
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
        let (mut cache_releases, mut moments, mut looks) = (Vec::new(), None, LOOKS);
        for release in std::mem::take(&mut evidence.releases) {
            let by_request = evidence.may_be_request(&release)
                && (looks == 0 || {
                    let moments =
                        moments.get_or_insert_with(|| Timeline::with_settings(history, Some(&settings)));
                    !release.was_needless(history, conf, moments, &mut looks)
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
