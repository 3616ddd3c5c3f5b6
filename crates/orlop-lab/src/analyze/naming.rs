//! How reports name call sites: their depth and number, and which of them are grouped.

use super::site_name::{BEFORE, SiteName};
use orlop_trace::history::{SiteId, Sites};
use std::collections::HashMap;

/// How call sites are named in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Naming {
    /// How many lines of the program make a name; at least 1.
    pub depth: usize,
    /// How many sites, and how many blocks, a list has.
    pub top: usize,
    /// Whether all frames are given, too.
    pub full: bool,
}

impl Default for Naming {
    fn default() -> Self {
        Self { depth: 1, top: 10, full: false }
    }
}

impl Naming {
    /// With so many lines of the program.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }

    /// With lists of so many entries.
    #[must_use]
    pub fn top(mut self, top: usize) -> Self {
        self.top = top;
        self
    }

    /// With all frames, too.
    #[must_use]
    pub fn full(mut self, full: bool) -> Self {
        self.full = full;
        self
    }
}

/// Call sites grouped by name: those with the same name are one group. Each site is looked at once.
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

    /// The number of the name of `site`.
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

    pub(crate) fn name(&self, group: usize) -> &SiteName {
        &self.groups[group]
    }

    /// What a person reads for a site, which may be of memory that was `there` from the beginning.
    pub(crate) fn label(&mut self, site: SiteId, there: bool) -> String {
        let group = self.group(site);
        let name = &self.groups[group];
        if name.is_empty() && there { BEFORE.to_owned() } else { name.display(self.sites).to_string() }
    }
}
