//! What a run needed, by call site: small enough to keep beside the code, and all that comparing runs takes.

use crate::analyze::{BEFORE, SiteGroups, live, peak, peak_reserved, with_start};
use orlop_trace::history::{DeviceHistory, History, SiteId, Sites, WorkBlock, Workload};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The form of a written profile.
const VERSION: u32 = 1;

/// What a run needed, by device and call site. Written as JSON it is the baseline of a [`Gate`](super::Gate).
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
    /// The form of what follows.
    pub orlop_profile: u32,
    /// How many lines of the program are in each name.
    pub depth: usize,
    /// By device.
    pub devices: Vec<DeviceProfile>,
}

/// What a run needed on a device. Bytes of blocks are as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceProfile {
    /// Its number.
    pub device: u32,
    /// The most bytes that lived at once.
    pub peak_live: u64,
    /// The most bytes that were held from the device at once; `None` where the source does not tell.
    pub peak_reserved: Option<u64>,
    /// Bytes that live in the end.
    pub end_live: u64,
    /// Blocks handed out.
    pub allocations: u64,
    /// By call site, most bytes at the peak first.
    pub sites: Vec<SiteProfile>,
}

/// What a call site needed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SiteProfile {
    /// Its name, with lines.
    pub name: String,
    /// Its name without lines, by which it is found again when they moved.
    pub key: String,
    /// Bytes that it held when most bytes lived.
    pub peak_bytes: u64,
    /// Blocks that it held then.
    pub peak_blocks: u64,
    /// Bytes that it holds in the end.
    pub end_bytes: u64,
    /// Blocks that it holds in the end.
    pub end_blocks: u64,
    /// Blocks handed out to it.
    pub allocations: u64,
}

impl Profile {
    /// Of a history, with `depth` lines of the program in each name.
    #[must_use]
    pub fn of(history: &History, depth: usize) -> Self {
        let depth = depth.max(1);
        let device = |device: &DeviceHistory| DeviceProfile::of(device, &history.sites, depth);
        Self { orlop_profile: VERSION, depth, devices: history.devices.iter().map(device).collect() }
    }

    /// Whether a profile that was read is of a form that is known here.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.orlop_profile == VERSION
    }

    /// Of a device; nothing at all if it was not used.
    #[must_use]
    pub fn device(&self, device: u32) -> DeviceProfile {
        let found = self.devices.iter().find(|profile| profile.device == device);
        let unused = || DeviceProfile { device, peak_reserved: Some(0), ..DeviceProfile::default() };
        found.cloned().unwrap_or_else(unused)
    }

    /// All devices of two profiles, by number.
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
        let (peak, peak_live) = peak(&work);
        let mut table =
            ProfileTable { names: SiteGroups::new(sites, depth), rows: Vec::new(), places: HashMap::new() };
        for block in work.blocks.iter().filter(|block| block.born.is_some()) {
            let row = table.row(block);
            row.allocations = row.allocations.saturating_add(1);
        }
        for block in live(&work, peak) {
            let row = table.row(block);
            row.peak_bytes = row.peak_bytes.saturating_add(block.bytes);
            row.peak_blocks = row.peak_blocks.saturating_add(1);
        }
        let mut end_live: u64 = 0;
        for block in live(&work, work.steps.len()) {
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
            peak_reserved: peak_reserved(history),
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
    /// Where a name's row is; names without frames have two, before the recording and in it.
    places: HashMap<(usize, bool), usize>,
}

impl ProfileTable<'_> {
    fn row(&mut self, block: &WorkBlock) -> &mut SiteProfile {
        let group = self.names.group(block.site);
        let there = block.born.is_none() && self.names.name(group).is_empty();
        let next = self.rows.len();
        let place = *self.places.entry((group, there)).or_insert(next);
        if place == next {
            self.rows.push(Self::named(&mut self.names, block.site, there));
        }
        &mut self.rows[place]
    }

    fn named(names: &mut SiteGroups<'_>, site: SiteId, there: bool) -> SiteProfile {
        let name = names.label(site, there);
        let group = names.group(site);
        let key = if there { BEFORE.to_owned() } else { names.name(group).key(names.sites) };
        SiteProfile { name, key, ..SiteProfile::default() }
    }
}
