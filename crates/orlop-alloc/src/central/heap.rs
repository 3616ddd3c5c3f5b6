//! The central structure: regions cut into chunks, free chunks in bins. Single-threaded and without a
//! backing: it decides, the engine around it locks and gets memory.
//!
//! # Invariants
//!
//! 1. The chunks of a region, linked by `previous` and `next`, cover it without gap or overlap, in order of
//!    address; the region's map names each by its start.
//! 2. Every free chunk is in the index exactly once; no chunk in use is.
//! 3. No two neighbours are both free, unless one waits for its stamp to become safe.
//! 4. `live` is the sum of the sizes in use, `reserved` the sum of the regions.
//!
//! [`Heap::verify`] proves them by walking everything.

use super::bins::{Bins, Free, FreeIndex};
use super::chunks::{Chunk, Index, Mapped, NONE, Regions, Slab};
use super::policy::Policy;
use super::regions::Gain;
use super::stamps::Stamps;
use super::watch::Watched;
use crate::{Access, Error, LookupResult, RawBlock, Record, Request, Result};
use orlop_core::{Alignment, Device};
use orlop_sync::CentralHeap;
use std::ptr::NonNull;

/// A request as the heap sees it.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) request: &'a Request,
    /// The bytes to find, a multiple of the granule.
    pub(crate) rounded: usize,
}

impl<'a> Ask<'a> {
    /// Rounds the request up to the policy's granule.
    #[inline]
    pub(crate) fn new(request: &'a Request, granule: Alignment) -> Result<Self> {
        Ok(Self { rounded: granule.round_up(request.bytes.max(1))?, request })
    }
}

/// A chunk that was handed out.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) block: RawBlock,
    /// The first so many bytes may be other than zero.
    pub(crate) dirty: usize,
}

/// Aligned searches look at so many chunks that might fit before they take one that surely does.
const ALIGNED_TRIES: usize = 16;

#[derive(Debug)]
pub(crate) struct Heap<I = Bins> {
    pub(crate) policy: Policy,
    pub(crate) regions: Regions,
    pub(crate) chunks: Slab,
    pub(crate) bins: I,
    pub(crate) stamps: Stamps,
    /// Records of no block, for the next ones.
    #[expect(clippy::vec_box, reason = "records must not move while a block points to them")]
    pub(super) unused: Vec<Box<Record>>,
    /// How many records there are, of blocks or of none.
    pub(crate) records: usize,
    pub(super) device: Device,
    pub(super) access: Access,
    pub(crate) live: usize,
    pub(crate) reserved: usize,
    pub(crate) peak_reserved: usize,
    pub(crate) watched: Watched,
    /// The least that was free since [`Heap::unneeded`] was asked.
    least_free: usize,
}

impl<I: FreeIndex> CentralHeap for Heap<I> {
    type Request<'a> = Ask<'a>;
    type Chunk = Taken;
    type Region = Gain;

    #[inline]
    fn take(&mut self, ask: &Ask<'_>) -> Option<Taken> {
        if self.stamps.is_due() {
            // Chunks whose stamps have become safe are merged before anybody looks.
            self.merge_stamped(0);
        }
        if ask.request.freed_before == 0 && ask.request.align <= self.policy.granule {
            // Every chunk begins at a multiple of the granule: the best fit is the first that is large enough.
            let free = self.bins.take(ask.rounded)?;
            self.chunks[free.chunk].binned = false;
            return self.cut(free.chunk, ask);
        }
        let (free, start) = self.search(ask)?;
        self.unbin(free.chunk);
        let mut index = free.chunk;
        if start > free.address {
            // An aligned block in the middle: what is before it stays free.
            self.recommit(index);
            let rest = self.split(index, start - free.address);
            self.bin(index);
            self.queue_stamp(index);
            index = rest?;
        }
        self.cut(index, ask)
    }

    fn add(&mut self, gain: Gain) {
        match gain {
            Gain::Nothing => {}
            Gain::Region(mapped) => self.add_region(mapped),
            Gain::Longer { region, bytes } => self.lengthen(region, bytes),
        }
    }
}

