//! How far the host runs ahead of the device.
//!
//! A block that another stream still uses is pending. By PyTorch's rules a request waits for none: as long as
//! the streams are not done it gets other memory, however far the host runs ahead. By orlop's
//! ([`Extensions::limit_run_ahead`](crate::Extensions)) a request that two pending blocks fit takes the older
//! one, and its stream waits for the events on the device: one block can be filled while another is in use.
//! Before a request fails it takes the only one.

use super::{Engine, Index, PoolRequest};
use crate::backing::DeviceBacking;
use orlop_core::Device;

/// How many of the oldest blocks of each stream are candidates of a request that may wait.
const CANDIDATES: usize = 64;

impl<B: DeviceBacking> Engine<B> {
    /// Finds the best fitting pending block, of several the oldest, if more than `left` fit.
    pub(super) fn pending_fit(&self, request: &PoolRequest, left: usize) -> Option<Index> {
        // The host cannot be made to wait for an event on the device.
        if !self.policy.extensions.limit_run_ahead || self.backing.device() == Device::CPU {
            return None;
        }
        let mut found: Vec<Index> = Vec::new();
        for chunk in self.oldest_pending() {
            let of = &self.chunks[chunk];
            let serves = of.pool == request.pool && self.policy.serves(of.size, request.size);
            if serves && !self.is_wasteful(of, request) && !found.contains(&chunk) {
                found.push(chunk);
            }
        }
        let best = found.iter().copied().min_by_key(|&chunk| self.chunks[chunk].size);
        best.filter(|_| found.len() > left)
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

    /// Returns the oldest blocks that wait for nothing but recorded events, those of each stream in order.
    fn oldest_pending(&self) -> impl Iterator<Item = Index> + '_ {
        let queues = self.pending.order.iter().map(|&stream| &self.pending.queues[stream as usize]);
        let oldest = queues.flat_map(|queue| queue.events.iter().take(CANDIDATES));
        oldest.map(|&(_, chunk)| chunk).filter(|&chunk| self.chunks[chunk].note == 0)
    }

    /// Makes a stream wait, on the device, for the events of a pending block, which waits for nothing then.
    /// Returns `false` if it does not: the block stays pending.
    #[must_use]
    fn wait_for_pending(&mut self, chunk: Index, stream: u32) -> bool {
        let waits = self.pending.order.iter().copied().filter(|&user| {
            self.pending.queues[user as usize].events.iter().any(|&(_, waiting)| waiting == chunk)
        });
        let users: Vec<u32> = waits.collect();
        // Another thread may wait for one of its events, out of its queue.
        if users.len() != self.chunks[chunk].events as usize {
            return false;
        }
        for (place, &user) in users.iter().enumerate() {
            if !self.wait_in_queue(chunk, user, stream) {
                // Only the request's stream waits for those before: for others the block is still in use.
                users[..place].iter().for_each(|&user| self.add_use(chunk, user));
                if place > 0 {
                    self.pending.without_events.push(chunk);
                }
                return false;
            }
        }
        true
    }

    /// Makes a stream wait for the event of a pending block in another one, and takes the block from there.
    fn wait_in_queue(&mut self, chunk: Index, user: u32, stream: u32) -> bool {
        let events = &self.pending.queues[user as usize].events;
        let Some(place) = events.iter().position(|&(_, waiting)| waiting == chunk) else { return true };
        let event = events[place].0;
        let is_shared = events.iter().filter(|&&(other, _)| other == event).count() > 1;
        let waited = if is_shared {
            user == stream || self.wait_for(stream, user)
        } else if user == stream {
            self.backing.forget(event);
            true
        } else {
            let waited = self.backing.wait(self.streams.id(stream), event);
            self.stats.num_stream_waits += u64::from(waited.is_ok());
            self.noted(waited).is_ok()
        };
        if waited {
            self.pending.queues[user as usize].events.remove(place);
            self.pending.count -= 1;
            self.chunks[chunk].events -= 1;
        }
        waited
    }
}
