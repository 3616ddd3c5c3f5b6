//! What the simulation reports: races, allocations and counts.

use std::fmt;
use std::time::Duration;

/// An access to memory in a [`RaceReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaceAccess {
    /// The call or kernel.
    pub name: String,
    /// The handle of the stream; `None` for the host itself.
    pub stream: Option<u64>,
    /// Whether the access writes.
    pub is_write: bool,
    /// Whether it is an atomic update, which does not race with another one.
    pub is_atomic: bool,
    /// The first address.
    pub address: usize,
    /// The number of bytes.
    pub bytes: usize,
    /// The virtual time when it was submitted.
    pub time: Duration,
}

impl fmt::Display for RaceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match (self.is_write, self.is_atomic) {
            (_, true) => "updates",
            (true, false) => "writes",
            (false, false) => "reads",
        };
        write!(f, "{} {verb} {} bytes at {:#x}", self.name, self.bytes, self.address)?;
        match self.stream {
            Some(stream) => write!(f, " on stream {stream:#x}")?,
            None => write!(f, " on the host")?,
        }
        write!(f, ", submitted at {:?}", self.time)
    }
}

/// Two accesses to the same bytes that conflict, with nothing that orders them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaceReport {
    /// The access that was submitted first.
    pub earlier: RaceAccess,
    /// The other.
    pub later: RaceAccess,
}

impl fmt::Display for RaceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "race: {}; not ordered after: {}", self.later, self.earlier)
    }
}

/// The kind of a [`LiveAllocation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LiveKind {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc`.
    Pinned,
    /// `cuMemHostRegister`.
    Registered,
    /// `cuMemAllocAsync`, from a pool.
    Pooled,
    /// `cuMemCreate`.
    Physical,
    /// `cuMemAddressReserve`.
    Reservation,
}

/// Something that was allocated and not freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveAllocation {
    /// What it is.
    pub kind: LiveKind,
    /// The address; the handle of physical memory.
    pub address: u64,
    /// The number of bytes.
    pub bytes: usize,
    /// The device.
    pub device: usize,
}

/// Counts of what is alive and what happened since the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverCounts {
    /// Streams that were created and not destroyed.
    pub streams: u64,
    /// Events that were created and not destroyed.
    pub events: u64,
    /// Graphs and executable graphs.
    pub graphs: u64,
    /// Submitted operations that have not completed.
    pub operations: u64,
    /// Races; more than the kept reports if there are very many.
    pub races: u64,
    /// Calls of the host that waited for a stream, an event or a device.
    pub waits: u64,
    /// The virtual time of those waits.
    pub waited: Duration,
    /// Pinned bytes.
    pub pinned: u64,
    /// Modules that were loaded, in contexts that have not ended.
    pub modules: u64,
    /// Queues that the race check keeps clocks of.
    pub queues: u64,
    /// Ranges that the race check keeps accesses of.
    pub ranges: u64,
    /// Pages so far that were flagged for other hardware (GPUDirect RDMA).
    pub rdma_pages: u64,
}
