//! Evidence of a memory limit, from the events of regions.

use super::MemoryLimit;
use super::occupancy::Occupancy;
use orlop_core::torch::TorchConf;
use orlop_device::Policy;
use orlop_trace::history::{
    BlockState, DeviceHistory, EventAction, HistoryEvent, Segment, SizeRules, Timeline,
};

#[derive(Debug)]
pub(super) struct Evidence {
    /// The peak of reserved bytes.
    peak: u64,
    /// The fraction of the limit from which old segments are released; 0 disables it.
    threshold: f64,
    /// Whether the settings limit the memory of the process.
    has_fraction: bool,
    /// The maximum of reserved bytes at which growth did not collect garbage although there was some.
    uncollected: u64,
    /// Reserved bytes plus free bytes of the device when a request failed for the last time.
    capacity: Option<u64>,
    /// Of the requests that failed although the device had enough memory: the minimum of the reserved bytes
    /// that serving one would have led to.
    refused: Option<u64>,
    pub(super) releases: Vec<RegionRelease>,
}

/// Consecutive releases of regions to the device.
#[derive(Debug)]
pub(super) struct RegionRelease {
    /// The index of the first event.
    pub(super) first: usize,
    /// Reserved bytes before it.
    reserved: u64,
    /// What follows it in the same request, if anything does.
    follow_up: FollowUp,
    /// Whether its call site is that of what follows.
    same_site: bool,
    /// Whether entirely free segments of the default pool remain.
    is_partial: bool,
    /// Whether all of it was in private pools.
    pub(super) is_private: bool,
}

/// What follows a release of memory.
#[derive(Debug, Clone, Copy)]
enum FollowUp {
    /// Nothing of the same request.
    Other,
    /// Growth with this event by this number of bytes.
    Growth(usize, u64),
    /// A failed request.
    Failure,
}

impl Evidence {
    pub(super) fn of(history: &DeviceHistory, conf: &TorchConf) -> Self {
        let rules = SizeRules::new(conf);
        let mut occupancy = Occupancy::of(history, &rules);
        let mut reserved =
            history.start.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes));
        let mut evidence = Self {
            peak: reserved,
            threshold: conf.garbage_collection_threshold,
            has_fraction: conf.memory_fraction.is_some_and(|fraction| fraction < 1.0),
            uncollected: 0,
            capacity: None,
            refused: None,
            releases: Vec::new(),
        };
        // Whether the next event may belong to the request that released memory.
        let mut open = false;
        for (index, event) in history.events.iter().enumerate() {
            let last = evidence.releases.last_mut().filter(|_| open);
            match event.action {
                EventAction::RegionReleased | EventAction::Unmapped => {
                    let is_private = history.pool(index) != (0, 0);
                    let is_first_site = |release: &&mut RegionRelease| {
                        history.events.get(release.first).is_some_and(|first| first.site == event.site)
                    };
                    match last.filter(is_first_site) {
                        Some(release) => release.is_private &= is_private,
                        // What other sites released before was a call.
                        None => evidence.releases.push(RegionRelease {
                            first: index,
                            reserved,
                            follow_up: FollowUp::Other,
                            same_site: false,
                            is_partial: false,
                            is_private,
                        }),
                    }
                    open = true;
                    reserved = reserved.saturating_sub(event.bytes);
                }
                EventAction::RegionReserved | EventAction::Mapped => {
                    match last {
                        Some(release) => {
                            release.followed(FollowUp::Growth(index, event.bytes), event, history);
                            release.is_partial = occupancy.has_idle();
                        }
                        None if occupancy.has_idle_large() => {
                            evidence.uncollected = evidence.uncollected.max(reserved);
                        }
                        None => {}
                    }
                    open = false;
                    reserved = reserved.saturating_add(event.bytes);
                    evidence.peak = evidence.peak.max(reserved);
                }
                EventAction::OutOfMemory => {
                    if let Some(release) = last {
                        release.followed(FollowUp::Failure, event, history);
                    }
                    open = false;
                    evidence.fail(event, reserved, rules.segment_bytes(event.bytes));
                }
                // A request that releases memory waits for streams before.
                EventAction::Allocate | EventAction::FreeRequested => open = false,
                _ => {}
            }
            occupancy.apply(index, event, history);
        }
        evidence
    }

    /// Records a failed request that would have reserved `growth` bytes.
    fn fail(&mut self, event: &HistoryEvent, reserved: u64, growth: Option<u64>) {
        match growth {
            Some(growth) if growth <= event.address => {
                let refused = reserved.saturating_add(growth);
                self.refused = Some(self.refused.map_or(refused, |least| least.min(refused)));
            }
            _ => self.capacity = reserved.checked_add(event.address),
        }
    }

    /// Returns `true` if a request may have caused this release because it found no room.
    pub(super) fn may_be_request(&self, release: &RegionRelease) -> bool {
        match release.follow_up {
            FollowUp::Other => false,
            FollowUp::Failure => release.same_site,
            FollowUp::Growth(_, bytes) => {
                let retries = release.reserved.saturating_add(bytes) > self.peak;
                release.same_site && (retries || self.collects(release.reserved))
            }
        }
    }

    /// Returns `true` if `reserved` bytes exceed the threshold for the smallest possible limit.
    fn collects(&self, reserved: u64) -> bool {
        self.threshold > 0.0 && reserved as f64 > self.threshold * self.peak as f64
    }

    /// Returns the limit that explains the failures and the releases by requests.
    pub(super) fn limit(&self) -> Option<MemoryLimit> {
        let (mut min, mut below, mut of_process) = (self.peak, self.refused, self.has_fraction);
        let grown = self.releases.iter().filter_map(|release| match release.follow_up {
            FollowUp::Growth(_, bytes) => Some((release, release.reserved.saturating_add(bytes))),
            _ => None,
        });
        for (release, refused) in grown {
            let bound = match self.collects(release.reserved) {
                false => refused,
                true if release.is_partial => self.bytes_over_threshold(release.reserved),
                // Either may have been the cause.
                true => refused.max(self.bytes_over_threshold(release.reserved)),
            };
            of_process |= self.collects(release.reserved) && release.is_partial;
            below = Some(below.map_or(bound, |least| least.min(bound)));
        }
        of_process |= self.refused.is_some();
        if of_process && self.threshold > 0.0 {
            min = min.max(self.bytes_over_threshold(self.uncollected));
        }
        match (below, self.capacity) {
            (Some(below), _) if of_process || self.capacity.is_none() => {
                Some(MemoryLimit { bytes: min, below: (min < below).then_some(below), of_process })
            }
            (_, Some(capacity)) => {
                Some(MemoryLimit { bytes: capacity.max(min), below: None, of_process: false })
            }
            _ => None,
        }
    }

    /// Returns the bytes of which `reserved` are the threshold's fraction, rounded up.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes over a fraction are bytes"
    )]
    fn bytes_over_threshold(&self, reserved: u64) -> u64 {
        (reserved as f64 / self.threshold).ceil() as u64
    }
}

