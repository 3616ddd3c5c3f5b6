//! The fast path of an append that needs new blocks: at most one in each group, of pages that are pledged to
//! the sequence and free. What does not fit that, [`extend_tables`](KvPool::extend_tables) does.

use super::append::MAX_TOKENS;
use super::sequence::owner;
use super::{FreshPage, KvPool};
use crate::geometry::{GroupKind, KvGeometry};
use crate::pages::NULL;

/// A group whose tables grow with the tokens.
#[derive(Debug, Clone, Copy)]
struct GrowingGroup {
    group: usize,
    span: u32,
    class: usize,
    parts: u64,
}

/// The groups whose tables grow with the tokens. None if there are states as well: the blocks of these depend
/// on who refers to them.
#[derive(Debug)]
pub(super) struct GrowingGroups(Box<[GrowingGroup]>);

impl GrowingGroups {
    pub(super) fn new(geometry: &KvGeometry) -> Self {
        let has_pages = |group: usize| geometry.parts(group) > 0;
        let groups = || geometry.groups().iter().enumerate().filter(|&(group, _)| has_pages(group));
        if groups().any(|(_, spec)| spec.kind == GroupKind::State) {
            return Self(Box::default());
        }
        let growing = groups().filter(|(_, spec)| spec.kind != GroupKind::Cross);
        let growing = growing.map(|(group, spec)| GrowingGroup {
            group,
            span: spec.span(),
            class: geometry.pages()[group].class as usize,
            parts: geometry.parts(group).into(),
        });
        Self(growing.collect())
    }
}

impl KvPool {
    /// Adds a block to the tables that end at the sequence's end, for tokens up to `end`. Returns `false`,
    /// and changes nothing, if that is not all that is needed, or the pages are not ready.
    pub(super) fn extend_by_block(&mut self, slot: u32, end: u32) -> bool {
        let Self { growing, sequences, blocks, pages_needed, open, .. } = self;
        let state = &mut sequences[slot as usize];
        let (len, me) = (state.len, owner(slot));
        pages_needed.fill(0);
        for &GrowingGroup { group, span, class, parts } in &growing.0 {
            let table = &state.tables[group].blocks;
            let room = table.len() as u64 * u64::from(span);
            if room >= u64::from(end) {
                let (last, inside) = (table[(len / span) as usize], len % span);
                if inside == 0 || last == NULL || blocks.may_write(group, last, me, inside) {
                    continue;
                }
                return false;
            }
            if room != u64::from(len) || room + u64::from(span) < u64::from(end) {
                return false;
            }
            pages_needed[class] += parts;
        }
        if growing.0.is_empty() || !blocks.charge_ready(me, state.tenant, pages_needed) {
            return false;
        }
        let mut least = u64::from(MAX_TOKENS);
        for &GrowingGroup { group, span, .. } in &growing.0 {
            let table = &mut state.tables[group].blocks;
            let mut room = table.len() as u64 * u64::from(span);
            if room < u64::from(end) {
                let mut part = 0;
                let fresh = |page| {
                    open.fresh.push(FreshPage { group, part, page });
                    part += 1;
                };
                let Some(block) = blocks.take_ready(group, me, state.tenant, fresh) else { return false };
                table.push(block);
                room += u64::from(span);
            }
            least = least.min(room);
        }
        state.room = u32::try_from(least).unwrap_or(end).max(end);
        state.changed = true;
        true
    }
}
