//! The caching engine: nearly as fast as a free list, nearly as tight as best fit.
//!
//! ```text
//!  allocate ─► the thread's stack of the class ─► the heap: best fit ─► merge what is cached ─► grow in place
//!                 (no lock, nothing shared)         (one lock)            (own, then others')
//!  free ─────► the thread's stack of the class
//! ```
//!
//! A returned block goes onto a stack of the thread that returned it and is used for the next request of its size
//! class. Merging it with its neighbours is put off. But blocks that wait unmerged are in the way of others that
//! would fit, and what is held grows: so before a block is cut from the heap, the thread merges what it has cached
//! if that is more than a part of what is held, the *slack*. Whenever the heap has to grow although as many bytes
//! are free, the slack is halved. Nothing is ever gained while something cached would do.
//!
//! `docs/caching.md` tells the whole story.

mod builder;
mod classes;
mod front;
mod growth;
mod index;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::builder::CachingBuilder;
use self::classes::{CLASSES, GRANULE, class_for, size_of_class};
use self::front::Front;
use self::growth::Search;
use self::index::ClassIndex;
use crate::backing::{Backing, Global};
use crate::central::heap::{Ask, Heap, Taken};
use crate::central::regions::Gone;
use crate::protocol::{Centre as _, Counter, Entry, Grown, Ledger, StreamUses, thread_slot};
use crate::{AllocationId, Allocator, Error, Found, OutOfMemory, RawBlock, Request, Result, Usage};
use orlop_core::Device;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No class: the block goes to the heap at once.
const UNCACHED: usize = CLASSES;

/// A token has the chunk's number in its lower half, and the class above it.
const CHUNK: usize = u32::MAX as usize;

#[inline(always)]
fn class_in(token: usize) -> usize {
    token >> 32
}

fn with_class(chunk: usize, class: usize) -> usize {
    (class << 32) | (chunk & CHUNK)
}

/// A thread caches at most this part of what is held, or so many bytes if that is more.
const MOST_PART: usize = 2;
const LEAST_MOST: usize = 1 << 20;

/// Pages of free chunks go to the system if there are so many bytes together.
const DISCARD: usize = 16 << 10;

/// The caching engine; see the head of its file.
///
/// ```
/// use orlop_alloc::backing::Mmap;
/// use orlop_alloc::caching::Caching;
/// use orlop_alloc::Request;
///
/// let allocator = Caching::builder(Mmap::new()).build();
/// let block = allocator.allocate(&Request::new(10_000))?;
/// assert!(block.capacity() <= 10_000 + 10_000 / 32 + 64);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Caching<B: Backing = Global> {
    /// Counts, and what each thread has at hand.
    ledger: Ledger<Front>,
    heap: Grown<Heap<ClassIndex>>,
    backing: B,
    limit: usize,
    /// One part in so many of what is held may be cached when a block is cut from the heap. Never less than at
    /// first: see `growth`.
    slack: AtomicUsize,
    name: Box<str>,
}

impl<B: Backing> Caching<B> {
    /// Begins without a limit.
    pub fn builder(backing: B) -> CachingBuilder<B> {
        CachingBuilder::new(backing)
    }

    /// The most bytes that may be held.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl<B: Backing> Caching<B> {
    /// A block from the thread's stack or from the heap as it is.
    fn search(&self, ask: &Ask<'_>, class: usize) -> Option<RawBlock> {
        let request = ask.request;
        let mut held = self.ledger.hold(thread_slot::current());
        let front = held.value();
        // The quick way was not open, or the bytes must be zero.
        let cached = front.take(class);
        let (block, dirty) = if let Some(mut record) = cached {
            record.assign(request);
            (RawBlock::new(record), request.bytes)
        } else {
            let mut heap = self.heap.lock();
            if front.cached().saturating_mul(self.slack.load(Ordering::Relaxed)) > heap.reserved {
                front.drain(|record| heap.put_record(record));
            }
            let Taken { block, dirty } = heap.take(ask)?;
            (block, dirty)
        };
        held.enter(request.kind, block.granted, request.bytes);
        Some(self.deliver(request, block, dirty, class))
    }