impl RegionRelease {
    fn followed(&mut self, follow_up: FollowUp, event: &HistoryEvent, history: &DeviceHistory) {
        self.follow_up = follow_up;
        self.same_site = history.events.get(self.first).is_some_and(|first| first.site == event.site);
    }

    /// Returns `true` if a free block would have served the request that grew, so that the request did not
    /// cause the release. Pending blocks that it may have waited for do not count. The number of inspected
    /// blocks is subtracted from `budget`.
    pub(super) fn was_unnecessary(
        &self,
        history: &DeviceHistory,
        conf: &TorchConf,
        timeline: &Timeline<'_>,
        budget: &mut usize,
    ) -> bool {
        let FollowUp::Growth(growth, _) = self.follow_up else { return false };
        // After further releases or frees, another request follows.
        let ends = |action| {
            matches!(action, EventAction::FreeRequested | EventAction::RegionReleased | EventAction::Unmapped)
        };
        let served = history.events.iter().enumerate().skip(growth + 1);
        let Some((index, request)) = served
            .take_while(|(_, event)| !ends(event.action))
            .find(|(_, event)| event.action == EventAction::Allocate)
        else {
            return false;
        };
        let pool = history.pool(index);
        let policy = Policy::torch(conf);
        let Some(size) = usize::try_from(request.bytes).ok().and_then(|bytes| policy.round(bytes)) else {
            return false;
        };
        let serves = |segment: &&Segment| {
            segment.stream == request.stream
                && segment.pool == pool
                && segment.small == (size <= policy.small_limit)
        };
        let segments = timeline.after(self.before_wait(history));
        let inspected = segments.iter().map(|segment| segment.blocks.len() + 1).sum();
        *budget = budget.saturating_sub(inspected);
        segments.iter().filter(serves).any(|segment| {
            let free = segment.blocks.iter().filter(|block| block.state == BlockState::Free);
            free.map(|block| usize::try_from(block.bytes).unwrap_or(usize::MAX)).any(|bytes| {
                let is_split = size < policy.max_split;
                let fits = match is_split {
                    true => bytes < policy.max_split,
                    false => bytes < size.saturating_add(policy.max_non_split_rounding),
                };
                bytes >= size && fits
            })
        })
    }

    /// Returns the number of events before the search for a free block: a request waits for streams before it
    /// releases memory.
    fn before_wait(&self, history: &DeviceHistory) -> usize {
        let events = &history.events[..self.first];
        let mut events = events.iter().enumerate().rev().peekable();
        while let Some((index, event)) = events.next() {
            let freed_now = events.peek().is_some_and(|(_, before)| {
                before.action == EventAction::FreeRequested && before.address == event.address
            });
            if event.action != EventAction::FreeCompleted || freed_now {
                return index + 1;
            }
        }
        0
    }
}
