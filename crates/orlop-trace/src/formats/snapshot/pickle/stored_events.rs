//! The events of a pickle, converted as soon as their dicts are complete.
//!
//! A snapshot consists of events. As dicts, with the numbers in them, they would take four times the memory.

use crate::history::{EventDetail, HistoryEvent, TextId};

#[derive(Default)]
pub(super) struct StoredEvents {
    events: Vec<HistoryEvent>,
    /// Those that have something to say, by the index of the event.
    details: Vec<EventDetail>,
    /// The number of events that were taken.
    taken: u32,
}

impl StoredEvents {
    /// Adds an event. Returns its index; `None` if there are too many.
    pub(super) fn push(&mut self, event: HistoryEvent, detail: EventDetail) -> Option<u32> {
        let index = u32::try_from(self.events.len()).ok()?.checked_add(self.taken)?;
        if detail.context != TextId::NONE || detail.pool != (0, 0) {
            self.details.push(EventDetail { event: index, ..detail });
        }
        self.events.push(event);
        Some(index)
    }

    /// Returns an event; `None` if it was taken.
    pub(super) fn get(&self, index: u32) -> Option<(HistoryEvent, EventDetail)> {
        let event = *self.events.get(index.checked_sub(self.taken)? as usize)?;
        let known = self.details.binary_search_by_key(&index, |detail| detail.event).ok();
        let none = EventDetail { event: index, context: TextId::NONE, pool: (0, 0) };
        Some((event, known.and_then(|place| self.details.get(place)).copied().unwrap_or(none)))
    }

    /// Takes the next events, if `indices` are theirs. Indices of details are relative to the first.
    pub(super) fn take(
        &mut self,
        mut indices: impl Iterator<Item = Option<u32>>,
    ) -> Option<(Vec<HistoryEvent>, Vec<EventDetail>)> {
        let first = self.taken;
        let mut end = first;
        let are_next = indices.all(|index| {
            let is_next = index == Some(end);
            end = end.saturating_add(1);
            is_next
        });
        let count = (end - first) as usize;
        if !are_next || count > self.events.len() {
            return None;
        }
        let rest = self.events.split_off(count);
        let events = std::mem::replace(&mut self.events, rest);
        let rest = self.details.split_off(self.details.partition_point(|detail| detail.event < end));
        let mut details = std::mem::replace(&mut self.details, rest);
        for detail in &mut details {
            detail.event -= first;
        }
        self.taken = end;
        Some((events, details))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::EventAction;

    #[test]
    fn events_are_taken_in_order_or_not_at_all() {
        let mut stored = StoredEvents::default();
        for bytes in 0..5 {
            let detail = EventDetail { event: 0, context: TextId::NONE, pool: (bytes % 2, 0) };
            let index = stored.push(HistoryEvent::new(EventAction::Allocate, 512, bytes), detail);
            assert_eq!(index, u32::try_from(bytes).ok());
        }
        assert!(stored.take([Some(0), Some(2)].into_iter()).is_none());
        assert!(stored.take([Some(0), None].into_iter()).is_none());
        assert!(stored.take([Some(1)].into_iter()).is_none());
        let (events, details) = stored.take([Some(0), Some(1)].into_iter()).unwrap();
        assert_eq!((events.len(), details.len(), details[0].event), (2, 1, 1));
        assert!(stored.get(1).is_none() && stored.take((2..9).map(Some)).is_none());
        let (event, detail) = stored.get(3).unwrap();
        assert_eq!((event.bytes, detail.pool), (3, (1, 0)));
        let (events, details) = stored.take((2..5).map(Some)).unwrap();
        assert_eq!((events.len(), details.len(), details[0].event), (3, 1, 1));
    }
}
