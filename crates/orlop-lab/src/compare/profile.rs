//! The memory requirements of a run by call site: small enough for a repository, and sufficient to compare
//! runs.

use crate::analyze::{LIVE_AT_START, SiteGroups, peak_reserved, with_start};
use orlop_trace::history::{DeviceHistory, History, SiteId, Sites, WorkBlock, Workload};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The version of the format.
const VERSION: u32 = 1;

/// The memory requirements of a run by device and call site. As JSON it is the baseline of a
/// [`Gate`](super::Gate).
///
/// ```
/// use orlop_trace::history::History;
/// use orlop_lab::compare::Profile;
///
/// let profile = Profile::of(&History::default(), 1);
/// let text = serde_json::to_string(&profile)?;
/// assert_eq!(serde_json::from_str::<Profile>(&text)?, profile);
/// assert!(profile.is_known());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Profile {
    /// The version of the format.
    pub orlop_profile: u32,
    /// The number of program lines in each name.
    pub depth: usize,
    /// The devices.
    pub devices: Vec<DeviceProfile>,
}

/// The memory requirements of a run on a device. Bytes of blocks are requested bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceProfile {
    /// The number of the device.
    pub device: u32,
    /// The peak of live bytes.
    pub peak_live: u64,
    /// The peak of reserved bytes; `None` if the source does not have it.
    pub peak_reserved: Option<u64>,
    /// Live bytes at the end.
    pub end_live: u64,
    /// The number of allocations.
    pub allocations: u64,
    /// By call site, most bytes at the peak first.
    pub sites: Vec<SiteProfile>,
}

/// The memory requirements of a call site.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SiteProfile {
    /// Its name with lines.
    pub name: String,
    /// Its name without lines, by which it is matched when lines move.
    pub key: String,
    /// Live bytes at the peak.
    pub peak_bytes: u64,
    /// Live blocks at the peak.
    pub peak_blocks: u64,
    /// Live bytes at the end.
    pub end_bytes: u64,
    /// Live blocks at the end.
    pub end_blocks: u64,
    /// The number of allocations.
    pub allocations: u64,
}

impl Profile {
    /// Creates the profile of a history, with `depth` program lines in each name.
    #[must_use]
    pub fn of(history: &History, depth: usize) -> Self {
        let depth = depth.max(1);
        let device = |device: &DeviceHistory| DeviceProfile::of(device, &history.sites, depth);
        Self { orlop_profile: VERSION, depth, devices: history.devices.iter().map(device).collect() }
    }

    /// Returns `true` if the version of the format is supported.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.orlop_profile == VERSION
    }

    /// Returns the profile of a device; all zero if it was not used.
    #[must_use]
    pub fn device(&self, device: u32) -> DeviceProfile {
        let found = self.devices.iter().find(|profile| profile.device == device);
        let unused = || DeviceProfile { device, peak_reserved: Some(0), ..DeviceProfile::default() };
        found.cloned().unwrap_or_else(unused)
    }

    /// Returns the devices of both profiles in order.
    pub(super) fn devices_of_both(&self, other: &Self) -> Vec<u32> {
        let mut devices: Vec<u32> =
            self.devices.iter().chain(&other.devices).map(|profile| profile.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }
}

impl DeviceProfile {
    fn of(history: &DeviceHistory, sites: &Sites, depth: usize) -> Self {
        let history = &*with_start(history);
        let work = Workload::of(history);
        let (peak_live, step) = work.peak();
        let peak = step.map_or(0, |step| step + 1);
        let mut table =
            ProfileTable { names: SiteGroups::new(sites, depth), rows: Vec::new(), indices: HashMap::new() };
        for block in work.blocks.iter().filter(|block| block.born.is_some()) {
            let row = table.row(block);
            row.allocations = row.allocations.saturating_add(1);
        }
        for block in work.live_blocks(peak) {
            let row = table.row(block);
            row.peak_bytes = row.peak_bytes.saturating_add(block.bytes);
            row.peak_blocks = row.peak_blocks.saturating_add(1);
        }
        let mut end_live: u64 = 0;
        for block in work.live_blocks(work.steps.len()) {
            let row = table.row(block);
            row.end_bytes = row.end_bytes.saturating_add(block.bytes);
            row.end_blocks = row.end_blocks.saturating_add(1);
            end_live = end_live.saturating_add(block.bytes);
        }
        let mut sites = table.rows;
        sites.sort_by(|a, b| b.peak_bytes.cmp(&a.peak_bytes).then_with(|| a.name.cmp(&b.name)));
        Self {
            device: history.device,
            peak_live,
            peak_reserved: peak_reserved(history, history.events.len()),
            end_live,
            allocations: sites.iter().fold(0, |sum, site| sum.saturating_add(site.allocations)),
            sites,
        }
    }
}

/// Rows by name while they are filled.
struct ProfileTable<'a> {
    names: SiteGroups<'a>,
    rows: Vec<SiteProfile>,
    /// The row of each name. Memory without frames has two: before the recording and in it.
    indices: HashMap<(usize, bool), usize>,
}

impl ProfileTable<'_> {
    fn row(&mut self, block: &WorkBlock) -> &mut SiteProfile {
        let key = self.names.key(block.site, block.born.is_none());
        let next = self.rows.len();
        let index = *self.indices.entry(key).or_insert(next);
        if index == next {
            self.rows.push(Self::named(&mut self.names, block.site, key.1));
        }
        &mut self.rows[index]
    }

    fn named(names: &mut SiteGroups<'_>, site: SiteId, at_start: bool) -> SiteProfile {
        let name = names.label(site, at_start);
        let group = names.group(site);
        let key = if at_start { LIVE_AT_START.to_owned() } else { names.name(group).key(names.sites) };
        SiteProfile { name, key, ..SiteProfile::default() }
    }
}
