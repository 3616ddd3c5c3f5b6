//! An adaptor that finds writes behind a block and uses of a block after its return.
//!
//! | protection | finds | when |
//! |---|---|---|
//! | canaries | writes behind the block | at its return |
//! | poison | reads after the return, by their values (`0xDD`) | when the reader checks them |
//! | quarantine, with poison | writes after the return | at the end of the quarantine, in `verify` |
//! | guard pages | accesses behind the block or after its return | at once: the process is stopped |
//!
//! [`Hardening`] says what each costs.
//!
//! A finding is an [`Error::Overwritten`] and is reported as a refused free: counted, traced, and passed to
//! an observer. The block is not reused. Only host-accessible blocks are protected; others pass unchanged.
//!
//! A double free needs no adaptor: a [`Block`](crate::Block) can be dropped once, and engines that free by
//! bare address look it up. Bare addresses cannot be freed here, because the size behind them is unknown.

use super::guard_pages::{FILLER, GuardPages, bytes_behind};
use super::hardening::Hardening;
use super::name_over;
use crate::{Access, Allocator, Error, RawBlock, Request, Result, Semantics, Usage, forward};
use orlop_host::shield::report;
use orlop_sync::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The value of the bytes of returned blocks.
pub const POISON: u8 = 0xDD;

/// The bytes added to each request: a canary, which encodes the number of granted bytes.
const CANARY: usize = 16;

/// The maximum number of bytes behind the canary that are filled and checked.
const FILLED: usize = 240;

/// An adaptor that finds writes behind the blocks of its upstream, and uses after their return. [`Hardening`]
/// chooses the protections.
///
/// No block grows in place, even where the upstream's would: it moves, and uses of its old address are found.
///
/// ```
/// use orlop_alloc::adaptor::{Hardened, Hardening};
/// use orlop_alloc::{Allocator, backing::System, engine::Direct, Request};
///
/// let engine = Hardened::new(Direct::new(System::new()), Hardening::new().quarantine(1 << 20));
/// let allocator = engine.into_ref();
/// let block = allocator.allocate(&Request::new(100))?;
/// let behind = block.as_ptr().as_ptr().wrapping_add(100);
/// // SAFETY: none. This is the error to be found.
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
    guard_pages: GuardPages,
    found: AtomicU64,
}

/// The blocks returned last, oldest first.
#[derive(Debug, Default)]
struct Quarantine {
    blocks: VecDeque<Returned>,
    bytes: usize,
}

#[derive(Debug)]
struct Returned {
    block: RawBlock,
    /// The number of poisoned bytes.
    poisoned: usize,
}

impl<A: Allocator> Hardened<A> {
    /// Creates an adaptor over `inner` with these settings.
    pub fn new(inner: A, hardening: Hardening) -> Self {
        Self {
            name: name_over("hardened", &inner),
            // Random per process, so that a stray write does not look like a canary.
            secret: RandomState::new().hash_one(0u64),
            hardening,
            quarantine: Mutex::default(),
            calls: AtomicU64::new(0),
            guard_pages: GuardPages::new(),
            found: AtomicU64::new(0),
            inner,
        }
    }

    /// Returns the number of blocks that were found overwritten.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Returns the upstream.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Returns the two words of a canary: the granted bytes of the block at `address`, masked, and a
    /// checksum.
    fn canary(&self, address: usize, granted: usize) -> [u64; 2] {
        let hidden = self.hide(address) ^ granted as u64;
        [hidden, hidden.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.secret]
    }

    fn hide(&self, address: usize) -> u64 {
        self.secret ^ (address as u64).rotate_left(17)
    }

    /// Shortens the block to the requested bytes and writes the canary behind them.
    fn protect(&self, block: &mut RawBlock) {
        // SAFETY: the bytes removed here are restored by `check` before the block returns to the upstream.
        unsafe { block.record_mut() }.requested -= CANARY;
        if block.access != Access::Host {
            return;
        }
        let (requested, granted) = (block.requested, block.granted);
        let [hidden, sum] = self.canary(block.address(), granted);
        let filled = (granted - requested).min(CANARY + FILLED);
        // SAFETY: granted bytes that are not handed out, of a block that no one else knows.
        let behind = unsafe { bytes_behind(block, requested, filled) };
        behind.fill(FILLER);
        behind[..8].copy_from_slice(&sum.to_ne_bytes());
        behind[8..CANARY].copy_from_slice(&hidden.to_ne_bytes());
        // SAFETY: as above.
        unsafe { block.record_mut() }.granted = requested;
    }

