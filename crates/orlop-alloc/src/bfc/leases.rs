//! Leases: an engine takes free chunks as a whole, places blocks in them itself, and returns them while
//! some of the blocks are live.

use super::bins::FreeIndex;
use super::chunks::Index;
use super::heap::{Heap, HeapRequest};
use crate::{Error, Record, Request, Result};
use std::ops::Range;
use std::ptr::NonNull;

/// A free chunk that may be leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) chunk: Index,
    pub(crate) addresses: Range<usize>,
}

/// Records of leases, or records that no block uses. (Boxes, because records do not move.)
pub(crate) type Records = Vec<Box<Record>>;

/// A block in a lease: address, size, record.
pub(crate) type Placed = (usize, usize, NonNull<Record>);

impl<I: FreeIndex> Heap<I> {
    /// Returns up to `max` of the largest free chunks of the region with the most free memory, in order of
    /// address, and the pointer to the start of that region, which may be offset to any of them.
    pub(crate) fn holes(&self, max: usize) -> Option<(NonNull<u8>, Vec<Hole>)> {
        let free =
            |region: Index| self.bins.iter().filter(move |free| self.chunks[free.chunk].region == region);
        let region = self
            .regions
            .iter()
            .map(|(region, _)| region)
            .max_by_key(|&region| free(region).map(|f| f.size).sum::<usize>())?;
        let mut holes: Vec<_> = free(region).collect();
        holes.sort_unstable_by_key(|free| std::cmp::Reverse(free.size));
        holes.truncate(max);
        holes.sort_unstable_by_key(|free| free.address);
        let holes = holes
            .into_iter()
            .map(|free| Hole { chunk: free.chunk, addresses: free.address..free.address + free.size });
        let map = self.regions.get(region)?;
        Some((map.pointer_to(map.start()), holes.collect()))
    }

    /// Takes the first `bytes` bytes of a free chunk. Returns `None` when the slab is full.
    pub(crate) fn lease(&mut self, chunk: Index, bytes: usize) -> Option<Box<Record>> {
        self.unbin(chunk);
        let request = Request::new(bytes);
        let taken = self.cut(chunk, &HeapRequest { request: &request, rounded: bytes })?;
        // SAFETY: the block was just made from a record of this heap.
        Some(unsafe { taken.block.into_record() })
    }

    /// Ends a lease. Each of the `live` blocks, which are in order of address, becomes a chunk in use; the
    /// rest is free. The heap only compares the records of such blocks.
    pub(crate) fn end_lease(&mut self, lease: Box<Record>, live: &[Placed]) {
        let Ok(mut index) = Index::try_from(super::heap::chunk_index(&lease)) else { return };
        self.chunks[index].record = None;
        self.live -= self.chunks[index].size;
        self.unused.push(lease);
        for &(address, size, record) in live {
            let mut before = None;
            if address > self.chunks[index].address {
                // The slab is never full here: there are no more blocks than there were chunks before the
                // lease.
                let Some(rest) = self.split(index, address - self.chunks[index].address) else { return };
                before = Some(std::mem::replace(&mut index, rest));
            }
            let rest = if self.chunks[index].size > size { self.split(index, size) } else { None };
            self.live += self.chunks[index].size;
            let chunk = &mut self.chunks[index];
            (chunk.record, chunk.requested) = (Some(record), size);
            // Only now: before, it would merge with the chunk behind it.
            if let Some(before) = before {
                self.free(before);
            }
            let Some(rest) = rest else { return };
            index = rest;
        }
        self.free(index);
    }

    fn free(&mut self, index: Index) {
        let merged = self.coalesce(index, false);
        self.bin(merged);
    }

    /// Takes an unused record out of the heap.
    pub(crate) fn spare_record(&mut self) -> Box<Record> {
        if let Some(record) = self.unused.pop() {
            self.records -= 1;
            return record;
        }
        Box::new(Record::new(NonNull::dangling(), 0, self.device, self.access))
    }

    /// Adds a record to the heap: an unused one, or (`None`) that of a block that is live since
    /// [`Heap::end_lease`].
    pub(crate) fn adopt(&mut self, record: Option<Box<Record>>) {
        self.records += 1;
        self.unused.extend(record);
    }

    /// [`Heap::put_record`] for a block that was live when a lease ended: its record does not name its chunk.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if there is no such block.
    pub(crate) fn put_placed(&mut self, record: Box<Record>) -> Result<()> {
        let address = record.address();
        let is_this = |known: NonNull<Record>| std::ptr::eq(known.as_ptr(), &raw const *record);
        match self.chunk_at(address).filter(|&index| self.chunks[index].record.is_some_and(is_this)) {
            Some(index) => {
                self.put(index, record, 0);
                Ok(())
            }
            None => {
                let _ = Box::into_raw(record);
                Err(Error::Corrupt { rule: "a live block of an ended plan is a chunk in use", address })
            }
        }
    }
}
