//! Transfers layer by layer, beside the step that uses the layers.
//!
//! Kernels of a layer need that layer only. So a step may be scheduled behind a load that is not complete:
//! its stream waits for each layer before the kernels of this layer, while the next layer is copied on
//! another stream. The tokens settle when the ticket is complete and the step has settled. A store by layers
//! reads tokens of steps in flight: a layer's copy follows the stream of its kernels.

use super::sequence::PendingLoad;
use super::ticket::{StorePage, Ticket, TicketId};
use super::{KvPool, Sequence};
use crate::geometry::{GroupKind, KvGeometry};
use crate::pages::NULL;
use crate::tier::DeviceTransfer;
use crate::{KvError, NotStored, Result};
use orlop_alloc::{Block, PendingCopy};
use orlop_core::StreamId;
use std::ops::Range;

/// A layer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayer {
    /// The group.
    pub group: usize,
    /// The layer; layers count from 0 in each group.
    pub layer: u32,
}

/// For each layer of a transfer, the stream on which it was copied.
#[derive(Debug)]
pub(super) struct LayerProgress(Vec<Vec<Option<StreamId>>>);

impl LayerProgress {
    pub(super) fn new(geometry: &KvGeometry) -> Self {
        let layers = geometry.groups().iter().enumerate().map(|(group, spec)| {
            let has_tokens = !matches!(spec.kind, GroupKind::State | GroupKind::Cross);
            let layers = if has_tokens && geometry.parts(group) > 0 { spec.layers } else { 0 };
            vec![None; layers as usize]
        });
        Self(layers.collect())
    }

    fn slot(&self, layer: KvLayer) -> Option<&Option<StreamId>> {
        self.0.get(layer.group)?.get(layer.layer as usize)
    }

    fn set(&mut self, layer: KvLayer, stream: StreamId) {
        self.0[layer.group][layer.layer as usize] = Some(stream);
    }

    /// Returns the first layer that was not copied.
    pub(super) fn first_missing(&self) -> Option<KvLayer> {
        let layers = (0..).zip(&self.0).flat_map(|(group, layers)| {
            (0..).zip(layers).map(move |(layer, stream)| (KvLayer { group, layer }, stream))
        });
        layers.filter(|(_, stream)| stream.is_none()).map(|(layer, _)| layer).next()
    }
}

impl KvPool {
    /// Appends `tokens` tokens whose content a transfer provides layer by layer, and returns its ticket and
    /// the pages to write. The sequence can be appended to at once: the kernels of a step follow the load of
    /// their layer ([`await_layer`](Self::await_layer)). Nothing that this computes settles before the
    /// ticket is [complete](Self::complete), which the engine declares when the step that waited for the
    /// copies has settled. Until then there are no drafts, forks and stores of the sequence.
    ///
    /// # Errors
    /// As [`begin_load`](Self::begin_load), or if the last block of the sequence is shared, so that it would
    /// be copied first.
    pub fn begin_load_by_layer(
        &mut self,
        sequence: &Sequence,
        tokens: u32,
        lease: u64,
    ) -> Result<(TicketId, Vec<StorePage>)> {
        self.collect_drops();
        let slot = self.slot(sequence)?;
        self.start_load(slot, tokens, lease, PendingLoad::ByLayer)
    }

    /// Refuses a load that begins in a block which the sequence may not write to.
    pub(super) fn check_end_is_own(&mut self, slot: u32, tokens: u32) -> Result<()> {
        let mut new_blocks = std::mem::take(&mut self.new_blocks);
        new_blocks.clear();
        let row = self.state(slot).len;
        self.plan_growth(slot, row.saturating_add(tokens).min(super::append::MAX_TOKENS), &mut new_blocks);
        let copied = new_blocks.iter().find(|new| new.from != NULL).map(|new| new.group);
        self.new_blocks = new_blocks;
        copied.map_or(Ok(()), |group| Err(KvError::SharedRow { group, row }))
    }

