//! The division of a problem into regions of time.

use crate::normal::{Normal, to_index};
use std::ops::Range;

/// The number of spans on either side of a region's middle, for one shift after the other.
const SPANS: [u32; 4] = [512, 256, 768, 384];

/// The minimum of this number, for each span that is live in the middle.
const SPANS_FOR_EACH: u32 = 3;

/// The number of spans by which a region goes beyond its core, on either side.
const REACH: u32 = 1 << 14;

/// Spans that are searched together: those that begin in the sections, and end in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// The sections around what is too high.
    pub(super) core: Range<u32>,
    /// The sections in which spans move: the core, and what is around it up to the next region.
    pub(super) sections: Range<u32>,
    /// The spans that begin there, of which those that end behind the sections do not move.
    pub(super) spans: Range<u32>,
}

/// Where regions can begin and end.
#[derive(Debug)]
pub(super) struct Borders<'a> {
    normal: &'a Normal,
    /// By section, the number of live spans.
    live: Vec<u32>,
    /// By section, whether its start is no border.
    is_between: Vec<bool>,
}

impl<'a> Borders<'a> {
    pub(super) fn new(normal: &'a Normal) -> Self {
        let sections = normal.sections() as usize;
        let mut ended = vec![0_u32; sections + 1];
        for span in &normal.spans {
            ended[span.behind as usize] += 1;
        }
        let mut live = 0;
        let begun = normal.first_span.windows(2).map(|pair| pair[1] - pair[0]);
        let count = |(begun, ended): (u32, &u32)| {
            live = live + begun - ended;
            live
        };
        let live = begun.zip(&ended).map(count).collect();
        Self { normal, live, is_between: excluded_at(normal) }
    }

    /// Returns disjoint regions around the spans that are too high. Their size depends on `shift`.
    pub(super) fn regions(&self, shift: usize, is_high: impl Fn(usize) -> bool) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        let mut behind = 0;
        for (number, span) in self.normal.spans.iter().enumerate() {
            if span.first < behind || !is_high(number) {
                continue;
            }
            let load = |section: &u32| self.normal.load[*section as usize];
            let middle = (span.first..span.behind).max_by_key(load).unwrap_or(span.first);
            let least = SPANS[shift % SPANS.len()].max(SPANS_FOR_EACH * self.live[middle as usize]);
            // A region that is not extended has all of the span.
            let latest = if self.is_between.is_empty() { middle } else { span.first };
            let start = self.border((behind..=latest).rev(), least).unwrap_or(behind);
            let sections = self.normal.sections();
            let end = self.border(middle + 1..sections, least).unwrap_or(sections);
            regions.push(Region { core: start..end, sections: start..end, spans: 0..0 });
            behind = end;
        }
        self.extend(&mut regions);
        regions
    }

    /// Extends the sections of regions around their cores.
    fn extend(&self, regions: &mut [Region]) {
        let begun = |section: u32| self.normal.first_span[section as usize];
        let cores: Vec<u32> = regions.iter().map(|region| region.core.start).collect();
        let next_cores = cores.into_iter().skip(1).chain([self.normal.sections()]);
        let mut behind = 0;
        for (region, next) in regions.iter_mut().zip(next_cores) {
            // Beyond a border there may be spans that may not share bytes with others although they share no
            // section.
            if self.is_between.is_empty() {
                let first = begun(region.core.start).saturating_sub(REACH);
                let last = begun(region.core.end).saturating_add(REACH);
                let section = |span: u32| to_index(self.normal.first_span.partition_point(|&it| it < span));
                region.sections = section(first).max(behind)..section(last).min(next);
            }
            region.spans = begun(region.sections.start)..begun(region.sections.end);
            behind = region.sections.end;
        }
    }

    /// Returns the number of spans that begin in the core of a region.
    pub(super) fn core_spans(&self, region: &Region) -> usize {
        let begun = |section: u32| self.normal.first_span[section as usize];
        (begun(region.core.end) - begun(region.core.start)) as usize
    }

    /// Returns the section whose start is the border: of those between which and the first at least `least`
    /// and about twice as many spans begin, that with the smallest load. What crosses a border does not move.
    fn border(&self, sections: impl Iterator<Item = u32>, least: u32) -> Option<u32> {
        let begun = |section: u32| self.normal.first_span[section as usize];
        let mut sections = sections.peekable();
        let middle = begun(*sections.peek()?);
        let mut lowest = None;
        for section in sections.filter(|&section| section > 0) {
            let spans = begun(section).abs_diff(middle);
            if lowest.is_some() && spans > 2 * least {
                break;
            }
            let is_between = self.is_between.get(section as usize).is_some_and(|&is_between| is_between);
            if spans >= least && !is_between {
                let load = |section: u32| self.normal.load[section as usize];
                let crossing = load(section - 1).min(load(section));
                lowest = Some(lowest.unwrap_or((crossing, section)).min((crossing, section)));
            }
        }
        lowest.map(|(_, section)| section)
    }
}

