//! Concatenations and splits in place: which buffers of a graph are inside of others.
//!
//! A node may have an input as a part of an output (`Concat`), or an output as a part of an input (`Split`).
//! The bytes of the part are then those of the whole. This is right if both buffers hold their value, and
//! nothing is written over one of them while the other is read:
//!
//! * The part is alone in its buffer when the node is executed: what was in the buffer before it has ended.
//! * Nothing reads the part of a concatenation after the whole, and nothing is written over the whole while
//!   the part is read. A part may have parts, whose ends are then no later either.
//! * Nothing reads the whole of a split after it, and that is not a part.
//! * No buffer is both a part and a whole of one node.
//!
//! The whole keeps its bytes from the first part to the last, so parts can make a plan larger. They are in
//! place if the load of the time concerned has no higher peak with them; operands that wait for long are
//! copied.

use super::lifetimes::Memory;
use super::{Graph, NodeId, ValueId, rounded};
use crate::buffer::alignment_bytes;
use orlop_core::Alignment;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;

/// The steps that are looked at for all nodes together, which bounds the time for large graphs.
const MAX_STEPS: usize = 1 << 26;

/// A value that may be a part of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) part: ValueId,
    pub(super) whole: ValueId,
    pub(super) offset: u64,
}

/// A buffer inside of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlacedPart {
    pub(super) part: usize,
    pub(super) whole: usize,
    pub(super) offset: u64,
    /// The node divides the whole, instead of putting it together.
    is_of_split: bool,
}

/// The buffers of a graph while parts are placed in them.
pub(super) struct Parts<'a> {
    graph: &'a Graph,
    memories: &'a [Memory],
    buffers: &'a [Option<usize>],
    /// The ends of the values with all their views.
    ends: &'a [u64],
    /// By buffer, whether it is the whole of a split.
    is_split: Vec<bool>,
    /// By buffer, the largest alignment of it and of its parts.
    alignments: Vec<Alignment>,
    /// By buffer, the one that it is in.
    wholes: Vec<Option<usize>>,
    /// By buffer, the steps in which its bytes are kept, those for its parts included.
    kept: Vec<Range<usize>>,
    /// By step, the bytes that are kept.
    load: Vec<u64>,
    steps_left: usize,
}

impl<'a> Parts<'a> {
    /// Begins without parts. `load` has the scratch bytes of the nodes by step, and one more step.
    pub(super) fn new(
        graph: &'a Graph,
        memories: &'a [Memory],
        buffers: &'a [Option<usize>],
        ends: &'a [u64],
        mut load: Vec<u64>,
    ) -> Self {
        let index = |step: u64| usize::try_from(step).unwrap_or(usize::MAX).min(load.len());
        let kept: Vec<_> = memories.iter().map(|memory| index(memory.start)..index(memory.end)).collect();
        let live = live_bytes(load.len(), memories.iter().map(Memory::bytes).zip(&kept));
        load.iter_mut().zip(live).for_each(|(load, live)| *load = load.saturating_add(live));
        Self {
            graph,
            memories,
            buffers,
            ends,
            is_split: vec![false; memories.len()],
            alignments: memories.iter().map(|memory| memory.alignment).collect(),
            wholes: vec![None; memories.len()],
            kept,
            load,
            steps_left: MAX_STEPS,
        }
    }

    /// Places the parts of all nodes, in the order in which they are executed, unless this is a loss.
    pub(super) fn place(mut self, order: &[NodeId]) -> Vec<PlacedPart> {
        let mut placed = Vec::new();
        for &node in order {
            let possible = self.possible(node);
            for parts in possible.chunk_by(|one, other| one.whole == other.whole) {
                placed.extend(self.take_some(parts.to_vec()));
            }
        }
        placed
    }

    /// Returns the parts of a node that can be in place: each buffer once, and as a part or as a whole.
    fn possible(&self, node: NodeId) -> Vec<PlacedPart> {
        let (mut inner, mut outer) = (HashSet::new(), HashSet::new());
        let mut is_new = |placed: &PlacedPart| {
            let has_one_role = !outer.contains(&placed.part) && !inner.contains(&placed.whole);
            let is_new = has_one_role && inner.insert(placed.part);
            if is_new {
                outer.insert(placed.whole);
            }
            is_new
        };
        let parts = self.graph.nodes[node.0].parts.iter();
        parts.filter_map(|part| self.possible_part(node, part).filter(&mut is_new)).collect()
    }

