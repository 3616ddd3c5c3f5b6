//! Which words a step reads and writes: from the exported tables and the geometry, as a kernel finds them.

use super::{NULL, Oracle};
use crate::stamps::{first_attended, stamp};
use orlop_kv::{GroupKind, PageCopy, Sequence};

impl Oracle {
    /// Lists the slots that a sequence's tokens from `from` to `to` read and write.
    pub(super) fn trace(
        &self,
        at: usize,
        from: u32,
        to: u32,
        reads_before: &mut Vec<(u64, u64)>,
        writes: &mut Vec<(u64, u64)>,
        reads_after: &mut Vec<(u64, u64)>,
    ) {
        let sequence = &self.running[at];
        let tokens = &sequence.tokens;
        let geometry = self.pool.geometry();
        for (group, spec) in geometry.groups().iter().enumerate() {
            for layer in 0..spec.layers {
                let of = |position| stamp(tokens, position, group, layer);
                match spec.kind {
                    GroupKind::Cross => {}
                    GroupKind::State => {
                        let slots = self.state_slots(&sequence.handle, group, layer);
                        // An optional state begins anew after a hit.
                        let is_new = spec.optional && from.is_multiple_of(self.pool.match_unit());
                        if from > 0 && !is_new {
                            reads_before.extend(slots.iter().map(|&slot| (slot, of(from - 1))));
                        }
                        writes.extend(slots.iter().map(|&slot| (slot, of(to - 1))));
                    }
                    _ => {
                        let ratio = if let GroupKind::Compressed { ratio } = spec.kind { ratio } else { 1 };
                        let ends = |position: &u32| (position + 1).is_multiple_of(ratio);
                        for position in (from..to).filter(ends) {
                            let slots = self.slots(&sequence.handle, group, layer, position).unwrap();
                            writes.extend(slots.into_iter().map(|slot| (slot, of(position))));
                        }
                        let sinks = if let GroupKind::Window { sinks, .. } = spec.kind { sinks } else { 0 };
                        let first = first_attended(spec.kind, from);
                        for position in (0..sinks.min(first)).chain(first..to).filter(ends) {
                            let slots = self.slots(&sequence.handle, group, layer, position);
                            let slots = slots.unwrap_or_else(|| panic!("{spec:?} lost token {position}"));
                            reads_after.extend(slots.into_iter().map(|slot| (slot, of(position))));
                        }
                    }
                }
            }
        }
    }

    /// Returns the words of a token's entries, one for each arena.
    pub(super) fn slots(
        &self,
        sequence: &Sequence,
        group: usize,
        layer: u32,
        position: u32,
    ) -> Option<Vec<u64>> {
        let geometry = self.pool.geometry();
        let spec = &geometry.groups()[group];
        let mut slots = Vec::new();
        for arena in 0..spec.arenas.len() {
            let view = geometry.arena(group, layer, arena).unwrap();
            let (len, _) = self.pool.len(sequence).unwrap();
            let mut row = vec![NULL; len.div_ceil(spec.span()) as usize];
            let entries = self.pool.write_block_table(sequence, group, view.part, NULL, &mut row).unwrap();
            let index = position / spec.span();
            let page = row[..entries].get(index as usize).copied().filter(|&page| page != NULL)?;
            assert!(page < self.pool.page_ids(group));
            let ratio = if let GroupKind::Compressed { ratio } = spec.kind { ratio } else { 1 };
            let slot = u64::from(position % spec.span() / ratio);
            let entry = spec.arenas[arena].bytes;
            slots.push((view.base + u64::from(page) * view.stride + slot * entry) / 8);
        }
        Some(slots)
    }

    pub(super) fn state_slots(&self, sequence: &Sequence, group: usize, layer: u32) -> Vec<u64> {
        let view = self.pool.geometry().arena(group, layer, 0).unwrap();
        let page = self.pool.state_page(sequence, group, view.part).unwrap().unwrap();
        let start = (view.base + u64::from(page) * view.stride) / 8;
        (start..start + view.bytes / 8).collect()
    }

    pub(super) fn page_slots(&self, group: usize, part: u32, page: u32) -> Vec<u64> {
        let geometry = self.pool.geometry();
        let (bytes, _) = (geometry.page_bytes(group), part);
        let start = u64::from(page) * bytes / 8;
        (start..start + bytes / 8).collect()
    }

    pub(super) fn copied_slots(&self, copy: &PageCopy) -> Vec<(u64, u64)> {
        let geometry = self.pool.geometry();
        let spec = &geometry.groups()[copy.group];
        let ratio = if let GroupKind::Compressed { ratio } = spec.kind { ratio } else { 1 };
        let mut slots = Vec::new();
        for layer in 0..spec.layers {
            for (arena, entry) in spec.arenas.iter().enumerate() {
                let view = geometry.arena(copy.group, layer, arena).unwrap();
                if view.part != copy.part {
                    continue;
                }
                let bytes = entry.bytes * u64::from(copy.tokens / ratio);
                let (from, to) = (u64::from(copy.from) * view.stride, u64::from(copy.to) * view.stride);
                slots.extend(
                    (0..bytes / 8).map(|at| ((view.base + from) / 8 + at, (view.base + to) / 8 + at)),
                );
            }
        }
        slots
    }
}
