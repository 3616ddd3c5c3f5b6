//! Traces without addresses, as profilers of 2021 wrote them.
//!
//! A free then names only its size. It is paired with the latest live block of that size: temporaries, which
//! are most of the blocks, are freed in the reverse order of their allocation. Which of several equal blocks
//! is freed makes no difference to the live bytes, only to lifetimes and call sites.

use super::MemoryRow;
use crate::history::EventAction;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Blocks are placed at multiples of this many bytes.
const ALIGNMENT: u64 = 512;

/// The addresses that are assigned to the blocks of a device.
#[derive(Debug, Default)]
struct BlockPairs {
    /// The first address that no block has had.
    next: u64,
    /// Live blocks by size, the latest last.
    live: HashMap<u64, Vec<u64>>,
}

/// Assigns addresses on the devices whose events have none, which are returned. `rows` are in order of time.
pub(super) fn pair(rows: &mut [MemoryRow]) -> BTreeSet<u32> {
    let mut devices: BTreeMap<u32, bool> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.event.action != EventAction::OutOfMemory) {
        *devices.entry(row.device).or_insert(true) &= row.event.address == 0;
    }
    let without: BTreeSet<u32> =
        devices.into_iter().filter(|&(_, is_without)| is_without).map(|(device, _)| device).collect();
    let mut pairs: HashMap<u32, BlockPairs> = HashMap::new();
    for row in rows.iter_mut().filter(|row| without.contains(&row.device)) {
        let pairs = pairs.entry(row.device).or_default();
        let bytes = row.event.bytes;
        row.event.address = match row.event.action {
            EventAction::Allocate => pairs.allocate(bytes),
            EventAction::FreeRequested => pairs.free(bytes),
            _ => continue,
        };
    }
    without
}

impl BlockPairs {
    fn allocate(&mut self, bytes: u64) -> u64 {
        let address = self.new_address(bytes);
        self.live.entry(bytes).or_default().push(address);
        address
    }

    /// Returns the address of the latest block of this size; a new one if it was live before the trace.
    fn free(&mut self, bytes: u64) -> u64 {
        let latest = self.live.get_mut(&bytes).and_then(Vec::pop);
        latest.unwrap_or_else(|| self.new_address(bytes))
    }

    fn new_address(&mut self, bytes: u64) -> u64 {
        let address = self.next.max(ALIGNMENT);
        let end = address.saturating_add(bytes);
        self.next = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        address
    }
}