    fn possible_part(&self, node: NodeId, &Part { part, whole, offset }: &Part) -> Option<PlacedPart> {
        let (part_base, whole_base) = (self.graph.base(part), self.graph.base(whole));
        let (inner, outer) = (self.buffers[part_base.0]?, self.buffers[whole_base.0]?);
        let (inner_memory, outer_memory) = (&self.memories[inner], &self.memories[outer]);
        let size = |value: ValueId| self.graph.values[value.0].size;
        let fills = (inner_memory.size, outer_memory.size) == (size(part), size(whole));
        let is_aligned = offset.is_multiple_of(alignment_bytes(self.alignments[inner]));
        let is_free = self.wholes[inner].is_none() && !self.is_split[inner];
        if size(part) == 0 || !fills || !is_aligned || !is_free {
            return None;
        }
        let (part_end, whole_end) = (self.ends[part_base.0], self.ends[whole_base.0]);
        let is_of_split = self.graph.producer(part) == Some(node);
        let is_right = if is_of_split {
            let is_read_later = whole_end > inner_memory.start + 1;
            let is_last = outer_memory.group == whole_base && self.wholes[outer].is_none();
            inner_memory.first == part && is_last && !is_read_later
        } else {
            let is_written_over = outer_memory.group != whole;
            let is_read_later = part_end > whole_end || is_written_over && part_end == whole_end;
            inner_memory.group == part_base && outer_memory.first == whole && !is_read_later
        };
        is_right.then_some(PlacedPart { part: inner, whole: outer, offset, is_of_split })
    }

    /// Places parts of one buffer: all of them, or of a concatenation those that are written last.
    fn take_some(&mut self, mut parts: Vec<PlacedPart>) -> Vec<PlacedPart> {
        parts.sort_by_key(|part| Reverse(self.kept[part.part].start));
        while let Some(whole) = self.whole_with(&parts) {
            let before = self.load[whole.kept.clone()].iter().max();
            let Some(higher) = whole.load.iter().rposition(|load| Some(load) > before) else {
                self.take(&parts, whole);
                return parts;
            };
            // With fewer parts the load of this step is no lower, as long as the whole is kept in it.
            let step = whole.kept.start + higher;
            if whole.is_of_split || self.kept[whole.buffer].start <= step {
                break;
            }
            parts.truncate(parts.partition_point(|part| self.kept[part.part].start > step));
        }
        Vec::new()
    }

    /// Returns the buffer that these are parts of, as it would be with them. `None` without parts, or if no
    /// steps are left to look at it.
    fn whole_with(&mut self, parts: &[PlacedPart]) -> Option<Whole> {
        let &PlacedPart { whole: buffer, is_of_split, .. } = parts.first()?;
        let inner = || parts.iter().map(|part| part.part);
        let hull =
            |one: Range<usize>, other: &Range<usize>| one.start.min(other.start)..one.end.max(other.end);
        let kept = inner().fold(self.kept[buffer].clone(), |kept, part| hull(kept, &self.kept[part]));
        self.steps_left = self.steps_left.checked_sub(kept.len() + parts.len())?;
        let alignment = inner().map(|part| self.alignments[part]).fold(self.alignments[buffer], Ord::max);
        let bytes = rounded(self.memories[buffer].size, alignment);
        let within = |other: &Range<usize>| other.start - kept.start..other.end - kept.start;
        let apart: Vec<_> = inner().chain([buffer]).map(|other| within(&self.kept[other])).collect();
        let sizes = inner().chain([buffer]).map(|other| self.bytes(other));
        let apart = live_bytes(kept.len(), sizes.zip(&apart));
        let load = self.load[kept.clone()].iter().zip(apart);
        let load = load.map(|(load, apart)| load.saturating_sub(apart).saturating_add(bytes)).collect();
        Some(Whole { buffer, is_of_split, alignment, kept, load })
    }

    fn take(&mut self, parts: &[PlacedPart], whole: Whole) {
        let Whole { buffer, is_of_split, alignment, kept, load } = whole;
        self.load[kept.clone()].copy_from_slice(&load);
        self.kept[buffer] = kept;
        self.alignments[buffer] = alignment;
        self.is_split[buffer] |= is_of_split;
        parts.iter().for_each(|part| self.wholes[part.part] = Some(buffer));
    }

    /// Returns the size of a buffer, rounded up to the alignment that it has with its parts.
    fn bytes(&self, buffer: usize) -> u64 {
        rounded(self.memories[buffer].size, self.alignments[buffer])
    }
}

/// A buffer with the parts that it would have.
struct Whole {
    buffer: usize,
    is_of_split: bool,
    alignment: Alignment,
    kept: Range<usize>,
    /// By step in which it is kept, the bytes that are kept.
    load: Vec<u64>,
}

/// Returns, by step, the bytes that are kept: of each buffer those given, in its steps.
fn live_bytes<'a>(steps: usize, buffers: impl Iterator<Item = (u64, &'a Range<usize>)>) -> Vec<u64> {
    // By step, what is added to the bytes of the step before.
    let mut changes = vec![(0_u64, 0_u64); steps + 1];
    for (bytes, kept) in buffers {
        changes[kept.start].0 = changes[kept.start].0.saturating_add(bytes);
        changes[kept.end].1 = changes[kept.end].1.saturating_add(bytes);
    }
    let mut live = 0_u64;
    changes.truncate(steps);
    let after = |(begins, ends)| {
        live = live.saturating_add(begins).saturating_sub(ends);
        live
    };
    changes.into_iter().map(after).collect()
}
