//! Finds writes to memory that is not the writer's: behind a block, or after it was returned.
//!
//! | protection | finds | when | costs |
//! |---|---|---|---|
//! | canaries | writes behind the block | when it comes back | 16 bytes and more behind each block |
//! | poison | reads after the return, by their values (`0xDD`) | at once, by whoever looks | writing each block once more |
//! | quarantine, with poison | writes after the return | when the block leaves the quarantine, at [`Allocator::verify`] | its bytes |
//! | guard pages | reads and writes behind the block, and any after the return | at once: the program is stopped | pages and system calls, for one block in so many |
//!
//! What was found is an [`Error::Overwritten`], told as a refused free is: counted, traced, and told to an observer. The
//! block then stays where it is. Only memory that the processor reaches is looked after; other blocks pass.
//!
//! Returning something twice needs no adaptor: a [`Block`](crate::Block) can be dropped once, and bare addresses are
//! looked up by every engine that frees them. Bare addresses cannot be freed here: what is behind them is not known.

use super::hardening::{HardenedBuilder, Hardening};
use super::name_over;
use crate::backing::{Backing, HugePages, Mmap, Reservation};
use crate::shield::report;
use crate::{Access, Allocator, Error, RawBlock, Record, Request, Result, Semantics, Usage};
use orlop_core::Device;
use orlop_sync::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// What bytes of returned blocks are.
pub const POISON: u8 = 0xDD;

/// What bytes behind a block are, after the canary.
const FILLER: u8 = 0xA5;

/// So many bytes more are asked for: a canary and, hidden, how many bytes the block has in truth.
const CANARY: usize = 16;

/// So many bytes behind the canary are filled and looked at.
const FILLED: usize = 240;

/// Looks after the blocks of another allocator; see the head of its file.
///
/// No block grows in place, also where upstream's would: one that becomes larger moves, and what uses its old place is found.
///
/// ```
/// use orlop_alloc::adaptor::Hardened;
/// use orlop_alloc::{backing::System, engine::Direct, AllocatorRef, Request};
///
/// let engine = Hardened::builder(Direct::engine(System::new())).quarantine(1 << 20).build();
/// let allocator = AllocatorRef::new(engine);
/// let block = allocator.allocate(&Request::new(100))?;
/// let behind = block.as_ptr().as_ptr().wrapping_add(100);
/// // SAFETY: it is not: this is the mistake to be found.
/// unsafe { *behind = !*behind };
/// drop(block);
/// assert_eq!(allocator.found(), 1);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Hardened<A: Allocator> {
    // Dropped last, after the quarantine was emptied into it.
    inner: A,
    name: Box<str>,
    secret: u64,
    hardening: Hardening,
    quarantine: Mutex<Quarantine>,
    calls: AtomicU64,
    guarded: Mutex<Guards>,
    pages: Mmap,
    found: AtomicU64,
}

/// The last returned blocks.
#[derive(Debug, Default)]
struct Quarantine {
    blocks: VecDeque<Returned>,
    bytes: usize,
}

#[derive(Debug)]
struct Returned {
    block: RawBlock,
    /// So many bytes are poison.
    poisoned: usize,
}

/// Blocks with a guard page, by address, and the bytes of their other pages.
#[derive(Debug, Default)]
struct Guards {
    by_address: HashMap<usize, Guarded>,
    bytes: usize,
    peak: usize,
}

/// The pages of one block.
#[derive(Debug)]
struct Guarded {
    line: Reservation,
    gained: usize,
}

impl<A: Allocator> Hardened<A> {
    /// Begins with canaries and poison.
    pub fn builder(inner: A) -> HardenedBuilder<A> {
        HardenedBuilder::new(inner)
    }

    /// With these settings.
    pub fn new(inner: A, hardening: Hardening) -> Self {
        Self {
            name: name_over("hardened", &inner),
            // Another one in each process: what is written by mistake does not look like it.
            secret: RandomState::new().hash_one(0u64),
            hardening,
            quarantine: Mutex::default(),
            calls: AtomicU64::new(0),
            guarded: Mutex::default(),
            pages: Mmap::new().huge_pages(HugePages::Never),
            found: AtomicU64::new(0),
            inner,
        }
    }

    /// How many blocks were found overwritten.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// What is looked after.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// The two words of a canary: how many bytes the block at `address` has in truth, hidden, and a sum of that.
    fn canary(&self, address: usize, granted: usize) -> [u64; 2] {
        let hidden = self.hide(address) ^ granted as u64;
        [hidden, hidden.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.secret]
    }

    fn hide(&self, address: usize) -> u64 {
        self.secret ^ (address as u64).rotate_left(17)
    }

