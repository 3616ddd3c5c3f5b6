//! Tickets: transfers that the engine runs beside the steps.
//!
//! A ticket pins its blocks until it is completed or its lease ends, whatever happens to the sequence. A load
//! gets its pages like an append, so none that a step in flight may still access. A store reads tokens that
//! have settled, which the type of the call cannot get around: it takes no others.

use super::layers::LayerProgress;
use super::sequence::PendingLoad;
use super::{KvLayer, KvPool, Sequence, StepId};
use crate::geometry::GroupKind;
use crate::pages::NULL;
use crate::{KvError, Result};
use orlop_alloc::{CopyStatus, PendingCopy};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The number of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TicketId(u64);

/// A page that a transfer writes or reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorePage {
    /// The group.
    pub group: usize,
    /// The part of the block.
    pub part: u32,
    /// The page.
    pub page: u32,
    /// The first token of the page.
    pub token: u32,
}

#[derive(Debug)]
pub(super) struct Ticket {
    id: TicketId,
    /// Blocks: the group, the block, and its first token.
    pub(super) blocks: Vec<(usize, u32, u32)>,
    /// The tokens that are transferred.
    pub(super) tokens: Range<u32>,
    /// When the lease ends, in the caller's milliseconds.
    lease: u64,
    /// The sequence that is loaded: slot and generation.
    pub(super) load: Option<(u32, u32)>,
    /// The layers that were transferred, if they are one by one.
    pub(super) layers: Option<LayerProgress>,
    /// The copies of a store by layers.
    copies: Vec<CopyStatus>,
}

impl Ticket {
    pub(super) fn new(blocks: Vec<(usize, u32, u32)>, tokens: Range<u32>, lease: u64) -> Self {
        // Relaxed: only that no number comes twice matters.
        let id = TicketId(ISSUED.fetch_add(1, Relaxed));
        Self { id, blocks, tokens, lease, load: None, layers: None, copies: Vec::new() }
    }

    /// Lets the ticket end after a copy.
    pub(super) fn follow(&mut self, copy: &PendingCopy) {
        self.copies.retain(|status| !status.is_done());
        self.copies.push(copy.status());
    }

    /// Waits for the copies that were not waited for.
    fn wait_for_copies(&self) -> Result<()> {
        self.copies.iter().try_for_each(|status| Ok(status.wait()?))
    }
}

/// The tickets of all pools so far: another pool's is not taken for one of this pool's.
static ISSUED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Default)]
pub(super) struct Tickets {
    open: Vec<Ticket>,
}

impl Tickets {
    pub(super) fn issue(&mut self, ticket: Ticket) -> TicketId {
        let id = ticket.id;
        self.open.push(ticket);
        id
    }

    /// Returns an open ticket.
    pub(super) fn get(&self, id: TicketId) -> Option<&Ticket> {
        self.open.iter().find(|ticket| ticket.id == id)
    }

    pub(super) fn get_mut(&mut self, id: TicketId) -> Option<&mut Ticket> {
        self.open.iter_mut().find(|ticket| ticket.id == id)
    }

    /// Returns the ticket of a sequence's load.
    pub(super) fn load_of(&self, slot: u32, generation: u32) -> Option<&Ticket> {
        self.open.iter().find(|ticket| ticket.load == Some((slot, generation)))
    }

    pub(super) fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    fn take(&mut self, id: TicketId) -> Option<Ticket> {
        let at = self.open.iter().position(|ticket| ticket.id == id)?;
        Some(self.open.swap_remove(at))
    }
}

impl KvPool {
    /// Appends `tokens` tokens whose content a transfer provides, and returns its ticket and the pages to
    /// write. Until the ticket is completed, the sequence cannot be appended to, and
    /// [`read_rows`](Self::read_rows) and [`write_rows`](Self::write_rows) refuse these tokens. If the first
    /// page has tokens already, a [copy](Self::copies) of the open step may come first: the transfer then
    /// follows that step. The lease ends `lease` milliseconds after the present [time](Self::set_time).
    ///
    /// # Errors
    /// As [`append`](Self::append), or if the model has states, or a step that has not settled accesses the
    /// sequence.
    pub fn begin_load(
        &mut self,
        sequence: &Sequence,
        tokens: u32,
        lease: u64,
    ) -> Result<(TicketId, Vec<StorePage>)> {
        self.collect_drops();
        let slot = self.slot(sequence)?;
        self.start_load(slot, tokens, lease, PendingLoad::Whole)
    }

