//! A check of adaptors: every method of [`Allocator`] reaches the upstream, but for those that the adaptor
//! implements.
//!
//! The trait has defaults for what not every engine can do, so an adaptor that forgets to forward a method
//! compiles, and silently loses what its upstream can: an out-of-memory report without its figures, an
//! observer that sees no regions.

use crate::ConformanceFault;
use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::{
    Allocator, AllocatorRef, DeviceMemory, Error, LookupResult, OutOfMemory, Refusal, Request, Result,
    Semantics, TagUse, Usage,
    engine_support::{RawBlock, RegionWatch, SharedObserver},
};
use orlop_core::{Device, MemoryKind};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// The methods of [`Allocator`] that an adaptor forwards unless it implements them.
///
/// Without `allocate`, which every adaptor implements, and the methods that count blocks, which none
/// forwards.
pub const FORWARDED: [&str; 23] = [
    "allocated_size_slow",
    "deallocate",
    "deallocate_raw",
    "describe",
    "device",
    "device_memory",
    "find",
    "grow_in_place",
    "has_raw_deleter",
    "wraps",
    "name",
    "on_shared",
    "has_opaque_handles",
    "reset_peak",
    "semantics",
    "set_safe_frontier",
    "set_statistics",
    "tag_uses",
    "has_tracked_sizes",
    "trim",
    "usage",
    "verify",
    "watch_regions",
];

/// The names of the methods that were called.
type Calls = Arc<Mutex<BTreeSet<&'static str>>>;

/// An upstream that records which of its methods are called. No answer of it is the trait's default.
#[derive(Debug)]
pub struct ForwardingMock {
    memory: Direct<System>,
    calls: Calls,
}