/// Returns, for each section, whether its start is between two spans that may not share bytes: they belong to
/// one region. Empty if there are none.
fn excluded_at(normal: &Normal) -> Vec<bool> {
    let Some(conflicts) = normal.conflicts.as_ref().filter(|conflicts| conflicts.has_exclusions()) else {
        return Vec::new();
    };
    let mut change = vec![0_i64; normal.sections() as usize + 2];
    for (number, span) in normal.spans.iter().enumerate() {
        let excluded = conflicts.excluded(number).iter().map(|&other| &normal.spans[other as usize]);
        for other in excluded.filter(|other| span.behind <= other.first) {
            change[span.behind as usize] += 1;
            change[other.first as usize + 1] -= 1;
        }
    }
    let mut pairs = 0;
    let is_between = change.into_iter().map(|change| {
        pairs += change;
        pairs > 0
    });
    is_between.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::FlatProblem;
    use crate::{Buffer, Problem, ProblemBuilder};

    fn all_regions(normal: &Normal, shift: usize) -> Vec<Region> {
        Borders::new(normal).regions(shift, |_| true)
    }

    #[test]
    fn regions_are_consecutive_and_depend_on_the_shift() {
        let buffers = (0..5000).map(|at| Buffer::unaligned(at..at + 5, 1));
        let normal = Normal::new(&Problem::new(buffers).unwrap());
        for shift in 0..4 {
            let regions = all_regions(&normal, shift);
            assert!(regions.len() >= 3);
            assert_eq!((regions[0].spans.start, regions[0].sections.start), (0, 0));
            for pair in regions.windows(2) {
                assert_eq!(pair[0].spans.end, pair[1].spans.start);
                assert_eq!(pair[0].core.end, pair[1].core.start);
                assert_eq!(pair[0].sections.end, pair[1].sections.start);
            }
            assert_eq!(regions.last().unwrap().spans.end, 5000);
        }
        assert_ne!(all_regions(&normal, 0), all_regions(&normal, 1));
    }

    #[test]
    fn a_region_is_around_what_is_too_high_and_ends_where_little_is_live() {
        let size = |at: u64| if at == 1700 || at == 3300 { 1 } else { 100 };
        let buffers = (0..5000).map(|at| Buffer::unaligned(at..at + 1, size(at)));
        let normal = Normal::new(&Problem::new(buffers).unwrap());
        let regions = Borders::new(&normal).regions(0, |span| span == 2500);
        let [region] = &regions[..] else { panic!("{regions:?}") };
        assert!((1700..=1701).contains(&region.core.start), "{region:?}");
        assert!((3300..=3301).contains(&region.core.end), "{region:?}");
    }

    #[test]
    fn excluded_pairs_are_in_one_region() {
        let mut builder = ProblemBuilder::new();
        for at in 0..5000 {
            builder.push(Buffer::unaligned(at..at + 5, 1)).unwrap();
        }
        builder.exclude(1000, 3900).unwrap();
        let problem = builder.finish();
        let normal = Normal::of_flat(&FlatProblem::restricted(&problem));
        for shift in 0..4 {
            let regions = all_regions(&normal, shift);
            let region = |span: u32| regions.iter().position(|region| region.spans.contains(&span));
            assert_eq!(region(1000), region(3900));
            assert!(regions.len() > 1);
        }
    }

    #[test]
    fn long_spans_are_not_divided() {
        let buffers = (0..5000).map(|at| Buffer::unaligned(at..at + 2500, 1));
        assert_eq!(all_regions(&Normal::new(&Problem::new(buffers).unwrap()), 0).len(), 1);
    }
}
