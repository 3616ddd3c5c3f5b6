//! [`WorkOrder`]: the order of work in queues and on the host, as vector clocks.
//!
//! A queue's clock contains, for each queue, how much of its work is done before the next work of this queue
//! begins. Work that the host submits begins after everything that the host knows to be done.

use crate::VectorClock;

/// The queue of the host: its own accesses to memory, in program order.
pub const HOST_QUEUE: usize = 0;

/// A unit of work: number `position` of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkId {
    /// The queue.
    pub queue: usize,
    /// The position in it, from 1.
    pub position: u64,
}

/// The clocks of all queues.
#[derive(Debug, Clone)]
pub struct WorkOrder {
    clocks: Vec<VectorClock>,
    /// Queues that get no more work, but whose work the host may not know to be done.
    retired: Vec<usize>,
}

impl Default for WorkOrder {
    fn default() -> Self {
        Self::new()
    }
}

impl WorkOrder {
    /// Creates an order with the host's queue only.
    #[must_use]
    pub fn new() -> Self {
        Self { clocks: vec![VectorClock::default()], retired: Vec::new() }
    }

    /// Adds a queue and returns its number.
    ///
    /// The number of a retired queue is reused only when the host knows everything that the queue was ordered
    /// after to be done, its own work included: then sharing the number neither hides nor invents a race.
    pub fn add_queue(&mut self) -> usize {
        let host = &self.clocks[HOST_QUEUE];
        let reusable = |&queue: &usize| host.covers(&self.clocks[queue]);
        if let Some(place) = self.retired.iter().position(reusable) {
            return self.retired.swap_remove(place);
        }
        self.clocks.push(VectorClock::default());
        self.clocks.len() - 1
    }

    /// Ends a queue. Its submitted work stays ordered.
    pub fn retire_queue(&mut self, queue: usize) {
        debug_assert!(queue != HOST_QUEUE && !self.retired.contains(&queue), "a queue is retired once");
        self.retired.push(queue);
    }

    /// Returns the number of queues whose clocks are kept, the host's included.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.clocks.len()
    }

    /// Submits work to a queue.
    pub fn submit(&mut self, queue: usize) -> WorkId {
        self.after_host(queue);
        WorkId { queue, position: self.clocks[queue].tick(queue) }
    }

    /// Returns what is done once the submitted work of a queue is done: what an event records.
    pub fn record(&mut self, queue: usize) -> VectorClock {
        self.after_host(queue);
        self.clocks[queue].clone()
    }

    /// Orders all later work of a queue after a recorded point.
    pub fn wait(&mut self, queue: usize, recorded: &VectorClock) {
        self.clocks[queue].join(recorded);
    }

    /// Returns `true` if the host knows everything before a recorded point to be done.
    #[must_use]
    pub fn host_knows(&self, recorded: &VectorClock) -> bool {
        self.clocks[HOST_QUEUE].covers(recorded)
    }

    /// Returns `true` if `earlier` is done before the next work of `queue` begins.
    #[must_use]
    pub fn is_ordered(&self, earlier: WorkId, queue: usize) -> bool {
        earlier.queue == queue || earlier.position <= self.clocks[queue].at(earlier.queue)
    }

    fn after_host(&mut self, queue: usize) {
        if queue != HOST_QUEUE {
            let (host, others) = self.clocks.split_at_mut(HOST_QUEUE + 1);
            others[queue - HOST_QUEUE - 1].join(&host[HOST_QUEUE]);
        }
    }
}