/// Checks that the adaptor that `wrap` makes forwards every method in [`FORWARDED`], without those in `own`.
///
/// # Errors
///
/// [`ConformanceFault::NotForwarded`] with the methods that did not reach the upstream, or whose answer the
/// adaptor changed.
///
/// # Panics
///
/// If a name in `own` is not in [`FORWARDED`].
///
/// ```
/// use orlop_alloc::adaptor::Limit;
/// use orlop_testkit::check_forwarding;
///
/// let own = ["deallocate", "deallocate_raw", "grow_in_place", "name"];
/// check_forwarding(|upstream| Limit::new(upstream, 1 << 20), &own)?;
/// # Ok::<(), orlop_testkit::ConformanceFault>(())
/// ```
pub fn check_forwarding<A: Allocator>(
    wrap: impl FnOnce(ForwardingMock) -> A,
    own: &[&str],
) -> Result<(), ConformanceFault> {
    for name in own {
        assert!(FORWARDED.contains(name), "{name} is not a method that adaptors forward");
    }
    let calls = Calls::default();
    let mut adaptor = wrap(ForwardingMock { memory: Direct::new(System::new()), calls: calls.clone() });
    // What the adaptor calls while it is made counts for nothing.
    take(&calls);
    let mut missing = Vec::new();
    for method in FORWARDED {
        if own.contains(&method) {
            continue;
        }
        let is_passed_on = probe(&mut adaptor, method)?;
        if !take(&calls).contains(method) || !is_passed_on {
            missing.push(method);
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(ConformanceFault::NotForwarded { methods: missing }) }
}

fn take(calls: &Calls) -> BTreeSet<&'static str> {
    std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Calls one method of the adaptor. Returns whether the mock's answer arrived, where it has one.
fn probe<A: Allocator>(adaptor: &mut A, method: &str) -> Result<bool> {
    Ok(match method {
        "deallocate" => {
            let block = adaptor.allocate(&Request::new(64))?;
            // SAFETY: handed out above by this allocator, and not used.
            unsafe { adaptor.deallocate(block) }.is_ok()
        }
        "grow_in_place" => {
            let mut block = adaptor.allocate(&Request::new(64))?;
            // SAFETY: a block of this allocator; more bytes than it has.
            let grown = unsafe { adaptor.grow_in_place(&mut block, 128) };
            // SAFETY: handed out above by this allocator, and not used.
            unsafe { adaptor.deallocate(block) }?;
            !grown
        }
        "allocated_size_slow" => {
            let block = adaptor.allocate(&Request::new(64))?;
            // SAFETY: a block of this allocator begins there.
            let size = unsafe { adaptor.allocated_size_slow(block.ptr) };
            // SAFETY: handed out above by this allocator, and not used.
            unsafe { adaptor.deallocate(block) }?;
            size == Some(SIZE)
        }
        // SAFETY: the mock refuses every pointer and reads none.
        "deallocate_raw" => unsafe { adaptor.deallocate_raw(NonNull::dangling(), None) }
            .is_err_and(|error| matches!(error, Error::ForeignPointer { .. })),
        "describe" => {
            let mut report = OutOfMemory::new(Refusal::Backing, "", Device::CPU, &Request::new(1));
            adaptor.describe(&mut report);
            report.reserved == USAGE.reserved
        }
        "device" => adaptor.device() == Device::CPU,
        "device_memory" => adaptor.device_memory() == Some(MEMORY),
        "find" => adaptor.find(0x1000).is_some_and(|found| found.granted == SIZE),
        "has_raw_deleter" => adaptor.has_raw_deleter(),
        "wraps" => adaptor.wraps(&Direct::new(System::new()).into_ref().erase()),
        "name" => adaptor.name() == NAME,
        "has_opaque_handles" => adaptor.has_opaque_handles(),
        "reset_peak" => {
            adaptor.reset_peak();
            true
        }
        "on_shared" => {
            adaptor.on_shared(&Direct::new(System::new()).into_ref().erase());
            true
        }
        "semantics" => adaptor.semantics() == SEMANTICS,
        "set_safe_frontier" => {
            adaptor.set_safe_frontier(1);
            true
        }
        "set_statistics" => {
            adaptor.set_statistics(true);
            true
        }
        "tag_uses" => adaptor.tag_uses().len() == 1,
        "has_tracked_sizes" => adaptor.has_tracked_sizes(),
        "trim" => adaptor.trim(0) == TRIMMED,
        "usage" => adaptor.usage() == USAGE,
        "verify" => adaptor.verify().is_err(),
        "watch_regions" => {
            let watch = Arc::new(RegionWatch::new(SharedObserver::new(Arc::new(Deaf)), NAME));
            adaptor.watch_regions(&watch);
            watch.end();
            true
        }
        _ => unreachable!("the methods are those of `FORWARDED`"),
    })
}

const NAME: &str = "forwarding-mock";
const SIZE: usize = 4321;
const TRIMMED: u64 = 4322;
const USAGE: Usage = Usage { reserved: 1, peak_reserved: 2, regions: 3, deferred: 4, metadata: 5 };
const SEMANTICS: Semantics = Semantics { stream_ordered: true, pinned: true, completes_alignment: true };
const MEMORY: DeviceMemory = DeviceMemory { free: 6, total: 7 };

/// An observer that ignores every event.
struct Deaf;

impl orlop_alloc::Observer for Deaf {
    fn observe(&self, _: &orlop_alloc::Event<'_>) {}
}

impl ForwardingMock {
    fn note(&self, method: &'static str) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).insert(method);
    }
}

// SAFETY: blocks are those of `memory`, unchanged, and return to it. The methods that free or grow by address
// refuse.
unsafe impl Allocator for ForwardingMock {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.memory.allocate(request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        self.note("deallocate");
        // SAFETY: guaranteed by the caller; a block of `memory`.
        unsafe { self.memory.deallocate(block) }
    }

    unsafe fn grow_in_place(&self, _: &mut RawBlock, _: usize) -> bool {
        self.note("grow_in_place");
        false
    }

    fn device(&self) -> Device {
        self.note("device");
        Device::CPU
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.note("device_memory");
        Some(MEMORY)
    }

    fn name(&self) -> &str {
        self.note("name");
        NAME
    }

    fn usage(&self) -> Usage {
        self.note("usage");
        USAGE
    }

    fn reset_peak(&self) {
        self.note("reset_peak");
    }

    fn semantics(&self) -> Semantics {
        self.note("semantics");
        SEMANTICS
    }

    fn trim(&self, _: u64) -> u64 {
        self.note("trim");
        TRIMMED
    }

    fn find(&self, _: usize) -> Option<LookupResult> {
        self.note("find");
        let id = orlop_alloc::AllocationId::NONE;
        Some(LookupResult { requested: SIZE, granted: SIZE, id, kind: MemoryKind::Default })
    }

    fn has_tracked_sizes(&self) -> bool {
        self.note("has_tracked_sizes");
        true
    }

    unsafe fn allocated_size_slow(&self, _: NonNull<u8>) -> Option<usize> {
        self.note("allocated_size_slow");
        Some(SIZE)
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, _: Option<usize>) -> Result<LookupResult> {
        self.note("deallocate_raw");
        Err(Error::ForeignPointer { address: ptr.as_ptr().addr() })
    }

    fn has_raw_deleter(&self) -> bool {
        self.note("has_raw_deleter");
        true
    }

    fn has_opaque_handles(&self) -> bool {
        self.note("has_opaque_handles");
        true
    }

    fn set_safe_frontier(&self, _: u64) {
        self.note("set_safe_frontier");
    }

    fn set_statistics(&mut self, _: bool) {
        self.note("set_statistics");
    }

    fn describe(&self, report: &mut OutOfMemory) {
        self.note("describe");
        report.reserved = USAGE.reserved;
    }

    fn tag_uses(&self) -> Vec<TagUse> {
        self.note("tag_uses");
        vec![TagUse { kind: MemoryKind::Default, tag: orlop_alloc::Tag::NONE, bytes: 1 }]
    }

    fn wraps(&self, _: &AllocatorRef) -> bool {
        self.note("wraps");
        true
    }

    fn watch_regions(&self, _: &Arc<RegionWatch>) {
        self.note("watch_regions");
    }

    fn on_shared(&self, _: &AllocatorRef) {
        self.note("on_shared");
    }

    fn verify(&self) -> Result<()> {
        self.note("verify");
        Err(Error::Corrupt { rule: NAME, address: 0 })
    }
}
