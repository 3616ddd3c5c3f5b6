//! An adaptor that records sizes, ids, a high-water mark and the list of live blocks, for any allocator.
//!
//! A map by address stands beside the upstream, as in TensorFlow's `TrackingAllocator`. It has four uses:
//! introspection where the engine has none; a raw deleter, because an entry leads to the block's record; the
//! refusal of double and foreign frees *before* they reach the upstream; and the leak check, which names the
//! live blocks.
//!
//! # Order
//!
//! An entry is inserted after the upstream has granted a block, and removed before the block is returned to
//! it. While an entry is in the map its address is therefore live, and the upstream cannot hand it out again:
//! no two threads write the entry of one address at the same time.

use super::name_over;
use crate::{
    AllocationId, Allocator, Error, LookupResult, OutOfMemory, RawBlock, Record, Request, Result, Tag,
    TagUse, Usage, forward,
};
use dashmap::{DashMap, Entry as Place};
use orlop_core::MemoryKind;
use orlop_host::shield::report;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Its address.
    pub address: usize,
    /// Requested bytes.
    pub requested: usize,
    /// Granted bytes.
    pub granted: usize,
    /// Its allocation id. The ids of one thread increase.
    pub id: AllocationId,
    /// Its memory kind.
    pub kind: MemoryKind,
    /// Its tag.
    pub tag: Tag,
}

/// The entry of a live block.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The upstream's record, from which a block is rebuilt. Not read while the block has its owner.
    record: NonNull<Record>,
    granted: usize,
    requested: usize,
    /// The id that users see.
    id: AllocationId,
    /// The id that the upstream gave: the same, unless the upstream gives none.
    upstream_id: AllocationId,
    tag: Tag,
    kind: MemoryKind,
}

// SAFETY: an entry is a claim on a block, as `RawBlock` is; nothing about it is tied to a thread.
unsafe impl Send for Entry {}
// SAFETY: through a shared entry only plain fields can be read; the record is reached by the code that took
// the entry out of the map.
unsafe impl Sync for Entry {}

impl Entry {
    fn found(&self) -> LookupResult {
        LookupResult { requested: self.requested, granted: self.granted, id: self.id, kind: self.kind }
    }
}

/// The addresses returned last, which tell a double free from a foreign pointer.
///
/// A fixed table in which later addresses overwrite earlier ones. Both cases are refused; only the kind of
/// error depends on the table, so relaxed loads and a small table suffice.
#[derive(Debug)]
struct Returned {
    slots: Box<[AtomicUsize]>,
}

impl Returned {
    const SLOTS: usize = 1 << 12;

    fn new() -> Self {
        Self { slots: (0..Self::SLOTS).map(|_| AtomicUsize::new(0)).collect() }
    }

    fn slot(&self, address: usize) -> Option<&AtomicUsize> {
        // Block addresses are multiples of at least 16, often of 64: fold the higher bits in.
        self.slots.get(((address >> 4) ^ (address >> 16)) % Self::SLOTS)
    }

    fn note(&self, address: usize) {
        if let Some(slot) = self.slot(address) {
            slot.store(address, Ordering::Relaxed);
        }
    }

    fn knows(&self, address: usize) -> bool {
        self.slot(address).is_some_and(|slot| slot.load(Ordering::Relaxed) == address)
    }
}

/// An adaptor that records every live block by its address.
///
/// ```
/// use orlop_alloc::adaptor::Tracking;
/// use orlop_alloc::{Allocator, backing::System, engine::Direct, Request, Tag};
///
/// let allocator = Tracking::new(Direct::new(System::new())).into_ref();
/// let block = allocator.allocate(&Request::new(100).tag(Tag::new("embedding")))?;
/// for live in allocator.live() {
///     println!("{} bytes for {} are still alive", live.requested, live.tag);
/// }
/// drop(block);
/// assert!(allocator.live().is_empty());
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Tracking<A> {
    inner: A,
    name: Box<str>,
    entries: DashMap<usize, Entry>,
    returned: Returned,
    live: AtomicU64,
    peak: AtomicU64,
}

impl<A: Allocator> Tracking<A> {
    /// Creates an adaptor that records the blocks that `inner` hands out from now on.
    #[must_use]
    pub fn new(inner: A) -> Self {
        Self {
            name: name_over("tracking", &inner),
            inner,
            entries: DashMap::new(),
            returned: Returned::new(),
            live: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        }
    }