    /// Copies a layer of a load from the first bytes of `host`, on the transfer's stream: the entries of the
    /// loaded tokens in the layer's first arena, then those in the next one. The copy may not be done when
    /// this returns; `host` can then be changed.
    ///
    /// A copy follows the work that the pool's own stream has been given so far. So that it runs beside the
    /// kernels of the layer before, it is called between these and their [`await_layer`](Self::await_layer).
    ///
    /// # Errors
    /// If the ticket is not open or not of a load by layers, there is no such layer, or `host` has fewer
    /// bytes than the layer. And those of the device.
    pub fn load_layer(
        &mut self,
        transfer: &DeviceTransfer,
        ticket: TicketId,
        layer: KvLayer,
        host: &Block,
    ) -> Result<()> {
        self.check_awake()?;
        let ranges = self.layer_ranges(self.layer_ticket(ticket, layer, true)?, layer);
        check_room(&ranges, host.len())?;
        self.memory.copy_from(transfer.ops(), ranges, host, transfer.stream())?;
        self.mark(ticket, layer, transfer.stream());
        Ok(())
    }

    /// Declares that an engine's own transfer has put all arenas of a layer of a load on the device, or will
    /// have when `stream` has done the work that it was given so far.
    ///
    /// # Errors
    /// If the ticket is not open or not of a load by layers, or there is no such layer.
    pub fn mark_layer_loaded(&mut self, ticket: TicketId, layer: KvLayer, stream: StreamId) -> Result<()> {
        self.layer_ticket(ticket, layer, true)?;
        self.mark(ticket, layer, stream);
        Ok(())
    }

    /// Lets work that the transfer's stream is given from here on follow the load of a layer.
    ///
    /// # Errors
    /// If the ticket is not open or not of a load by layers, or the layer has not been copied. And those of
    /// the device.
    pub fn await_layer(&self, transfer: &DeviceTransfer, ticket: TicketId, layer: KvLayer) -> Result<()> {
        let open = self.layer_ticket(ticket, layer, true)?;
        let loaded_on = open.layers.as_ref().and_then(|layers| *layers.slot(layer)?);
        let KvLayer { group, layer } = layer;
        let loaded_on = loaded_on.ok_or(KvError::LayerMissing { group, layer })?;
        if loaded_on != transfer.stream() {
            transfer.ops().wait_for(transfer.stream(), loaded_on)?;
        }
        Ok(())
    }

    /// Returns a ticket for a transfer that reads the first `tokens` tokens of a sequence layer by layer,
    /// those of closed steps that have not settled included. What it pins is as for
    /// [`begin_store`](Self::begin_store).
    ///
    /// # Errors
    /// If the sequence has fewer tokens, is in the open step, or has a load.
    pub fn begin_store_by_layer(&mut self, sequence: &Sequence, tokens: u32, lease: u64) -> Result<TicketId> {
        self.collect_drops();
        self.check_awake()?;
        let slot = self.slot(sequence)?;
        let end = self.state(slot).len;
        if tokens > end {
            return Err(KvError::BeyondEnd { position: tokens, end });
        }
        self.check_no_load(slot)?;
        self.check_not_in_open_step(slot)?;
        let (mut ticket, _) = self.start_store(slot, tokens, lease);
        ticket.layers = Some(LayerProgress::new(&self.geometry));
        Ok(self.tickets.issue(ticket))
    }

    /// Copies a layer of a store to the first bytes of `host`, in the order of
    /// [`load_layer`](Self::load_layer), on the transfer's stream, after the work that `kernels` has been
    /// given so far: the stream of the kernels that write the layer, and of the copies of their steps.
    /// [`PendingCopy::wait`] returns `host` when the bytes are there; if it is pinned memory, the host does
    /// not wait before. [`complete`](Self::complete) and the end of the lease wait for the other copies.
    ///
    /// # Errors
    /// If the ticket is not open or not of a store by layers, there is no such layer, or `host` is too short.
    /// And those of the device. The error has `host`.
    pub fn store_layer(
        &mut self,
        transfer: &DeviceTransfer,
        ticket: TicketId,
        layer: KvLayer,
        kernels: StreamId,
        host: Block,
    ) -> Result<PendingCopy, NotStored> {
        let ranges = match self.prepare_store(transfer, ticket, layer, kernels, host.len()) {
            Ok(ranges) => ranges,
            Err(source) => return Err(NotStored { host: Some(host), source }),
        };
        let mut copy = transfer.start_copy(host);
        if let Some(open) = self.tickets.get_mut(ticket) {
            open.follow(&copy);
        }
        match self.memory.submit_to(ranges, &mut copy) {
            Ok(()) => {
                self.mark(ticket, layer, transfer.stream());
                Ok(copy)
            }
            // Copies before the one that failed may be under way.
            Err(error) => Err(NotStored { host: copy.wait().ok(), source: error.into() }),
        }
    }

