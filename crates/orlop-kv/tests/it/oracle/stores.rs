//! Stores under tickets: what they read is there, and stays, until they end.

use super::Oracle;
use crate::stamps::stamp;
use orlop_kv::{GroupKind, KvError, StorePage, TicketId};

/// A store in flight: a transfer that reads the tokens of a sequence when it likes, beside the steps.
#[derive(Debug)]
pub(crate) struct StoreInFlight {
    ticket: TicketId,
    /// When its lease ends.
    lease: u64,
    /// The slots that it reads, with the stamps that they have.
    slots: Vec<(u64, u64)>,
    /// Steps in flight that are still to write some of them.
    awaited: usize,
    is_by_layer: bool,
}

impl Oracle {
    /// Begins a store of a sequence's first tokens: settled ones, or by layers, those of closed steps.
    pub(crate) fn begin_store(
        &mut self,
        at: usize,
        tokens: u32,
        lease: u64,
        is_by_layer: bool,
    ) -> Result<(), KvError> {
        let before = self.books();
        let handle = &self.running[at].handle;
        let begun = if is_by_layer {
            self.pool.begin_store_by_layer(handle, tokens, lease).map(|ticket| (ticket, None))
        } else {
            self.pool.begin_store(handle, tokens, lease).map(|(ticket, pages)| (ticket, Some(pages)))
        };
        if begun.is_err() {
            assert_eq!(before, self.books(), "a refused store changed something");
        }
        let (ticket, pages) = begun?;
        let pages = pages.unwrap_or_else(|| self.pages_of(at, tokens));
        let slots = pages.iter().flat_map(|&page| self.stored_slots(at, page, tokens)).collect();
        let awaited = if is_by_layer { self.in_flight } else { 0 };
        let lease = self.now + lease;
        self.stores.push(StoreInFlight { ticket, lease, slots, awaited, is_by_layer });
        if !is_by_layer {
            self.read_store(self.stores.len() - 1);
        }
        self.check();
        Ok(())
    }

    /// Ends a store after a last look at what it reads; one whose lease has ended is late.
    pub(crate) fn end_store(&mut self, index: usize, is_complete: bool) {
        if self.stores[index].lease <= self.now {
            let StoreInFlight { ticket, .. } = self.stores.swap_remove(index);
            assert!(matches!(self.pool.complete(ticket), Err(KvError::TicketClosed(_))), "a late completion");
            return;
        }
        if self.stores[index].awaited == 0 {
            self.read_store(index);
        }
        let StoreInFlight { ticket, is_by_layer, .. } = self.stores.swap_remove(index);
        // The pool has no memory of which it could copy layers.
        let ended =
            if is_complete && !is_by_layer { self.pool.complete(ticket) } else { self.pool.cancel(ticket) };
        ended.unwrap();
        self.check();
    }

    /// Counts a step that has settled.
    pub(super) fn settled_under_stores(&mut self) {
        for store in &mut self.stores {
            store.awaited = store.awaited.saturating_sub(1);
        }
    }

    /// Reads what a store does, on a stream that nothing orders with the steps in flight.
    fn read_store(&self, index: usize) {
        let StoreInFlight { slots, ticket, .. } = &self.stores[index];
        let wanted: Vec<u64> = slots.iter().map(|&(slot, _)| slot).collect();
        let found = self.devices.read(&wanted);
        for (&(slot, stamp), found) in slots.iter().zip(found) {
            assert_eq!(stamp, found, "slot {slot} under store {ticket:?}");
        }
    }

    /// Lists the pages of a sequence's first tokens, as its tables have them.
    fn pages_of(&self, at: usize, tokens: u32) -> Vec<StorePage> {
        let (geometry, handle) = (self.pool.geometry(), &self.running[at].handle);
        let (len, _) = self.pool.len(handle).unwrap();
        let mut pages = Vec::new();
        for (group, spec) in geometry.groups().iter().enumerate() {
            if matches!(spec.kind, GroupKind::State | GroupKind::Cross) {
                continue;
            }
            for part in 0..geometry.parts(group) {
                let mut row = vec![super::NULL; len.div_ceil(spec.span()) as usize];
                self.pool.write_block_table(handle, group, part, super::NULL, &mut row).unwrap();
                let firsts = (0..tokens).step_by(spec.span() as usize);
                let there = firsts.zip(row).filter(|&(_, page)| page != super::NULL);
                pages.extend(there.map(|(token, page)| StorePage { group, part, page, token }));
            }
        }
        pages
    }

    /// Lists the slots of a page that have tokens of a sequence, with their stamps.
    fn stored_slots(&self, at: usize, page: StorePage, tokens: u32) -> Vec<(u64, u64)> {
        let StorePage { group, part, page, token } = page;
        let (geometry, known) = (self.pool.geometry(), &self.running[at].tokens);
        let spec = &geometry.groups()[group];
        let ratio = if let GroupKind::Compressed { ratio } = spec.kind { ratio } else { 1 };
        let mut slots = Vec::new();
        for layer in 0..spec.layers {
            for (arena, entry) in spec.arenas.iter().enumerate() {
                let view = geometry.arena(group, layer, arena).unwrap();
                let positions = token..tokens.min(token + spec.span());
                let ends = |position: &u32| view.part == part && (position + 1).is_multiple_of(ratio);
                slots.extend(positions.filter(ends).map(|position| {
                    let inside = u64::from((position - token) / ratio) * entry.bytes;
                    let slot = (view.base + u64::from(page) * view.stride + inside) / 8;
                    (slot, stamp(known, position, group, layer))
                }));
            }
        }
        slots
    }
}
