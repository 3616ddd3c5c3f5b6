//! How far the host runs ahead of the device.
//!
//! A block that another stream still uses is pending. By PyTorch's rules a request waits for none: as long as
//! the streams are not done it gets other memory, however far the host runs ahead. By orlop's
//! ([`Extensions::limit_run_ahead`](crate::Extensions)) a request that two pending blocks fit takes the older
//! one, and its stream waits for the events on the device: one block can be filled while another is in use.
//! Before a request fails it takes the only one.

use super::pending::AwaitedEvent;
use super::{Engine, Index, PoolRequest};
use crate::backing::DeviceBacking;
use orlop_core::Device;
use std::collections::VecDeque;

/// How many of the oldest blocks of each stream are looked at for a request that may wait.
const SEARCHED: usize = 256;

impl<B: DeviceBacking> Engine<B> {
    /// Finds the best fitting pending block, of several the oldest, but for the `left` newest that fit.
    pub(super) fn pending_fit(&self, request: &PoolRequest, left: usize) -> Option<Index> {
        // The host cannot be made to wait for an event on the device.
        if !self.policy.extensions.limit_run_ahead || self.backing.device() == Device::CPU {
            return None;
        }
        let mut found: Vec<AwaitedEvent> = Vec::new();
        for awaited in self.oldest_pending() {
            let chunk = &self.chunks[awaited.chunk];
            let serves = chunk.pool == request.pool && self.policy.serves(chunk.size, request.size);
            let is_new = chunk.events == 1 || found.iter().all(|other| other.chunk != awaited.chunk);
            if serves && is_new && !self.is_wasteful(chunk, request) {
                found.push(awaited);
            }
        }
        found.sort_unstable_by_key(|awaited| awaited.serial);
        found.truncate(found.len().saturating_sub(left));
        let best = found.iter().min_by_key(|awaited| (self.chunks[awaited.chunk].size, awaited.serial));
        best.map(|awaited| awaited.chunk)
    }

    /// Takes a pending block: the request's stream waits for what others did with it, and for its own stream.
    /// All of it is then memory of the request's stream, because no other has waited.
    pub(super) fn take_pending(&mut self, request: &PoolRequest, chunk: Index) -> Option<Index> {
        let owner = self.chunks[chunk].stream;
        if owner != request.stream && !self.wait_for(request.stream, owner) {
            return None;
        }
        if !self.wait_for_pending(chunk, request.stream) {
            return None;
        }
        self.chunks[chunk].stream = request.stream;
        self.make_free(chunk);
        self.take(chunk);
        self.stats.num_stream_steals += u64::from(owner != request.stream);
        Some(chunk)
    }

    /// Returns the oldest blocks of each stream that wait for nothing but events of their own. An event that
    /// others wait for, too, cannot be waited for by a stream: it is forgotten with that.
    fn oldest_pending(&self) -> impl Iterator<Item = AwaitedEvent> + '_ {
        let queues = self.pending.order.iter().map(|&stream| &self.pending.queues[stream as usize].events);
        let own = queues.flat_map(|events| {
            let oldest = events.iter().take(SEARCHED).enumerate();
            oldest.filter(|&(place, _)| !is_shared(events, place)).map(|(_, awaited)| *awaited)
        });
        own.filter(|awaited| self.chunks[awaited.chunk].note == 0)
    }

    /// Makes a stream wait, on the device, for the events of a pending block, which waits for nothing then.
    /// Returns `false` if it does not: the block stays pending.
    #[must_use]
    fn wait_for_pending(&mut self, chunk: Index, stream: u32) -> bool {
        let count = self.chunks[chunk].events as usize;
        let place_in = |user: u32| {
            let events = &self.pending.queues[user as usize].events;
            events.iter().position(|awaited| awaited.chunk == chunk)
        };
        let places = self.pending.order.iter().filter_map(|&user| place_in(user).map(|place| (user, place)));
        let places: Vec<_> = places.take(count).collect();
        // The growth lock keeps other threads from waits for events out of their queues.
        debug_assert_eq!(places.len(), count);
        let is_shared =
            |&(user, place): &(u32, usize)| is_shared(&self.pending.queues[user as usize].events, place);
        if places.len() != count || places.iter().any(is_shared) {
            return false;
        }
        for (done, &(user, place)) in places.iter().enumerate() {
            if !self.wait_in_queue(user, place, stream) {
                // The stream has waited for those before, and stands for them.
                if done > 0 {
                    self.add_use(chunk, stream);
                    self.pending.without_events.push(chunk);
                }
                return false;
            }
        }
        true
    }

    /// Makes a stream wait for the event at this place of the queue of another one, and takes the block from
    /// there.
    fn wait_in_queue(&mut self, user: u32, place: usize, stream: u32) -> bool {
        let AwaitedEvent { event, chunk, .. } = self.pending.queues[user as usize].events[place];
        if user == stream {
            self.backing.forget(event);
        } else {
            let waited = self.backing.wait(self.streams.id(stream), event);
            self.stats.num_stream_waits += u64::from(waited.is_ok());
            if self.noted(waited).is_err() {
                return false;
            }
        }
        self.pending.queues[user as usize].events.remove(place);
        self.pending.count -= 1;
        self.chunks[chunk].events -= 1;
        true
    }
}

/// Returns `true` if several blocks wait for the event at this place: they follow each other.
fn is_shared(events: &VecDeque<AwaitedEvent>, place: usize) -> bool {
    let event = |place: usize| events.get(place).map(|awaited| awaited.event);
    let own = event(place);
    own == event(place + 1) || place.checked_sub(1).is_some_and(|before| own == event(before))
}