    /// Returns the granted bytes of live blocks.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Returns the peak of the granted bytes of live blocks since the last
    /// [`AllocatorRef::reset_peaks`](crate::AllocatorRef::reset_peaks).
    #[must_use]
    pub fn high_water_mark(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns all live blocks, ordered by id. Exact while no thread allocates or frees.
    #[must_use]
    pub fn live(&self) -> Vec<Live> {
        let mut live: Vec<Live> = self
            .entries
            .iter()
            .map(|entry| Live {
                address: *entry.key(),
                requested: entry.requested,
                granted: entry.granted,
                id: entry.id,
                kind: entry.kind,
                tag: entry.tag,
            })
            .collect();
        live.sort_unstable_by_key(|block| block.id);
        live
    }

    /// Returns the upstream.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    fn count_in(&self, granted: usize) {
        // Relaxed: a statistic. `fetch_max` is right in any order of threads.
        let live = self.live.fetch_add(granted as u64, Ordering::Relaxed) + granted as u64;
        if live > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(live, Ordering::Relaxed);
        }
    }

    fn count_out(&self, granted: usize) {
        self.live.fetch_sub(granted as u64, Ordering::Relaxed);
    }

    /// Removes the entry at `address` if it has this id, or any id for `None`.
    fn take(&self, address: usize, block: Option<&RawBlock>) -> Result<Entry> {
        let same = |_: &usize, entry: &Entry| block.is_none_or(|block| entry.id == block.id);
        match self.entries.remove_if(&address, same) {
            Some((_, entry)) => {
                self.returned.note(address);
                Ok(entry)
            }
            // Another id: the block was returned and its memory handed out again.
            None if self.entries.contains_key(&address) || self.returned.knows(address) => {
                Err(Error::DoubleFree { address })
            }
            None => Err(Error::ForeignPointer { address }),
        }
    }

    /// Returns the block of a removed entry to the upstream.
    ///
    /// # Safety
    ///
    /// `block` is the upstream's, and the obligations of [`Allocator::deallocate`] hold for it.
    unsafe fn give_back(&self, mut block: RawBlock, entry: Entry) -> Result<()> {
        let address = block.address();
        // SAFETY: as upstream handed it out.
        unsafe { block.record_mut() }.id = entry.upstream_id;
        // SAFETY: guaranteed by the caller.
        let result = unsafe { self.inner.deallocate(block) };
        match result {
            Ok(()) => self.count_out(entry.granted),
            Err(_) => self.put_back(address, entry),
        }
        result
    }

    /// Inserts the entry of a block again, if the upstream refused its return. If the address has been handed
    /// out again in between, the newer entry stays.
    #[cold]
    fn put_back(&self, address: usize, entry: Entry) {
        if let Place::Vacant(vacant) = self.entries.entry(address) {
            vacant.insert(entry);
        } else {
            self.count_out(entry.granted);
        }
    }
}

// SAFETY: blocks are the upstream's and return to it with the id it gave, as blocks or rebuilt from the
// pointer to their record.
unsafe impl<A: Allocator> Allocator for Tracking<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let mut block = self.inner.allocate(request)?;
        let upstream_id = block.id;
        if upstream_id == AllocationId::NONE {
            // SAFETY: only the id is changed, and `give_back` restores it.
            unsafe { block.record_mut() }.id = AllocationId::next();
        }
        let address = block.address();
        self.count_in(block.granted);
        let entry = Entry {
            record: block.record(),
            granted: block.granted,
            requested: block.requested,
            id: block.id,
            upstream_id,
            tag: block.tag,
            kind: block.kind,
        };
        if let Some(stale) = self.entries.insert(address, entry) {
            // The block was returned to the upstream through another handle, not through this adaptor.
            self.count_out(stale.granted);
            report(|| {
                tracing::error!(
                    allocator = &*self.name,
                    address,
                    "a tracked block was freed past its tracker"
                );
            });
        }
        Ok(block)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let entry = self.take(block.address(), Some(&block))?;
        // SAFETY: guaranteed by the caller, and the entry proves that it is a live block of upstream's.
        unsafe { self.give_back(block, entry) }
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let (address, id, granted) = (block.address(), block.id, block.granted);
        let entry = self.entries.get(&address).map(|entry| *entry);
        let Some(entry) = entry.filter(|entry| entry.id == id) else { return false };
        // SAFETY: as upstream handed it out.
        unsafe { block.record_mut() }.id = entry.upstream_id;
        // SAFETY: guaranteed by the caller; the entry proves that it is a live block of upstream's.
        let grown = unsafe { self.inner.grow_in_place(block, bytes) };
        // SAFETY: the name that users know.
        unsafe { block.record_mut() }.id = id;
        if grown {
            self.count_in(block.granted.saturating_sub(granted));
            if let Some(mut entry) = self.entries.get_mut(&address) {
                (entry.granted, entry.requested) = (block.granted, block.requested);
            }
        }
        grown
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, _: Option<usize>) -> Result<LookupResult> {
        let entry = self.take(ptr.as_ptr().addr(), None)?;
        // SAFETY: the record of a live block of upstream's, which its user gave up (guaranteed by the
        // caller). The entry is out of the map, so it is rebuilt once.
        let block = unsafe { RawBlock::from_record(entry.record) };
        // SAFETY: as above.
        unsafe { self.give_back(block, entry) }?;
        Ok(entry.found())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usage(&self) -> Usage {
        let usage = self.inner.usage();
        let entries = self.entries.len() * size_of::<(usize, Entry)>();
        let table = Returned::SLOTS * size_of::<AtomicUsize>();
        Usage { metadata: usage.metadata + (entries + table) as u64, ..usage }
    }

    fn reset_peak(&self) {
        self.peak.store(self.live_bytes(), Ordering::Relaxed);
        self.inner.reset_peak();
    }

    fn find(&self, address: usize) -> Option<LookupResult> {
        self.entries.get(&address).map(|entry| entry.found())
    }

    fn has_tracked_sizes(&self) -> bool {
        true
    }

    fn has_raw_deleter(&self) -> bool {
        true
    }

    fn describe(&self, report: &mut OutOfMemory) {
        self.inner.describe(report);
        if report.by_tag.is_empty() {
            report.set_tags(self.tag_uses());
        }
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        let mut uses: HashMap<(MemoryKind, Tag), u64> = HashMap::new();
        for entry in &self.entries {
            *uses.entry((entry.kind, entry.tag)).or_default() += entry.granted as u64;
        }
        uses.into_iter().map(|((kind, tag), bytes)| TagUse { kind, tag, bytes }).collect()
    }

    forward!(
        inner; except allocated_size_slow, deallocate, deallocate_raw, describe, find, grow_in_place,
        has_raw_deleter, name, reset_peak, tag_uses, has_tracked_sizes, usage
    );
}

#[cfg(all(test, not(loom)))]
#[path = "tracking_tests.rs"]
mod tests;
