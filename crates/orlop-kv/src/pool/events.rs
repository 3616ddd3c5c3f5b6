//! The events of a pool: changes since the last call, or all content after a loss.

use super::KvPool;
use crate::tier::TierEvent;
use crate::{KvEvent, KvTier, RemovalReason};

impl KvPool {
    /// Takes the events since the last call. Empty unless [`KvPoolBuilder::events`](crate::KvPoolBuilder) is
    /// on. If some were lost, the first one is a [reset](KvEvent::Reset), and those behind it announce all
    /// that the index and host memory have.
    pub fn take_events(&mut self) -> Vec<KvEvent> {
        let Some(of_index) = self.index.take_events() else { return Vec::new() };
        let of_tiers = self.tiers.as_mut().map_or(Ok(Vec::new()), |tiers| tiers.take_events());
        match (of_index, of_tiers) {
            (Ok(mut events), Ok(of_tiers)) => {
                self.name_demotions(&mut events);
                events.extend(of_tiers.into_iter().map(|event| self.of_tier(event)));
                events
            }
            (of_index, of_tiers) => {
                let lost = of_index.map_or_else(|lost| lost, |events| events.len() as u64);
                let lost_of_tiers = of_tiers.as_ref().map_or_else(|&lost| lost, |_| 0);
                let mut events = self.all_content(lost + lost_of_tiers);
                // What host memory has is announced already.
                let mut of_store = of_tiers.unwrap_or_default();
                of_store.retain(|event| event.tier == KvTier::Store);
                events.extend(of_store.into_iter().map(|event| self.of_tier(event)));
                events
            }
        }
    }

    /// Drops the events that were not taken: the next call of [`take_events`](Self::take_events) announces
    /// all content, for a mirror that starts late.
    pub fn reset_events(&mut self) {
        self.index.forget_events();
    }

    /// Announces everything that a mirror has to know.
    fn all_content(&self, lost: u64) -> Vec<KvEvent> {
        let mut events = vec![KvEvent::Reset { lost }];
        self.index.announce_all(&mut events);
        if let Some(tiers) = &self.tiers {
            events.extend(tiers.announce_host().map(|event| self.of_tier(event)));
        }
        events
    }

    /// Names the reason of evictions from the device whose blocks a tier below has.
    fn name_demotions(&mut self, events: &mut [KvEvent]) {
        let Some(tiers) = &mut self.tiers else { return };
        for event in events {
            if let KvEvent::BlockRemoved { key, reason, .. } = event
                && *reason == RemovalReason::Evicted
                && tiers.contains(*key)
            {
                *reason = RemovalReason::Demoted;
            }
        }
    }

    fn of_tier(&self, event: TierEvent) -> KvEvent {
        let TierEvent { tier, key, bytes, removed } = event;
        let block_tokens = self.geometry.groups().get(key.group as usize).map_or(0, |spec| spec.span());
        match removed {
            None => KvEvent::BlockStored { tier, key, block_tokens, bytes },
            Some(reason) => KvEvent::BlockRemoved { tier, key, block_tokens, bytes, reason },
        }
    }
}
