//! A backing of your own under the caching engine, checked by the suite that every allocator of orlop's
//! passes.
//!
//! ```text
//! cargo run -p orlop --example own_backing
//! ```
//!
//! Engines know where blocks are; a backing provides the memory, in regions of many blocks. This one gets
//! them from the system and stays within a quota, which several engines can share.

use orlop::memory::backing::{Backing, BackingRef, Region};
use orlop::memory::caching::Caching;
use orlop::prelude::*;
use orlop::types::{Alignment, ByteSize};
use orlop_testkit::{SuiteProfile, conformance_over};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::error::Error;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's memory, within a quota.
#[derive(Debug)]
struct Quota {
    /// Bytes that may still be reserved. Relaxed: it is a count, and no other memory is read because of it.
    left: AtomicUsize,
}

// SAFETY: 1. the system's blocks have the size and alignment of their layout and do not overlap. 2.
// `alloc_zeroed` initialises every byte. 3. `dealloc` may be called from any thread.
unsafe impl Backing for Quota {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let layout = Layout::from_size_align(bytes, align.bytes()).ok()?;
        // `None` is a refusal. The engine tries a smaller region, and then returns the out-of-memory error.
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).ok()?;
        // SAFETY: engines never reserve zero bytes.
        let Some(ptr) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            self.left.fetch_add(bytes, Relaxed);
            return None;
        };
        Some(Region { ptr, bytes, align, zeroed: true })
    }

    unsafe fn release(&self, region: Region) {
        if let Ok(layout) = Layout::from_size_align(region.bytes, region.align.bytes()) {
            // SAFETY: from `reserve`, with this layout, and unused from now on (guaranteed by the caller).
            unsafe { dealloc(region.ptr.as_ptr(), layout) };
            self.left.fetch_add(region.bytes, Relaxed);
        }
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: bytes of a region of this backing that nothing else uses (guaranteed by the caller).
        unsafe { ptr.write_bytes(0, bytes) };
        true
    }

    fn name(&self) -> &str {
        "quota"
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let quota = Arc::new(Quota { left: AtomicUsize::new(8 << 20) });
    let context = Context::new();
    // Every kind on the CPU that has no allocator of its own is served by this one.
    let engine = Caching::builder(Arc::clone(&quota)).name("caching over quota").build().into_ref();
    context.register(Device::CPU, MemoryKind::Default, engine)?;
    let block = context.allocate(Device::CPU, &Request::new(1 << 20).kind(MemoryKind::KvCache))?;
    let left = quota.left.load(Relaxed) as u64;
    println!("{} live, {} of the quota left", ByteSize(context.stats(Device::CPU).live()), ByteSize(left));
    if let Err(error) = context.allocate(Device::CPU, &Request::new(16 << 20)) {
        println!("{error}");
    }
    drop(block);

    // The suite puts a layer between backing and engine that counts regions and refuses some, and compares
    // random programs with a model. It panics with the names of the parts that failed.
    let quota = Arc::new(Quota { left: AtomicUsize::new(1 << 30) });
    let base = || -> BackingRef { Arc::clone(&quota) as BackingRef };
    conformance_over("quota", SuiteProfile::strict(), base, |backing| {
        Caching::new(backing).into_ref().erase()
    });
    let used = (1 << 30) - quota.left.load(Relaxed);
    println!("the conformance suite passed; {used} bytes of the quota are still in use");
    Ok(())
}
