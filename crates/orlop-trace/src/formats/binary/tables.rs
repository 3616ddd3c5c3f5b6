//! [`RecordTables`]: the texts, frames and call sites that records refer to.

use super::super::BlockFault;
use super::PreviousEvent;
use super::payload::{PayloadCursor, PayloadResult};
use crate::history::{SiteId, Sites, TextId};

/// What records refer to, and the values they are relative to.
#[derive(Debug, Default)]
pub(super) struct RecordTables {
    pub(super) sites: Sites,
    /// Indexed by their numbers in the file.
    pub(super) texts: Vec<TextId>,
    pub(super) frames: Vec<u32>,
    pub(super) stacks: Vec<SiteId>,
    pub(super) device: Option<u32>,
    pub(super) before: PreviousEvent,
    /// The address of the last segment.
    pub(super) segment: Option<u64>,
}

impl RecordTables {
    /// Forgets what the records of a block are relative to: a block begins.
    pub(super) fn begin_block(&mut self) {
        self.before = PreviousEvent::default();
        self.device = None;
    }

    /// Reads a reference to a text.
    pub(super) fn text(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<TextId> {
        self.text_of(cursor.short()?)
    }

    /// Reads a reference to a call site.
    pub(super) fn site(&self, cursor: &mut PayloadCursor<'_>) -> PayloadResult<SiteId> {
        self.stack_of(cursor.short()?)
    }

    pub(super) fn text_of(&self, number: u32) -> PayloadResult<TextId> {
        let Some(place) = number.checked_sub(1) else { return Ok(TextId::NONE) };
        self.texts.get(place as usize).copied().ok_or(BlockFault::Reference)
    }

    pub(super) fn stack_of(&self, number: u32) -> PayloadResult<SiteId> {
        let Some(place) = number.checked_sub(1) else { return Ok(SiteId::UNKNOWN) };
        self.stacks.get(place as usize).copied().ok_or(BlockFault::Reference)
    }
}