    /// Takes the bytes behind what was asked for away from the block, and writes the canary there.
    fn protect(&self, block: &mut RawBlock) {
        // SAFETY: what is taken away here is given back by `check`, before the block goes upstream. It is a part.
        unsafe { block.record_mut() }.requested -= CANARY;
        if block.access != Access::Host {
            return;
        }
        let (requested, granted) = (block.requested, block.granted);
        let [hidden, sum] = self.canary(block.address(), granted);
        let filled = (granted - requested).min(CANARY + FILLED);
        // SAFETY: granted, not given on, and nobody else knows the block.
        let behind = unsafe { bytes_behind(block, requested, filled) };
        behind.fill(FILLER);
        behind[..8].copy_from_slice(&sum.to_ne_bytes());
        behind[8..CANARY].copy_from_slice(&hidden.to_ne_bytes());
        // SAFETY: as above.
        unsafe { block.record_mut() }.granted = requested;
    }

    /// Looks at what [`Hardened::protect`] wrote, and gives the bytes back to the block.
    fn check(&self, block: &mut RawBlock) -> Result<()> {
        if block.access == Access::Host {
            let requested = block.requested;
            let address = block.address();
            // SAFETY: `protect` wrote there, behind what the block's user may touch.
            let found = unsafe { bytes_behind(block, requested, CANARY) };
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| found[at + byte]));
            let granted = usize::try_from(word(8) ^ self.hide(address)).unwrap_or(usize::MAX);
            let intact = self.canary(address, granted) == [word(8), word(0)] && {
                let filled = (granted - requested).min(CANARY + FILLED);
                // SAFETY: as above; the sum is right, so the figure is.
                let behind = unsafe { bytes_behind(block, requested, filled) };
                behind[CANARY..].iter().all(|&byte| byte == FILLER)
            };
            if !intact {
                return Err(self.overwritten(block.address(), "behind the block"));
            }
            // SAFETY: what upstream said: the sum is right.
            unsafe { block.record_mut() }.granted = granted;
        }
        // SAFETY: as upstream said, before `protect`.
        unsafe { block.record_mut() }.requested += CANARY;
        Ok(())
    }

    #[cold]
    fn overwritten(&self, address: usize, place: &'static str) -> Error {
        self.found.fetch_add(1, Ordering::Relaxed);
        Error::Overwritten { address, place }
    }

    /// A block that ends at a page nobody can touch.
    fn guarded(&self, request: &Request) -> Option<RawBlock> {
        let grain = self.pages.commit_granularity();
        if request.align > grain || self.inner.device() != Device::CPU {
            return None;
        }
        let size = request.align.round_up(request.bytes).ok()?;
        let gained = grain.round_up(size).ok()?;
        let line = self.pages.reserve_addresses(gained.checked_add(grain.bytes())?, grain)?;
        // SAFETY: a new line, of which the last page is never gained.
        if !unsafe { self.pages.commit(&line, 0, gained) } {
            // SAFETY: nobody else knows it.
            unsafe { self.pages.release_addresses(line, 0) };
            return None;
        }
        // SAFETY: inside what was gained.
        let ptr = unsafe { line.ptr.add(gained - size) };
        let mut record = Record::new(ptr, request.bytes, Device::CPU, Access::Host);
        record.assign(request);
        let mut block = RawBlock::new(Box::new(record));
        // SAFETY: what alignment leaves before the end of the pages.
        unsafe { bytes_behind(&mut block, request.bytes, size - request.bytes) }.fill(FILLER);
        let mut guards = self.guarded.lock();
        guards.bytes += gained;
        guards.peak = guards.peak.max(guards.bytes);
        guards.by_address.insert(ptr.as_ptr().addr(), Guarded { line, gained });
        Some(block)
    }

    /// Gives the pages of a guarded block back: whoever still has its address is stopped.
    fn end_guarded(&self, mut block: RawBlock, guarded: &Guarded) {
        let address = block.address();
        let left = guarded.line.ptr.as_ptr().addr() + guarded.gained - address - block.requested;
        let requested = block.requested;
        // SAFETY: filled in `guarded`, behind what the block's user may touch.
        let intact = unsafe { bytes_behind(&mut block, requested, left) }.iter().all(|&byte| byte == FILLER);
        // SAFETY: the record is of `guarded`'s box, and the block was returned.
        drop(unsafe { block.into_record() });
        // SAFETY: the block was all that used it.
        unsafe { self.pages.release_addresses(guarded.line, guarded.gained) };
        if !intact {
            // It is gone all the same, and must not stay counted.
            let error = self.overwritten(address, "behind the block");
            report(|| tracing::error!(allocator = &*self.name, %error, "found at its return"));
        }
    }

    /// Lets the oldest blocks go until `most` bytes are left.
    fn empty_quarantine(&self, most: usize) -> bool {
        let mut any = false;
        loop {
            let returned = {
                let mut quarantine = self.quarantine.lock();
                if quarantine.bytes <= most {
                    return any;
                }
                let returned = quarantine.blocks.pop_front();
                quarantine.bytes -= returned.as_ref().map_or(0, |returned| returned.block.granted);
                returned
            };
            let Some(returned) = returned else { return any };
            any = true;
            if let Err(error) = self.check_poison(&returned) {
                report(|| tracing::error!(allocator = &*self.name, %error, "found in quarantine"));
            }
            let address = returned.block.address();
            // SAFETY: it was returned to us, once.
            if let Err(error) = unsafe { self.inner.deallocate(returned.block) } {
                report(|| tracing::error!(allocator = &*self.name, address, %error, "free refused"));
            }
        }
    }

    fn check_poison(&self, returned: &Returned) -> Result<()> {
        // SAFETY: returned blocks are ours, and their bytes were written.
        let poisoned = unsafe { std::slice::from_raw_parts(returned.block.ptr.as_ptr(), returned.poisoned) };
        if poisoned.iter().all(|&byte| byte == POISON) {
            return Ok(());
        }
        Err(self.overwritten(returned.block.address(), "after it was returned"))
    }
}