    /// Checks the canary that [`Hardened::protect`] wrote, and restores the block to its granted bytes.
    fn check(&self, block: &mut RawBlock) -> Result<()> {
        if block.access == Access::Host {
            let requested = block.requested;
            let address = block.address();
            // SAFETY: `protect` wrote there, behind the bytes that the user may access.
            let found = unsafe { bytes_behind(block, requested, CANARY) };
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| found[at + byte]));
            let granted = usize::try_from(word(8) ^ self.hide(address)).unwrap_or(usize::MAX);
            let intact = self.canary(address, granted) == [word(8), word(0)] && {
                let filled = (granted - requested).min(CANARY + FILLED);
                // SAFETY: as above; the checksum holds, so the size is right.
                let behind = unsafe { bytes_behind(block, requested, filled) };
                behind[CANARY..].iter().all(|&byte| byte == FILLER)
            };
            if !intact {
                return Err(self.overwritten(block.address(), "behind the block"));
            }
            // SAFETY: the size that the upstream granted: the checksum holds.
            unsafe { block.record_mut() }.granted = granted;
        }
        // SAFETY: the size that the upstream granted, before `protect`.
        unsafe { block.record_mut() }.requested += CANARY;
        Ok(())
    }

    #[cold]
    fn overwritten(&self, address: usize, place: &'static str) -> Error {
        self.found.fetch_add(1, Ordering::Relaxed);
        Error::Overwritten { address, place }
    }

    /// Returns the oldest blocks to the upstream until `max` bytes are left.
    fn empty_quarantine(&self, max: usize) -> bool {
        let mut any = false;
        loop {
            let returned = {
                let mut quarantine = self.quarantine.lock();
                if quarantine.bytes <= max {
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
            // SAFETY: its owner returned it once.
            if let Err(error) = unsafe { self.inner.deallocate(returned.block) } {
                report(|| tracing::error!(allocator = &*self.name, address, %error, "free refused"));
            }
        }
    }

    fn check_poison(&self, returned: &Returned) -> Result<()> {
        // SAFETY: a returned block in the quarantine has no other user, and its bytes are initialised.
        let poisoned = unsafe { std::slice::from_raw_parts(returned.block.ptr.as_ptr(), returned.poisoned) };
        if poisoned.iter().all(|&byte| byte == POISON) {
            return Ok(());
        }
        Err(self.overwritten(returned.block.address(), "after it was returned"))
    }
}

// SAFETY: 1. blocks are the upstream's, shortened, or have pages of their own. 2. both are initialised. 3.
// memory that the upstream zeroes is zero, and so are new pages. 4. shared state is behind mutexes. 5. as for
// the upstream's blocks; pages do not move. 6. there is no counter.
unsafe impl<A: Allocator> Allocator for Hardened<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        // Relaxed: any block may be the guarded one.
        if self.hardening.guarded_one_in > 0
            && self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.hardening.guarded_one_in)
            && request.kind.check_on(self.inner.device()).is_ok()
            && self.inner.device().is_cpu()
            && let Some(block) = self.guard_pages.allocate(request)
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
            let address = block.address();
            // SAFETY: guaranteed by the caller.
            match unsafe { self.guard_pages.release(block) } {
                Err(other) => block = other,
                Ok(true) => return Ok(()),
                Ok(false) => {
                    // Its pages are released, so the free cannot be refused: a refused block stays counted.
                    let error = self.overwritten(address, "behind the block");
                    report(|| tracing::error!(allocator = &*self.name, %error, "found at its return"));
                    return Ok(());
                }
            }
        }
        self.check(&mut block)?;
        // A stream may still use the block: it is not poisoned and not kept; the upstream waits for the
        // streams.
        if block.access != Access::Host || !block.uses.is_empty() {
            // SAFETY: guaranteed by the caller; the block is as the upstream handed it out.
            return unsafe { self.inner.deallocate(block) };
        }
        let poisoned = if self.hardening.poison { block.granted } else { 0 };
        // SAFETY: the block has no user any more (guaranteed by the caller).
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

    /// Guarded blocks have pages of their own, which are not pinned.
    fn semantics(&self) -> Semantics {
        let semantics = self.inner.semantics();
        let pinned = semantics.pinned && self.hardening.guarded_one_in == 0;
        // Blocks are placed between guards.
        Semantics { pinned, completes_alignment: false, ..semantics }
    }

    fn trim(&self, target: u64) -> u64 {
        let before = self.inner.usage().reserved;
        self.empty_quarantine(0);
        // A separate statement: the guarded blocks are not locked while the upstream trims.
        let guarded = self.guard_pages.blocks().bytes as u64;
        self.inner.trim(target.saturating_sub(guarded));
        before.saturating_sub(self.inner.usage().reserved)
    }

    fn verify(&self) -> Result<()> {
        self.quarantine.lock().blocks.iter().try_for_each(|returned| self.check_poison(returned))?;
        self.inner.verify()
    }

    fn usage(&self) -> Usage {
        let (usage, guarded) = (self.inner.usage(), self.guard_pages.blocks());
        Usage {
            reserved: usage.reserved + guarded.bytes as u64,
            // An upper bound: the two peaks may have been at different times.
            peak_reserved: usage.peak_reserved + guarded.peak as u64,
            regions: usage.regions + guarded.count() as u64,
            ..usage
        }
    }

    fn reset_peak(&self) {
        self.inner.reset_peak();
        let mut guarded = self.guard_pages.blocks();
        guarded.peak = guarded.bytes;
    }

    forward!(
        inner;
        except allocated_size_slow, deallocate, deallocate_raw, find, grow_in_place, has_raw_deleter, name,
        reset_peak, semantics, has_tracked_sizes, trim, usage, verify
    );
}

impl<A: Allocator> Drop for Hardened<A> {
    fn drop(&mut self) {
        self.empty_quarantine(0);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "hardened_tests.rs"]
mod tests;
