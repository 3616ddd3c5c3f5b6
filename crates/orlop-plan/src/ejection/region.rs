//! The division of a problem into regions of time.

use crate::normal::Normal;
use std::ops::Range;

/// The number of spans of a region.
const SPANS: u32 = 1024;

/// A border that this part of a region's spans cross is none.
const CROSSING: u32 = 6;

/// Spans that are searched together: those that begin in the sections, and end in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Region {
    /// The sections.
    pub(super) sections: Range<u32>,
    /// The spans that begin there, of which those that end behind the sections do not move.
    pub(super) spans: Range<u32>,
}

/// Returns the regions, whose first border depends on `shift`.
pub(super) fn regions(normal: &Normal, shift: usize) -> Vec<Region> {
    let sections = normal.sections();
    let mut ended = vec![0_u32; sections as usize + 1];
    for span in &normal.spans {
        ended[span.behind as usize] += 1;
    }
    let is_between = excluded_at(normal);
    let (mut regions, mut start, mut live) = (Vec::new(), 0, 0);
    // The first region is smaller for other shifts.
    let mut target = [SPANS, SPANS / 2, 3 * SPANS / 4, SPANS / 4][shift % 4];
    for border in 1..sections {
        let begun = normal.first_span[border as usize] - normal.first_span[border as usize - 1];
        live += begun;
        live -= ended[border as usize];
        let spans = normal.first_span[start as usize]..normal.first_span[border as usize];
        let is_border = is_between.get(border as usize).is_none_or(|is_between| !is_between);
        if spans.len() >= target as usize && live <= SPANS / CROSSING && is_border {
            regions.push(Region { sections: start..border, spans });
            (start, target) = (border, SPANS);
        }
    }
    let spans = normal.first_span[start as usize]..normal.first_span[sections as usize];
    regions.push(Region { sections: start..sections, spans });
    regions
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

    #[test]
    fn regions_are_consecutive_and_depend_on_the_shift() {
        let buffers = (0..5000).map(|at| Buffer::unaligned(at..at + 5, 1));
        let normal = Normal::new(&Problem::new(buffers).unwrap());
        for shift in 0..4 {
            let regions = regions(&normal, shift);
            assert!(regions.len() >= 4);
            assert_eq!((regions[0].spans.start, regions[0].sections.start), (0, 0));
            for pair in regions.windows(2) {
                assert_eq!(pair[0].spans.end, pair[1].spans.start);
                assert_eq!(pair[0].sections.end, pair[1].sections.start);
            }
            assert_eq!(regions.last().unwrap().spans.end, 5000);
        }
        assert_ne!(regions(&normal, 0), regions(&normal, 1));
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
            let regions = regions(&normal, shift);
            let region = |span: u32| regions.iter().position(|region| region.spans.contains(&span));
            assert_eq!(region(1000), region(3900));
            assert!(regions.len() > 1);
        }
    }

    #[test]
    fn long_spans_are_not_divided() {
        let buffers = (0..5000).map(|at| Buffer::unaligned(at..at + 2500, 1));
        assert_eq!(regions(&Normal::new(&Problem::new(buffers).unwrap()), 0).len(), 1);
    }
}