impl<I: FreeIndex> Heap<I> {
    pub(crate) fn new(policy: Policy, device: Device, access: Access) -> Self {
        let bins = I::new(policy.granule);
        Self {
            policy,
            bins,
            regions: Regions::default(),
            chunks: Slab::default(),
            stamps: Stamps::default(),
            unused: Vec::new(),
            records: 0,
            device,
            access,
            live: 0,
            reserved: 0,
            peak_reserved: 0,
            watched: Watched::default(),
            least_free: 0,
        }
    }

    /// The best fitting free chunk for a request with a stamp or an alignment beyond the granule, and where in
    /// it the block would begin.
    fn search(&self, ask: &Ask<'_>) -> Option<(Free, usize)> {
        let usable = |free: &Free| {
            ask.request.freed_before == 0 || self.chunks[free.chunk].freed_at <= ask.request.freed_before
        };
        if ask.request.align <= self.policy.granule {
            return self.bins.at_least(ask.rounded).find(usable).map(|free| (free, free.address));
        }
        let fits = |free: Free| {
            let start = ask.request.align.round_up(free.address).ok()?;
            let end = start.checked_add(ask.rounded)?;
            (end <= free.address + free.size && usable(&free)).then_some((free, start))
        };
        let slack = ask.request.align.bytes() - self.policy.granule.bytes();
        let surely = || self.bins.at_least(ask.rounded.checked_add(slack)?).find_map(fits);
        // Growing costs more than looking at every chunk, and a region that was gained for this very request
        // may be none that surely fits.
        let last = || self.bins.at_least(ask.rounded).skip(ALIGNED_TRIES).find_map(fits);
        self.bins.at_least(ask.rounded).take(ALIGNED_TRIES).find_map(fits).or_else(surely).or_else(last)
    }

    /// Cuts a free chunk that is not in the index to size, and makes it a block.
    #[inline]
    pub(super) fn cut(&mut self, index: Index, ask: &Ask<'_>) -> Option<Taken> {
        self.recommit(index);
        if self.policy.splits(self.chunks[index].size, ask.rounded)
            && let Some(rest) = self.split(index, ask.rounded)
        {
            self.bin(rest);
            self.queue_stamp(rest);
        }
        let Chunk { address, size, region, .. } = self.chunks[index];
        self.live += size;
        self.least_free = self.least_free.min(self.reserved - self.live);
        let (ptr, dirty) = self.hand_out(region, address, size);
        let mut record = self.unused.pop().unwrap_or_else(|| {
            self.records += 1;
            Box::new(Record::new(ptr, size, self.device, self.access))
        });
        (record.ptr, record.granted, record.token) = (ptr, size, index as usize);
        record.assign(ask.request);
        let chunk = &mut self.chunks[index];
        (chunk.requested, chunk.id, chunk.tag, chunk.kind) =
            (record.requested, record.id, record.tag, record.kind);
        let block = RawBlock::new(record);
        chunk.record = Some(block.record());
        Some(Taken { block, dirty })
    }

    /// Makes a chunk in use larger by free memory behind it, so that it has `rounded` bytes; its size then.
    pub(crate) fn extend(&mut self, index: Index, rounded: usize, requested: usize) -> Option<usize> {
        let Chunk { size, next, .. } = self.chunks[index];
        if size < rounded {
            let behind = self.chunks.get(next as usize).filter(|_| next != NONE)?;
            if behind.in_use() || behind.freed_at > 0 || size.checked_add(behind.size)? < rounded {
                return None;
            }
            self.unbin(next);
            self.recommit(next);
            // When it was freed before it was handed out says nothing of what is behind it.
            self.chunks[index].freed_at = 0;
            self.merge(index, next);
            if self.chunks[index].size > rounded
                && let Some(rest) = self.split(index, rounded)
            {
                self.bin(rest);
            }
        }
        let chunk = &mut self.chunks[index];
        chunk.requested = requested;
        let Chunk { address, size: now, region, .. } = *chunk;
        self.live += now - size;
        self.least_free = self.least_free.min(self.reserved - self.live);
        self.hand_out(region, address + size, now - size);
        Some(now)
    }

