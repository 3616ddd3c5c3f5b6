//! What a request can need: blocks and pages, by its lengths.

use super::KvPool;
use crate::geometry::GroupKind;

/// What a request's need of pages depends on, in tokens.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestLengths {
    pub(super) prompt: u32,
    /// Tokens whose keys and values are written at most.
    pub(super) limit: u32,
    pub(super) drafts: u32,
    pub(super) chunk: Option<u32>,
    pub(super) encoder_tokens: u32,
}

impl RequestLengths {
    /// Creates the lengths of a request: the last token's keys and values are not needed.
    pub(super) fn new(prompt: u32, max_new: u32, drafts: u32) -> Self {
        let limit = prompt.saturating_add(max_new.saturating_sub(1).saturating_add(drafts));
        Self { prompt, limit, drafts, chunk: None, encoder_tokens: 0 }
    }
}

impl KvPool {
    /// Writes the pages by class that a request can still need after a hit of `hit` tokens.
    pub(super) fn pledge_of(&self, request: RequestLengths, hit: u32, pages: &mut Vec<u64>) {
        pages.clear();
        pages.resize(self.geometry.classes().len(), 0);
        for (group, blocks) in self.blocks_of_request(request, hit) {
            let (class, parts) = self.blocks.class_and_parts(group);
            pages[class] = pages[class].saturating_add(parts * u64::from(blocks));
        }
    }

    /// Returns the group with the largest need after a hit of `hit` tokens, in bytes.
    pub(super) fn largest_need(&self, request: RequestLengths, hit: u32) -> usize {
        let bytes = |&(group, blocks): &(usize, u32)| {
            u64::from(blocks).saturating_mul(self.blocks.block_bytes(group))
        };
        self.blocks_of_request(request, hit).max_by_key(bytes).map_or(0, |(group, _)| group)
    }

    /// Returns the pages by class that windows and chunks were pledged for the steps of a prompt after a hit
    /// of `hit` tokens, and that the steps behind the prompt do not need.
    pub(super) fn pages_of_prompt(&self, request: RequestLengths, hit: u32, pages: &mut Vec<u64>) {
        pages.clear();
        pages.resize(self.geometry.classes().len(), 0);
        let after = self.blocks_of_request(request, request.prompt);
        for ((group, blocks), (_, later)) in self.blocks_of_request(request, hit).zip(after) {
            if matches!(self.kind(group), GroupKind::Window { .. } | GroupKind::Chunked { .. }) {
                let (class, parts) = self.blocks.class_and_parts(group);
                let blocks = u64::from(blocks.saturating_sub(later));
                pages[class] = pages[class].saturating_add(parts.saturating_mul(blocks));
            }
        }
    }

    /// Returns the blocks of each group that a request can need after a hit.
    fn blocks_of_request(&self, request: RequestLengths, hit: u32) -> impl Iterator<Item = (usize, u32)> {
        let limit = request.limit;
        let step = request.chunk.unwrap_or(request.prompt).min(request.prompt.saturating_sub(hit));
        let step = step.max(request.drafts.saturating_add(1));
        // Steps in flight, and the tokens since the last boundary.
        let back = if self.settings.reuses { self.settings.keys.unit } else { 0 };
        let in_flight = step.saturating_mul(self.settings.lag.saturating_add(1)).saturating_add(back);
        let saves_states = self.settings.reuses && self.settings.checkpoints.is_on();
        let states = 1 + u32::from(saves_states || request.drafts > 0);
        let groups = self.geometry.groups().iter().enumerate();
        groups.filter(|&(group, _)| self.geometry.parts(group) > 0).map(move |(group, spec)| {
            let span = spec.span();
            let all = limit.div_ceil(span);
            let blocks = match spec.kind {
                GroupKind::Full | GroupKind::Compressed { .. } => all - (hit / span).min(all),
                GroupKind::Window { tokens, sinks } => {
                    let window = (tokens - 1).saturating_add(in_flight).div_ceil(span).saturating_add(1);
                    window.saturating_add(sinks.div_ceil(span)).min(all)
                }
                GroupKind::Chunked { tokens } => {
                    (tokens.saturating_add(in_flight)).div_ceil(span).saturating_add(1).min(all)
                }
                GroupKind::State => states,
                GroupKind::Cross => request.encoder_tokens.div_ceil(span),
            };
            (group, blocks)
        })
    }
}