/// `count` bytes from `offset` on.
///
/// # Safety
///
/// They belong to the block, are initialised, and nobody who keeps to the rules uses them while the slice lives.
unsafe fn bytes_behind(block: &mut RawBlock, offset: usize, count: usize) -> &mut [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(block.ptr.as_ptr().wrapping_add(offset), count) }
}

// SAFETY: 1. blocks are upstream's, a little shorter, or lie alone in pages of their own. 2. both are initialised. 3. what
// upstream zeroes is zero, and new pages are. 4. what is shared is behind mutexes. 5. the same. 6. there is no counter.
unsafe impl<A: Allocator> Allocator for Hardened<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        // Relaxed: which one is guarded does not matter.
        if self.hardening.guarded_one_in > 0
            && self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.hardening.guarded_one_in)
            && request.kind.check_on(self.inner.device()).is_ok()
            && let Some(block) = self.guarded(request)
        {
            return Ok(block);
        }
        let longer = Request { bytes: request.bytes.saturating_add(CANARY), ..*request };
        let mut result = self.inner.allocate(&longer);
        if result.as_ref().is_err_and(Error::is_out_of_memory) && self.empty_quarantine(0) {
            result = self.inner.allocate(&longer);
        }
        match result {
            Ok(mut block) => {
                self.protect(&mut block);
                Ok(block)
            }
            Err(Error::OutOfMemory(mut report)) => {
                report.requested = request.bytes;
                Err(Error::OutOfMemory(report))
            }
            Err(error) => Err(error),
        }
    }

    unsafe fn deallocate(&self, mut block: RawBlock) -> Result<()> {
        if self.hardening.guarded_one_in > 0 {
            let guarded = {
                let mut guards = self.guarded.lock();
                let guarded = guards.by_address.remove(&block.address());
                guards.bytes -= guarded.as_ref().map_or(0, |guarded| guarded.gained);
                guarded
            };
            if let Some(guarded) = guarded {
                self.end_guarded(block, &guarded);
                return Ok(());
            }
        }
        self.check(&mut block)?;
        // What streams may still use is neither written nor kept: upstream knows what to do with it.
        if block.access != Access::Host || !block.uses.is_empty() {
            // SAFETY: the caller's promise; the block is as upstream made it.
            return unsafe { self.inner.deallocate(block) };
        }
        let poisoned = if self.hardening.poison { block.granted } else { 0 };
        // SAFETY: nobody uses the block any more (the caller's promise).
        unsafe { block.ptr.write_bytes(POISON, poisoned) };
        if block.granted > self.hardening.quarantine {
            // SAFETY: as above.
            return unsafe { self.inner.deallocate(block) };
        }
        {
            let mut quarantine = self.quarantine.lock();
            quarantine.bytes += block.granted;
            quarantine.blocks.push_back(Returned { block, poisoned });
        }
        self.empty_quarantine(self.hardening.quarantine);
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Guarded blocks have pages of their own, which nobody pins.
    fn semantics(&self) -> Semantics {
        let semantics = self.inner.semantics();
        Semantics { pinned: semantics.pinned && self.hardening.guarded_one_in == 0, ..semantics }
    }

    fn trim(&self, target: u64) -> u64 {
        let before = self.inner.usage().reserved;
        self.empty_quarantine(0);
        // On a line of its own: the guards are not locked while upstream trims.
        let guarded = self.guarded.lock().bytes as u64;
        self.inner.trim(target.saturating_sub(guarded));
        before.saturating_sub(self.inner.usage().reserved)
    }

    fn verify(&self) -> Result<()> {
        self.quarantine.lock().blocks.iter().try_for_each(|returned| self.check_poison(returned))?;
        self.inner.verify()
    }

    fn usage(&self) -> Usage {
        let (usage, guards) = (self.inner.usage(), self.guarded.lock());
        Usage {
            reserved: usage.reserved + guards.bytes as u64,
            // The two peaks may not have been at the same time: at most so much.
            peak_reserved: usage.peak_reserved + guards.peak as u64,
            regions: usage.regions + guards.by_address.len() as u64,
            ..usage
        }
    }

    fn reset_peak(&self) {
        self.inner.reset_peak();
        let mut guards = self.guarded.lock();
        guards.peak = guards.bytes;
    }

    forward!(inner: device, device_memory, has_opaque_handles, set_safe_frontier, describe,
        watch_regions, set_statistics);
}

impl<A: Allocator> Drop for Hardened<A> {
    fn drop(&mut self) {
        self.empty_quarantine(0);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "hardened_tests.rs"]
mod tests;