    /// The pointer to `address`, and how many of the bytes from there on were handed out before.
    #[inline]
    fn hand_out(&mut self, region: Index, address: usize, size: usize) -> (NonNull<u8>, usize) {
        let Some(mapped) = self.regions.get_mut(region) else {
            // Chunks go with their region (`remove_region`), so this chunk's region is there.
            unreachable!("chunk without a region")
        };
        let dirty =
            if mapped.region.zeroed { mapped.clean_from.saturating_sub(address).min(size) } else { size };
        mapped.clean_from = mapped.clean_from.max(address + size);
        (mapped.pointer_to(address), dirty)
    }

    /// Checks that a returned block is one of ours and in use.
    #[inline]
    pub(crate) fn check(&self, block: &RawBlock) -> Result<Index> {
        let index = block.token;
        match self.chunks.get(index) {
            Some(chunk) if chunk.record == Some(block.record()) => {
                // The slab never holds more places than an `Index` can name.
                Ok(Index::try_from(index).unwrap_or(NONE))
            }
            _ => Err(self.misuse(block.address())),
        }
    }

    /// What is wrong with `address`, which is not a live block's.
    #[cold]
    fn misuse(&self, address: usize) -> Error {
        match self.regions.containing(address) {
            Some(mapped) if mapped.clean_from > address => Error::DoubleFree { address },
            _ => Error::ForeignPointer { address },
        }
    }

    /// The chunk that begins at `address`.
    pub(super) fn chunk_at(&self, address: usize) -> Option<Index> {
        self.regions.containing(address)?.chunk_at(address, &self.chunks)
    }

    /// The live chunk that begins at `address`.
    pub(crate) fn find(&self, address: usize) -> Result<(Index, LookupResult)> {
        match self.chunk_at(address).map(|index| (index, &self.chunks[index])) {
            Some((index, chunk)) if chunk.in_use() => Ok((
                index,
                LookupResult {
                    requested: chunk.requested,
                    granted: chunk.size,
                    id: chunk.id,
                    kind: chunk.kind,
                },
            )),
            _ => Err(self.misuse(address)),
        }
    }

    /// The block of a chunk in use, for returning it by address.
    ///
    /// # Safety
    ///
    /// Nobody holds the block any more.
    pub(crate) unsafe fn block_of(&self, index: Index) -> Option<RawBlock> {
        // SAFETY: it was given up (the caller's promise) and not returned: the chunk is in use.
        self.chunks[index].record.map(|record| unsafe { RawBlock::from_record(record) })
    }

    /// Puts the chunk of a record that the engine has to itself back, merged with its free neighbours.
    #[inline]
    pub(crate) fn put_record(&mut self, record: Box<Record>) {
        // The slab never holds more places than an `Index` can name.
        let index = Index::try_from(place(&record)).unwrap_or(NONE);
        debug_assert!(self.holds(&record));
        self.put(index, record, 0);
    }

    /// Whether the chunk that the record names is in use and is this record's.
    pub(crate) fn holds(&self, record: &Record) -> bool {
        let chunk = self.chunks.get(place(record));
        chunk.is_some_and(|chunk| chunk.record.is_some_and(|known| std::ptr::eq(known.as_ptr(), record)))
    }

    /// Puts a chunk in use back, merged with its free neighbours; with a stamp it waits instead.
    #[inline]
    pub(crate) fn put(&mut self, index: Index, record: Box<Record>, freed_at: u64) {
        self.unused.push(record);
        let chunk = &mut self.chunks[index];
        chunk.record = None;
        chunk.freed_at = freed_at;
        self.live -= chunk.size;
        if freed_at > 0 {
            self.bin(index);
            self.queue_stamp(index);
        } else {
            let merged = self.coalesce(index, false);
            self.bin(merged);
        }
    }

    /// How many bytes were free all the time since the last call.
    pub(crate) fn unneeded(&mut self) -> usize {
        std::mem::replace(&mut self.least_free, self.reserved - self.live)
    }

    /// Gives the memory of records back that nobody uses.
    pub(crate) fn release_records(&mut self) {
        self.records -= self.unused.len();
        self.unused = Vec::new();
        self.chunks.shrink();
        self.bins.shrink(self.chunks.places());
    }

