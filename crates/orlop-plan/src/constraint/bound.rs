//! The lower bound around what is fixed.

use super::merged;
use crate::first_fit::UNPLACED;
use crate::normal::{Normal, to_index};
use std::cmp::Reverse;
use std::ops::Range;

/// The number of pairs of spans that are live together up to which a bound looks at those at fixed offsets.
const MAX_PAIRS: u64 = 1 << 25;

impl Normal {
    /// Returns the lower bound where offsets are fixed, and its section. In each section, the others are in
    /// the free bytes below the height, and all of them but the top one take their rounded size. Where that
    /// takes too long to compute, all bytes below count as free.
    pub(crate) fn fixed_bound(&self) -> (u64, u32) {
        let ends = self.spans.iter().zip(&self.fixed).filter(|&(_, &offset)| offset != UNPLACED);
        let ends = ends.map(|(span, &offset)| (self.end(span, offset), span.first));
        let mut bound = ends.max_by_key(|&(end, first)| (end, Reverse(first))).unwrap_or((0, 0));
        if self.pairs() > MAX_PAIRS {
            let reserved = self.spans.iter().filter(|span| span.index >= self.reserved_from);
            let reserved: u64 = reserved.map(|span| self.rounded(span)).sum();
            let (load, section) = self.bound();
            return if load > reserved + bound.0 { (load - reserved, section) } else { bound };
        }
        let mut live: Vec<u32> = Vec::new();
        for section in 0..self.load.len() {
            live.extend(self.first_span[section]..self.first_span[section + 1]);
            live.retain(|&number| self.spans[number as usize].behind as usize > section);
            let (mut used, mut moved, mut saved) = (Vec::new(), 0, 0);
            for &number in &live {
                let (number, span) = (number as usize, &self.spans[number as usize]);
                if self.is_fixed(number) {
                    let offset = self.fixed[number];
                    // What ends below, rounded up, can reach to the next multiple.
                    used.push(self.rounded_up(offset)..self.rounded_up(offset + span.size));
                } else {
                    moved += self.rounded(span);
                    saved = saved.max(self.rounded(span) - span.size);
                }
            }
            let height = if moved > 0 { height_around(&merged(used), moved) - saved } else { 0 };
            if height > bound.0 {
                bound = (height, to_index(section));
            }
        }
        bound
    }
}

/// Returns the smallest height below which `bytes` bytes, of which there are some, are free.
fn height_around(used: &[Range<u64>], bytes: u64) -> u64 {
    let (mut height, mut left) = (0, bytes);
    for range in used {
        let free = range.start - height;
        if left <= free {
            break;
        }
        left -= free;
        height = range.end;
    }
    height + left
}