    /// Starts a load of a kind. A load by layers does not begin in a block that would be copied first.
    pub(super) fn start_load(
        &mut self,
        slot: u32,
        tokens: u32,
        lease: u64,
        kind: PendingLoad,
    ) -> Result<(TicketId, Vec<StorePage>)> {
        let state = self.state(slot);
        let (before, generation) = (state.len, self.generation(slot));
        if state.len != state.settled {
            return Err(KvError::BeyondEnd { position: state.len, end: state.settled });
        }
        self.check_no_load(slot)?;
        self.check_settled(state.last_step)?;
        if let Some(group) = self.first_state_group() {
            return Err(KvError::NoSuchPart { group, what: "tokens to load" });
        }
        if kind == PendingLoad::ByLayer {
            self.check_end_is_own(slot, tokens)?;
        }
        let (fresh, copies) = (self.open.fresh.len(), self.open.copies.len());
        self.append_to(slot, tokens, false)?;
        // The transfer fills these pages, not the open step.
        self.open.fresh.truncate(fresh);
        let (open, has_copies) = (self.open.id, self.open.copies.len() > copies);
        let state = self.state_mut(slot);
        state.load = kind;
        if has_copies {
            // The open step writes to a page of the sequence, but computes none of its tokens.
            (state.last_step, state.entry) = (open, usize::MAX);
        }
        let (blocks, pages) = self.pages_between(slot, before, before + tokens);
        for &(group, block, _) in &blocks {
            self.blocks.pin(group, block);
        }
        let lease = self.now.saturating_add(lease);
        let mut ticket = Ticket::new(blocks, before..before + tokens, lease);
        ticket.load = Some((slot, generation));
        if kind == PendingLoad::ByLayer {
            ticket.layers = Some(LayerProgress::new(&self.geometry));
        }
        Ok((self.tickets.issue(ticket), pages))
    }

    /// Returns a ticket and the pages for a transfer that reads `tokens` settled tokens from the start: of
    /// groups that keep every token all pages, of windows and chunks those that the sequence still has, of
    /// states and encoders none. An append after a [`truncate`](Self::truncate) does not overwrite
    /// them while the ticket is open: it copies the block, beyond the pledge.
    ///
    /// # Errors
    /// If fewer tokens have settled, or a step in flight is still to write them: by a copy, or for the
    /// sequence that they were reused from.
    pub fn begin_store(
        &mut self,
        sequence: &Sequence,
        tokens: u32,
        lease: u64,
    ) -> Result<(TicketId, Vec<StorePage>)> {
        self.collect_drops();
        self.check_awake()?;
        let slot = self.slot(sequence)?;
        let settled = self.state(slot).settled;
        if tokens > settled {
            return Err(KvError::BeyondEnd { position: tokens, end: settled });
        }
        self.check_no_load(slot)?;
        self.check_settled(self.state(slot).written_by)?;
        let (ticket, pages) = self.start_store(slot, tokens, lease);
        Ok((self.tickets.issue(ticket), pages))
    }

    /// Pins what a store reads.
    pub(super) fn start_store(&mut self, slot: u32, tokens: u32, lease: u64) -> (Ticket, Vec<StorePage>) {
        let (blocks, pages) = self.pages_between(slot, 0, tokens);
        for &(group, block, first) in &blocks {
            let span = self.geometry.groups()[group].span();
            self.blocks.pin_for_store(group, block, (tokens - first).min(span));
        }
        (Ticket::new(blocks, 0..tokens, self.now.saturating_add(lease)), pages)
    }

    /// Refuses what must not run beside a step.
    pub(super) fn check_settled(&self, step: StepId) -> Result<()> {
        if self.is_unsettled(step) { Err(KvError::StepInFlight { step: step.0 }) } else { Ok(()) }
    }

