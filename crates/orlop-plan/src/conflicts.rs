//! Conflicts of spans that do not follow from their sections alone: lifetimes with gaps, and pairs that may
//! not share bytes.

use crate::constraint::meet;
use crate::normal::SectionSpan;
use std::collections::BTreeMap;
use std::ops::Range;

/// The conflicts of a problem's spans, by span.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// The times at which it is live.
    lifetimes: Vec<Vec<Range<u64>>>,
    /// Whether it has gaps.
    is_interrupted: Vec<bool>,
    /// The spans with which it may not share bytes, and that are never live with it.
    excluded: Vec<Vec<u32>>,
    has_exclusions: bool,
}

impl Conflicts {
    /// Creates the conflicts of spans whose buffers have the times `lifetime`, or `interrupted` if they have
    /// gaps.
    pub(crate) fn new(
        spans: &[SectionSpan],
        lifetime: impl Fn(usize) -> Range<u64>,
        interrupted: &BTreeMap<usize, Vec<Range<u64>>>,
        exclusions: &[(usize, usize)],
    ) -> Self {
        let index = |span: &SectionSpan| span.index as usize;
        let lifetimes = spans.iter().map(|span| match interrupted.get(&index(span)) {
            Some(times) => times.clone(),
            None => vec![lifetime(index(span))],
        });
        let is_interrupted = spans.iter().map(|span| interrupted.contains_key(&index(span))).collect();
        let mut conflicts = Self {
            lifetimes: lifetimes.collect(),
            is_interrupted,
            excluded: vec![Vec::new(); spans.len()],
            has_exclusions: false,
        };
        let numbers: BTreeMap<usize, u32> =
            if exclusions.is_empty() { BTreeMap::new() } else { spans.iter().map(index).zip(0..).collect() };
        for (one, other) in exclusions {
            // Buffers without bytes have no span.
            let Some((&one, &other)) = numbers.get(one).zip(numbers.get(other)) else { continue };
            if one != other && !conflicts.live_together(one as usize, other as usize) {
                conflicts.excluded[one as usize].push(other);
                conflicts.excluded[other as usize].push(one);
                conflicts.has_exclusions = true;
            }
        }
        for excluded in &mut conflicts.excluded {
            excluded.sort_unstable();
            excluded.dedup();
        }
        conflicts
    }

    /// Returns `true` if there is a pair of spans that are never live together and may not share bytes.
    pub(crate) fn has_exclusions(&self) -> bool {
        self.has_exclusions
    }

    /// Returns `true` if a span has gaps.
    pub(crate) fn has_gaps(&self) -> bool {
        self.is_interrupted.contains(&true)
    }

    /// Returns `true` if two spans that share a section are live at the same time.
    pub(crate) fn meet(&self, one: usize, other: usize) -> bool {
        !(self.is_interrupted[one] || self.is_interrupted[other]) || self.live_together(one, other)
    }

    /// Returns the spans that are never live with a span, and that may not share its bytes.
    pub(crate) fn excluded(&self, number: usize) -> &[u32] {
        &self.excluded[number]
    }

    fn live_together(&self, one: usize, other: usize) -> bool {
        meet(&self.lifetimes[one], &self.lifetimes[other])
    }
}
