//! From ranks to offsets: the best buffer that fits is placed in the lowest valley, until all are placed.

use super::contour::Contour;
use super::unplaced::Unplaced;
use crate::normal::Normal;

/// The state that decodings reuse.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    normal: &'a Normal,
    contour: Contour,
    unplaced: Unplaced,
    /// By span.
    offsets: Vec<u64>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(normal: &'a Normal) -> Self {
        Self {
            normal,
            contour: Contour::new(normal.sections()),
            unplaced: Unplaced::new(normal.spans.len()),
            offsets: vec![0; normal.spans.len()],
        }
    }

    /// Places all spans, those of smaller rank first. Returns the height, or `None` as soon as it exceeds
    /// `limit`.
    pub(super) fn decode(&mut self, ranks: &[u32], limit: u64) -> Option<u64> {
        let normal = self.normal;
        self.unplaced.fill(&normal.spans, ranks);
        self.contour.flatten();
        let (mut left, mut height) = (normal.spans.len(), 0);
        while left > 0 {
            let valley = self.contour.lowest()?;
            let first_span = |section: u32| normal.first_span[section as usize];
            let inside = first_span(valley.start)..first_span(valley.end);
            match self.unplaced.best(inside, valley.end) {
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
        Some(height)
    }

    /// Returns the offsets of the spans after a successful decoding.
    pub(super) fn offsets(&self) -> &[u64] {
        &self.offsets
    }
}
