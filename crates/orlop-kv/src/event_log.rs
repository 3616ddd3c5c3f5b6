//! [`EventLog`]: events that wait to be taken, within a limit.
//!
//! A mirror of the index may be slow or gone. Beyond the limit the log drops everything: the next take
//! reports the loss, and the mirror gets the whole content instead of the changes.

use std::mem;

/// Events that were not taken yet.
#[derive(Debug)]
pub(crate) struct EventLog<E> {
    events: Vec<E>,
    /// The weights of the events, and their limit.
    weight: usize,
    limit: usize,
    /// The events that were dropped, if the changes since the last take are not complete.
    lost: Option<u64>,
}

impl<E> EventLog<E> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { events: Vec::new(), weight: 0, limit, lost: None }
    }

    /// Adds an event that counts `weight` times in the limit.
    pub(crate) fn push(&mut self, event: E, weight: usize) {
        if let Some(lost) = &mut self.lost {
            *lost += 1;
            return;
        }
        self.weight = self.weight.saturating_add(weight);
        self.events.push(event);
        if self.weight > self.limit {
            self.forget();
        }
    }

    /// Drops the events, so that the next take reports a loss.
    pub(crate) fn forget(&mut self) {
        let dropped = mem::take(&mut self.events).len() as u64;
        self.lost = Some(self.lost.unwrap_or(0) + dropped);
        self.weight = 0;
    }

    /// Takes the events since the last call.
    ///
    /// # Errors
    /// The number of events that were dropped, if these are not all.
    pub(crate) fn take(&mut self) -> Result<Vec<E>, u64> {
        self.weight = 0;
        let events = mem::take(&mut self.events);
        self.lost.take().map_or(Ok(events), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::EventLog;

    #[test]
    fn a_loss_is_reported_once_and_counts_every_event() {
        let mut log = EventLog::new(4);
        (0..2).for_each(|event| log.push(event, 2));
        assert_eq!(log.take(), Ok(vec![0, 1]));
        (0..5).for_each(|event| log.push(event, 2));
        assert_eq!(log.take(), Err(5));
        log.push(7, 4);
        assert_eq!(log.take(), Ok(vec![7]));
        log.push(8, 1);
        log.forget();
        assert_eq!((log.take(), log.take()), (Err(1), Ok(vec![])));
    }
}