    /// The chunks of a region in order of address.
    pub(crate) fn walk<'a>(&'a self, mapped: &Mapped) -> impl Iterator<Item = (Index, &'a Chunk)> + 'a {
        let mut next = mapped.first().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let chunk = self.chunks.get(next as usize).filter(|_| next != NONE)?;
            let index = std::mem::replace(&mut next, chunk.next);
            Some((index, chunk))
        })
    }

    /// All chunks.
    pub(crate) fn walk_all(&self) -> impl Iterator<Item = &Chunk> + '_ {
        self.regions.iter().flat_map(|(_, mapped)| self.walk(mapped)).map(|(_, chunk)| chunk)
    }

    /// Cuts a chunk that is not in the index after `size` bytes; the new chunk behind it has its stamp.
    /// `None`, and nothing is cut, when the slab is full.
    #[inline]
    pub(super) fn split(&mut self, index: Index, size: usize) -> Option<Index> {
        let Chunk { address, size: whole, next, freed_at, region, .. } = self.chunks[index];
        let start = address + size;
        let rest = Chunk { previous: index, next, freed_at, ..Chunk::free(start, whole - size, region) };
        let new = self.chunks.insert(rest)?;
        if next != NONE {
            self.chunks[next].previous = new;
        }
        if let Some(mapped) = self.regions.get_mut(region) {
            mapped.begins(start, new, Some(address));
            if next == NONE {
                mapped.last = new;
            }
        }
        let chunk = &mut self.chunks[index];
        chunk.size = size;
        chunk.next = new;
        Some(new)
    }

    /// Merges a free chunk that is not in the index with its free neighbours. Stamped chunks stay apart
    /// unless `ignore_stamps`.
    pub(crate) fn coalesce(&mut self, index: Index, ignore_stamps: bool) -> Index {
        let chunk = &self.chunks[index];
        if chunk.freed_at > 0 && !ignore_stamps {
            return index;
        }
        let (previous, next) = (chunk.previous, chunk.next);
        let mergeable = |heap: &Self, neighbour: Index| {
            neighbour != NONE && {
                let neighbour = &heap.chunks[neighbour];
                !neighbour.in_use() && (neighbour.freed_at == 0 || ignore_stamps)
            }
        };
        if mergeable(self, next) {
            self.unbin(next);
            self.merge(index, next);
        }
        if mergeable(self, previous) {
            self.unbin(previous);
            self.merge(previous, index);
            return previous;
        }
        index
    }

    /// Makes two neighbours one, with the later stamp.
    fn merge(&mut self, first: Index, second: Index) {
        let Chunk { address, size, next, freed_at, region, discarded, .. } = self.chunks[second];
        let kept = &mut self.chunks[first];
        kept.size += size;
        kept.next = next;
        kept.freed_at = kept.freed_at.max(freed_at);
        kept.discarded += discarded;
        let after = (next != NONE).then(|| {
            self.chunks[next].previous = first;
            (self.chunks[next].address, next)
        });
        if let Some(mapped) = self.regions.get_mut(region) {
            mapped.ends(address, second, after);
            if after.is_none() {
                mapped.last = first;
            }
        }
        self.chunks.remove(second);
    }

    #[inline]
    pub(crate) fn bin(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        debug_assert!(!chunk.binned && !chunk.in_use());
        chunk.binned = true;
        let free = Free { size: chunk.size, address: chunk.address, chunk: index };
        self.bins.insert(free);
    }

    #[inline]
    pub(crate) fn unbin(&mut self, index: Index) {
        let chunk = &mut self.chunks[index];
        chunk.binned = false;
        let free = Free { size: chunk.size, address: chunk.address, chunk: index };
        let removed = self.bins.remove(free);
        debug_assert!(removed);
    }
}

/// The chunk that a record names: in the lower half of its token, whatever an engine before the heap keeps above.
#[inline]
pub(super) fn place(record: &Record) -> usize {
    record.token & Index::MAX as usize
}

// SAFETY: the heap owns its unused records; the addresses of those of live blocks it only compares.
unsafe impl<I: Send> Send for Heap<I> {}