    /// Checks the store of a layer to `room` bytes, and lets the transfer's stream follow the kernels.
    /// Returns the ranges of the pool.
    fn prepare_store(
        &self,
        transfer: &DeviceTransfer,
        ticket: TicketId,
        layer: KvLayer,
        kernels: StreamId,
        room: usize,
    ) -> Result<Vec<Range<u64>>> {
        self.check_awake()?;
        let ranges = self.layer_ranges(self.layer_ticket(ticket, layer, false)?, layer);
        check_room(&ranges, room)?;
        if kernels != transfer.stream() {
            transfer.ops().wait_for(transfer.stream(), kernels)?;
        }
        Ok(ranges)
    }

    /// Returns the bytes of a layer of a transfer.
    ///
    /// # Errors
    /// If the ticket is not open or not of a transfer by layers, or there is no such layer.
    pub fn layer_bytes(&self, ticket: TicketId, layer: KvLayer) -> Result<u64> {
        let open = self.tickets.get(ticket).ok_or(KvError::TicketClosed(ticket))?;
        let open = self.layer_ticket(ticket, layer, open.load.is_some())?;
        Ok(bytes_of(&self.layer_ranges(open, layer)))
    }

    /// Returns `true` unless a layer is still to be loaded for a sequence.
    pub(super) fn is_layer_there(&self, slot: u32, layer: KvLayer) -> bool {
        let state = self.state(slot);
        if state.load == PendingLoad::None {
            return true;
        }
        let ticket = self.tickets.load_of(slot, state.generation());
        let layers = ticket.and_then(|ticket| ticket.layers.as_ref());
        layers.and_then(|layers| *layers.slot(layer)?).is_some()
    }

    /// Returns the ticket of a transfer by layers that has this layer.
    fn layer_ticket(&self, id: TicketId, layer: KvLayer, is_load: bool) -> Result<&Ticket> {
        let ticket = self.tickets.get(id).ok_or(KvError::TicketClosed(id))?;
        let layers = ticket.layers.as_ref().filter(|_| ticket.load.is_some() == is_load);
        let layers = layers.ok_or(KvError::WrongTicket(id))?;
        let no_layer = KvError::NoSuchPart { group: layer.group, what: "such layer to transfer" };
        layers.slot(layer).ok_or(no_layer)?;
        Ok(ticket)
    }

    fn mark(&mut self, ticket: TicketId, layer: KvLayer, stream: StreamId) {
        let open = self.tickets.get_mut(ticket);
        if let Some(layers) = open.and_then(|open| open.layers.as_mut()) {
            layers.set(layer, stream);
        }
    }

    /// Returns the bytes of the pool that a ticket's tokens have in a layer, arena by arena.
    fn layer_ranges(&self, ticket: &Ticket, layer: KvLayer) -> Vec<Range<u64>> {
        let KvLayer { group, layer } = layer;
        let spec = &self.geometry.groups()[group];
        let mut ranges = Vec::new();
        for arena in 0..spec.arenas.len() {
            let Some(view) = self.geometry.arena(group, layer, arena) else { continue };
            for &(_, block, first) in ticket.blocks.iter().filter(|&&(of, _, _)| of == group) {
                let page = self.blocks.pages_of(group, block)[view.part as usize];
                let start = view.base + u64::from(page) * view.stride;
                let until =
                    |token: u32| spec.arena_bytes_of(arena, token.saturating_sub(first).min(spec.span()));
                let Range { start: from, end: to } = ticket.tokens;
                ranges.push(start + until(from)..start + until(to));
            }
        }
        ranges
    }
}

fn bytes_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn check_room(ranges: &[Range<u64>], room: usize) -> Result<()> {
    let needed = usize::try_from(bytes_of(ranges)).unwrap_or(usize::MAX);
    if needed <= room { Ok(()) } else { Err(KvError::BufferTooSmall { room, needed }) }
}