    /// Makes a block that nobody else knows yet what was asked for; its first `dirty` bytes may be other than zero.
    fn deliver(&self, request: &Request, mut block: RawBlock, dirty: usize, class: usize) -> RawBlock {
        block.token = with_class(block.token, class);
        if request.zeroed && dirty > 0 {
            // SAFETY: it holds what was asked for, and nobody else knows it yet.
            unsafe { self.backing.zero(block.ptr, dirty.min(request.bytes)) };
        }
        block
    }

    /// With no quick way for a block: makes room for it, or finds out that there is.
    fn make_room(&self, front: &mut Front) {
        let mut heap = self.heap.lock();
        let most = (heap.reserved / MOST_PART).max(LEAST_MOST);
        if front.cached() >= most {
            front.drain(|record| heap.put_record(record));
        }
        front.set_most(most);
    }

    /// Takes wholly free regions out as long as at least `target` bytes stay held.
    fn remove_free(&self, heap: &mut Heap<ClassIndex>, target: usize) -> Vec<Gone> {
        let mut gone = Vec::new();
        for (index, bytes) in heap.free_regions() {
            if bytes == 0 || heap.reserved.saturating_sub(target) >= bytes {
                gone.extend(heap.remove_region(index));
            }
        }
        gone
    }

    /// Gives pages of free chunks back, largest first, until at most `target` bytes are held.
    fn discard(&self, heap: &mut Heap<ClassIndex>, target: usize) {
        let mut chunks = heap.discardable(DISCARD);
        chunks.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
        for (index, ptr, bytes) in chunks {
            if heap.reserved <= target {
                break;
            }
            // SAFETY: a free chunk: nobody uses its bytes, and nobody can take it while we hold the heap's lock.
            let discarded = unsafe { self.backing.discard(ptr, bytes) };
            if discarded > 0 {
                heap.discarded(index, discarded);
            }
        }
    }
}

// SAFETY: 1. blocks are chunks in use, which are disjoint (heap invariants 1 and 2) and begin at multiples of the
// granule or of the request's alignment; a block is with one user, or in one stack. 2. regions are initialised by
// the backing's promise. 3. the quick way has no zeroed requests; `deliver` zeroes what was used before. 4. stacks are
// behind slots, the rest behind mutexes. 5. regions go when the engine is dropped, or when wholly free.
// 6. each way out enters the ledger and each way in leaves it, last of all.
unsafe impl<B: Backing> Allocator for Caching<B> {
    fn take_cached(&self, request: &Request) -> Option<RawBlock> {
        // Kinds that cannot be here never pass: the first block of a kind is notable, and checked.
        if request.align > GRANULE || request.zeroed {
            return None;
        }
        let class = class_for(request.bytes);
        let mut held = self.ledger.try_hold()?;
        let granted = held.value().top(class)?.granted;
        if held.is_notable(request.kind, granted) {
            return None;
        }
        let mut record = held.value().take(class)?;
        let id = held.enter_unnoted(request.kind, granted, request.bytes);
        record.assign_unused(request, id);
        Some(RawBlock::new(record))
    }

