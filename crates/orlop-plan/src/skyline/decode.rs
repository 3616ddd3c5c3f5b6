//! From ranks to offsets: the best buffer that fits is placed in the lowest valley, until all are placed.

use super::contour::{Contour, Valley};
use super::unplaced::Unplaced;
use crate::normal::{Normal, Placement};
use crate::planner::{Keys, Stop};

/// The buffers that compete for a valley.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Candidates {
    /// All whose lifetime is inside.
    Inside,
    /// Of those, the ones that begin first. Valleys are filled from their left end, which leaves fewer gaps
    /// between buffers of similar lifetimes.
    LeftEnd,
}

/// The state of a decoding.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    normal: &'a Normal,
    contour: Contour,
    unplaced: Unplaced,
    /// By span.
    offsets: Vec<u64>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(normal: &'a Normal) -> Self {
        Self {
            normal,
            contour: Contour::new(normal.sections()),
            unplaced: Unplaced::new(normal.spans.len()),
            offsets: vec![0; normal.spans.len()],
        }
    }

    /// Places all spans, those of smaller rank first. Returns `None` as soon as one ends above `limit`, or it
    /// is stopped.
    pub(crate) fn decode(
        mut self,
        ranks: &[u32],
        candidates: Candidates,
        keys: &Keys<'_>,
        limit: u64,
        stop: &Stop<'_>,
    ) -> Option<Placement> {
        let normal = self.normal;
        self.unplaced.fill(&normal.spans, ranks);
        self.contour.flatten();
        let (mut left, mut height) = (normal.spans.len(), 0);
        for step in 0_usize.. {
            if left == 0 {
                break;
            }
            if step.is_multiple_of(Stop::INTERVAL) && stop.is_due() {
                return None;
            }
            let valley = self.contour.lowest()?;
            match self.select(valley, candidates, keys) {
                Some(number) => {
                    let span = &normal.spans[number];
                    let offset = span.offset_from(valley.level);
                    height = height.max(offset + span.size);
                    if height > limit {
                        return None;
                    }
                    self.offsets[number] = offset;
                    self.unplaced.remove(number);
                    self.contour.cover(valley, span.first, span.behind, offset + normal.rounded(span));
                    left -= 1;
                }
                None if self.contour.fill(valley) => {}
                None => return None,
            }
        }
        Some(Placement { height, offsets: self.offsets })
    }

    /// Returns the best span for a valley.
    fn select(&self, valley: Valley, candidates: Candidates, keys: &Keys<'_>) -> Option<usize> {
        let first_span = |section: u32| self.normal.first_span[section as usize];
        let inside = first_span(valley.start)..first_span(valley.end);
        let inside = match candidates {
            Candidates::Inside => inside,
            Candidates::LeftEnd => keys.same_start(self.unplaced.first_inside(inside, valley.end)?),
        };
        self.unplaced.best(inside, valley.end)
    }
}
