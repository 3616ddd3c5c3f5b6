//! [`SimDevice`]: a device with its primary context, and the handles of primary contexts.

use crate::codes::Failure;
use orlop_race::VectorClock;
use std::collections::BTreeSet;

/// The handle of device 0's primary context; the next device's is `STEP` further.
const FIRST: u64 = 0xC0DE_0000_0000;
const STEP: u64 = 0x1000;

/// Returns the handle of a device's primary context.
pub(crate) fn primary(device: usize) -> u64 {
    FIRST + STEP * device as u64
}

/// Returns the device whose primary context has this handle, if there is such a device.
pub(crate) fn device_of_primary(context: u64) -> Option<usize> {
    let offset = context.checked_sub(FIRST).filter(|offset| offset.is_multiple_of(STEP))?;
    usize::try_from(offset / STEP).ok()
}

/// A device with its primary context.
#[derive(Debug, Clone)]
pub(crate) struct SimDevice {
    pub(crate) total: u64,
    pub(crate) used: u64,
    /// How often the primary context is retained.
    pub(crate) retained: u64,
    /// The id of the primary context, which is another one each time that it is created.
    pub(crate) context_id: u64,
    pub(crate) context_flags: u32,
    /// The error that every call on the context returns.
    pub(crate) sticky: Option<Failure>,
    pub(crate) legacy: u64,
    pub(crate) default_pool: u64,
    pub(crate) current_pool: u64,
    pub(crate) peers: BTreeSet<usize>,
    /// The ends of destroyed streams: of all, and of those that the legacy default stream waits for.
    pub(crate) departed: VectorClock,
    pub(crate) departed_blocking: VectorClock,
}

impl SimDevice {
    /// Creates a device of `total` bytes with the handles of its legacy stream and its default pool.
    pub(crate) fn new(total: u64, legacy: u64, default_pool: u64) -> Self {
        Self {
            total,
            used: 0,
            retained: 0,
            context_id: 0,
            context_flags: 0,
            sticky: None,
            legacy,
            default_pool,
            current_pool: default_pool,
            peers: BTreeSet::new(),
            departed: VectorClock::default(),
            departed_blocking: VectorClock::default(),
        }
    }
}
