//! Equality of histories.
//!
//! The ids of sites depend on the order in which a reader met them, so sites are compared by content, once
//! for each pair of ids.

use super::{
    DeviceHistory, EventDetail, History, HistoryEvent, RefusalDetail, Segment, SegmentBlock, SiteId, Sites,
    TextId,
};
use std::collections::HashMap;

impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        let mut names = NamePairs { left: &self.sites, right: &other.sites, sites: HashMap::new() };
        self.settings == other.settings
            && pairs(&self.annotations, &other.annotations, |left, right| {
                names.text(left.name, right.name)
                    && (left.time, left.device, left.stage) == (right.time, right.device, right.stage)
            })
            && pairs(&self.devices, &other.devices, |left, right| names.devices(left, right))
    }
}

struct NamePairs<'h> {
    left: &'h Sites,
    right: &'h Sites,
    /// The pairs that were compared, and whether they are equal.
    sites: HashMap<(SiteId, SiteId), bool>,
}

impl NamePairs<'_> {
    fn text(&self, left: TextId, right: TextId) -> bool {
        self.left.name(left) == self.right.name(right)
    }

    fn site(&mut self, left: SiteId, right: SiteId) -> bool {
        let Self { left: of_left, right: of_right, sites } = self;
        *sites.entry((left, right)).or_insert_with(|| {
            let (left, right) = (of_left.frames(left), of_right.frames(right));
            left.len() == right.len()
                && left.zip(right).all(|(left, right)| {
                    of_left.name(left.function) == of_right.name(right.function)
                        && of_left.name(left.file) == of_right.name(right.file)
                        && left.line == right.line
                })
        })
    }

    fn devices(&mut self, left: &DeviceHistory, right: &DeviceHistory) -> bool {
        (left.device, left.memory, left.counted_reserved)
            == (right.device, right.memory, right.counted_reserved)
            && pairs(&left.unplaced, &right.unplaced, |left, right| self.blocks(left, right))
            && pairs(&left.start, &right.start, |left, right| self.segments(left, right))
            && pairs(&left.end, &right.end, |left, right| self.segments(left, right))
            && pairs(&left.events, &right.events, |left, right| self.events(left, right))
            && pairs(&left.details, &right.details, |left, right| self.details(left, right))
            && pairs(&left.refusals, &right.refusals, |left, right| {
                self.text(left.refuser, right.refuser)
                    && *left == RefusalDetail { refuser: left.refuser, ..*right }
            })
    }

    fn segments(&mut self, left: &Segment, right: &Segment) -> bool {
        let Segment { address, bytes, stream, small, expandable, pool, site, blocks } = left;
        (address, bytes, stream, small, expandable, pool)
            == (&right.address, &right.bytes, &right.stream, &right.small, &right.expandable, &right.pool)
            && self.site(*site, right.site)
            && pairs(blocks, &right.blocks, |left, right| self.blocks(left, right))
    }

    fn blocks(&mut self, left: &SegmentBlock, right: &SegmentBlock) -> bool {
        self.site(left.site, right.site) && *left == SegmentBlock { site: left.site, ..*right }
    }

    fn events(&mut self, left: &HistoryEvent, right: &HistoryEvent) -> bool {
        self.site(left.site, right.site)
            && self.text(left.text, right.text)
            && *left == HistoryEvent { site: left.site, text: left.text, ..*right }
    }

    fn details(&mut self, left: &EventDetail, right: &EventDetail) -> bool {
        self.text(left.context, right.context) && (left.event, left.pool) == (right.event, right.pool)
    }
}

fn pairs<T>(left: &[T], right: &[T], mut same: impl FnMut(&T, &T) -> bool) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
}