    unsafe fn give_cached(&self, block: RawBlock) -> Option<RawBlock> {
        if !block.uses.is_empty() {
            return Some(block);
        }
        let Some(mut held) = self.ledger.try_hold() else { return Some(block) };
        if !held.value().has_room(class_in(block.token)) {
            return Some(block);
        }
        let (kind, granted, requested) = (block.kind, block.granted, block.requested);
        // SAFETY: every block of this engine has a record from its heap.
        held.value().put(unsafe { block.into_record() });
        held.leave_open(kind, granted, requested);
        None
    }

    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.backing.device())?;
        let class = if request.align <= GRANULE { class_for(request.bytes) } else { UNCACHED };
        let rounded =
            if class < CLASSES { size_of_class(class) } else { GRANULE.round_up(request.bytes.max(1))? };
        let ask = Ask { request, rounded };
        if let Some(block) = self.search(&ask, class) {
            return Ok(block);
        }
        let Taken { block, dirty } = self.heap.take_or_grow(&ask, &mut Search::new(self))?;
        self.ledger.hold(thread_slot::current()).enter(request.kind, block.granted, request.bytes);
        Ok(self.deliver(request, block, dirty, class))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate_counted(block) }.map(|_| ())
    }

    unsafe fn deallocate_counted(&self, block: RawBlock) -> Result<Entry> {
        // SAFETY: every block of this engine has a record from its heap.
        let mut record = unsafe { block.into_record() };
        let (kind, granted, requested) = (record.kind, record.granted, record.requested);
        record.uses = StreamUses::new();
        let class = class_in(record.token);
        if class >= CLASSES {
            self.heap.lock().put_record(record);
            return Ok(self.ledger.hold(thread_slot::current()).leave(kind, granted, requested));
        }
        let mut held = self.ledger.hold(thread_slot::current());
        if !held.value().has_room(class) {
            // Inside the slot, because after `leave` the engine may be gone. Nobody who has the heap waits for a slot.
            self.make_room(held.value());
        }
        held.value().put(record);
        Ok(held.leave(kind, granted, requested))
    }

    fn counter(&self) -> Option<&dyn Counter> {
        Some(&self.ledger)
    }

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usage(&self) -> Usage {
        let slots = self.ledger.slots() * size_of::<Front>();
        self.heap.lock().usage(slots)
    }

    fn reset_peak(&self) {
        self.heap.lock().reset_peak();
    }

    fn trim(&self, target: u64) -> u64 {
        let target = usize::try_from(target).unwrap_or(usize::MAX);
        self.heap.while_not_growing(|locked| {
            self.merge_all(locked);
            let mut heap = locked.lock();
            let before = heap.reserved;
            let mut gone = self.remove_free(&mut heap, target);
            let regions: Vec<_> = heap.regions.iter().rev().map(|(index, _)| index).collect();
            for index in regions {
                let excess = heap.reserved.saturating_sub(target);
                gone.extend(heap.shorten(index, self.backing.grain(), excess));
            }
            self.discard(&mut heap, target);
            // Of some regions nothing is left.
            gone.extend(self.remove_free(&mut heap, target));
            for gone in gone {
                // SAFETY: gained from this backing and out of the heap; nobody grows it meanwhile.
                unsafe { gone.release(&self.backing) };
            }
            before.saturating_sub(heap.reserved) as u64
        })
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, _: Option<usize>) -> Result<Found> {
        let address = ptr.as_ptr().addr();
        let block = {
            let heap = self.heap.lock();
            let (index, _) = heap.find(address)?;
            // SAFETY: the caller's promise: the block was given up.
            unsafe { heap.block_of(index) }.ok_or(Error::DoubleFree { address })?
        };
        if block.id == AllocationId::NONE {
            return Err(Error::DoubleFree { address });
        }
        let found =
            Found { requested: block.requested, granted: block.granted, id: block.id, kind: block.kind };
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(block) }?;
        Ok(found)
    }

    fn has_raw_deleter(&self) -> bool {
        true
    }

    fn describe(&self, report: &mut OutOfMemory) {
        growth::describe(&self.heap.lock(), report);
    }

    fn verify(&self) -> Result<()> {
        self.heap.lock().verify()?;
        let mut broken = None;
        self.ledger.visit(|front| {
            if !front.is_consistent() {
                broken = Some(Error::Corrupt { rule: "what is cached adds up", address: 0 });
            }
            let heap = self.heap.lock();
            for (class, record) in front.records() {
                let fits = class_in(record.token) == class && size_of_class(class) <= record.granted;
                if !fits || !heap.holds(record) {
                    let rule = "a cached block is a chunk in use that holds its class";
                    broken = Some(Error::Corrupt { rule, address: record.address() });
                }
            }
        });
        broken.map_or(Ok(()), Err)
    }
}

impl<B: Backing> Drop for Caching<B> {
    fn drop(&mut self) {
        self.heap.while_not_growing(|locked| {
            self.merge_all(locked);
            let mut heap = locked.lock();
            let regions: Vec<_> = heap.regions.iter().map(|(index, _)| index).collect();
            for gone in regions.into_iter().filter_map(|index| heap.remove_region(index)) {
                // SAFETY: gained from this backing and not given back; blocks keep their engine alive, so none
                // lives when it is dropped.
                unsafe { gone.release(&self.backing) };
            }
        });
    }
}