    /// Lists the blocks with these tokens, and their pages.
    fn pages_between(&self, slot: u32, from: u32, to: u32) -> (Vec<(usize, u32, u32)>, Vec<StorePage>) {
        let (mut blocks, mut pages) = (Vec::new(), Vec::new());
        for group in 0..self.geometry.groups().len() {
            let spec = &self.geometry.groups()[group];
            if self.geometry.parts(group) == 0 || matches!(spec.kind, GroupKind::State | GroupKind::Cross) {
                continue;
            }
            let span = spec.span();
            for index in from / span..to.div_ceil(span) {
                let block =
                    self.state(slot).tables[group].blocks.get(index as usize).copied().unwrap_or(NULL);
                if block == NULL {
                    continue;
                }
                blocks.push((group, block, index * span));
                for (part, &page) in (0..).zip(self.blocks.pages_of(group, block)) {
                    pages.push(StorePage { group, part, page, token: index * span });
                }
            }
        }
        (blocks, pages)
    }

    /// Declares that a transfer is complete: loaded tokens have settled, and can be hit. The copies of a
    /// store by layers are done then: the host waits for those whose [`PendingCopy`] it has not waited for.
    ///
    /// # Errors
    /// If the ticket is not open: it was completed, or its lease has ended. That is counted, and nothing else
    /// happens. If a layer of a transfer by layers is missing, or its copies cannot be waited for: the ticket
    /// stays open.
    pub fn complete(&mut self, ticket: TicketId) -> Result<()> {
        let layers = self.tickets.get(ticket).and_then(|open| open.layers.as_ref());
        if let Some(KvLayer { group, layer }) = layers.and_then(LayerProgress::first_missing) {
            return Err(KvError::LayerMissing { group, layer });
        }
        self.close(ticket, true)
    }

    /// Declares that a transfer has failed and is over: loaded tokens are taken back, and with a load by
    /// layers those computed behind it. The ids of the prompt's tokens stay known; those that were sampled
    /// since are forgotten.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub fn cancel(&mut self, ticket: TicketId) -> Result<()> {
        self.close(ticket, false)
    }

    fn close(&mut self, id: TicketId, is_complete: bool) -> Result<()> {
        self.collect_drops();
        self.tickets.get(id).map_or(Ok(()), Ticket::wait_for_copies)?;
        let Some(ticket) = self.tickets.take(id) else {
            self.counters.late_completions += 1;
            return Err(KvError::TicketClosed(id));
        };
        self.end_ticket(ticket, is_complete);
        Ok(())
    }

    fn end_ticket(&mut self, ticket: Ticket, is_complete: bool) {
        for &(group, block, _) in &ticket.blocks {
            if ticket.load.is_some() {
                self.blocks.unpin(group, block);
            } else {
                self.blocks.unpin_for_store(group, block);
            }
        }
        self.index.unpark();
        let Some((slot, generation)) = ticket.load else { return };
        if !self.state(slot).is_alive || self.generation(slot) != generation {
            return;
        }
        let Range { start: before, end } = ticket.tokens;
        let state = self.state_mut(slot);
        state.load = PendingLoad::None;
        let settled = std::mem::take(&mut state.settled_beside_load).max(end);
        if is_complete {
            self.settle_sequence(slot, settled);
        } else {
            let state = &self.sequences[slot as usize];
            let units = |tokens: u32| (tokens / self.settings.keys.unit) as usize;
            let known = state.chain.hashes();
            let failed = units(before).min(known.len())..units(end).min(known.len());
            self.failed_loads.insert(&known[failed]);
            self.take_back_load(slot, ticket.tokens);
            self.end_if_finished(slot);
        }
    }

    /// Ends the leases that are over.
    pub(super) fn expire_tickets(&mut self) {
        let now = self.now;
        // What cannot be waited for may still be read: it is kept.
        let is_over = |ticket: &mut Ticket| ticket.lease <= now && ticket.wait_for_copies().is_ok();
        let expired: Vec<Ticket> = self.tickets.open.extract_if(.., is_over).collect();
        for ticket in expired {
            self.counters.expired_leases += 1;
            self.end_ticket(ticket, false);
        }
    }
}
