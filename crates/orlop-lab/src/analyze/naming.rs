//! Names of call sites in reports: depth, number, and grouping.

use super::site_name::{LIVE_AT_START, SiteName};
use orlop_trace::history::{SiteId, Sites};
use std::collections::HashMap;

/// Options for naming call sites in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteNaming {
    /// The number of program lines in a name; at least 1.
    pub depth: usize,
    /// The maximum number of sites, and of blocks, in a list.
    pub top: usize,
    /// Whether to include all frames.
    pub full: bool,
}

impl Default for SiteNaming {
    fn default() -> Self {
        Self { depth: 1, top: 10, full: false }
    }
}

impl SiteNaming {
    /// Sets the number of program lines in a name.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }

    /// Sets the maximum number of entries in a list.
    #[must_use]
    pub fn top(mut self, top: usize) -> Self {
        self.top = top;
        self
    }

    /// Sets whether to include all frames.
    #[must_use]
    pub fn full(mut self, full: bool) -> Self {
        self.full = full;
        self
    }
}

/// Call sites grouped by name. Each site is named once.
#[derive(Debug)]
pub(crate) struct SiteGroups<'a> {
    pub(crate) sites: &'a Sites,
    depth: usize,
    groups: Vec<SiteName>,
    by_name: HashMap<SiteName, usize>,
    by_site: HashMap<SiteId, usize>,
}

impl<'a> SiteGroups<'a> {
    pub(crate) fn new(sites: &'a Sites, depth: usize) -> Self {
        Self { sites, depth, groups: Vec::new(), by_name: HashMap::new(), by_site: HashMap::new() }
    }

    /// Returns the group of a site.
    pub(crate) fn group(&mut self, site: SiteId) -> usize {
        if let Some(&group) = self.by_site.get(&site) {
            return group;
        }
        let name = SiteName::with_depth(self.sites, site, self.depth);
        let next = self.groups.len();
        let group = *self.by_name.entry(name).or_insert_with_key(|name| {
            self.groups.push(name.clone());
            next
        });
        self.by_site.insert(site, group);
        group
    }

    /// Returns the key of a row: the group of a site, and whether it is unknown memory from before the
    /// recording.
    pub(crate) fn key(&mut self, site: SiteId, at_start: bool) -> (usize, bool) {
        let group = self.group(site);
        (group, at_start && self.name(group).is_empty())
    }

    pub(crate) fn name(&self, group: usize) -> &SiteName {
        &self.groups[group]
    }

    /// Returns the label of a site. `at_start`: whether its memory was live before the recording.
    pub(crate) fn label(&mut self, site: SiteId, at_start: bool) -> String {
        let (group, unknown) = self.key(site, at_start);
        let name = &self.groups[group];
        if unknown { LIVE_AT_START.to_owned() } else { name.display(self.sites).to_string() }
    }
}
