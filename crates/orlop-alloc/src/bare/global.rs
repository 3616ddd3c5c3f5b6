//! orlop as the allocator of a whole program.

use super::{Header, allocate, deallocate, header, offset, put_header, with_header};
use crate::backing::{HugePages, Mmap};
use crate::caching::Caching;
use crate::protocol::Returns;
use crate::{AllocatorRef, Record};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The caching engine as Rust's global allocator.
///
/// What the engine itself needs, its records, comes from the system's allocator: so does all that is allocated while it
/// is being called. It works while threads end, and before and after `main`.
///
/// A block has a record of 128 bytes and begins at a multiple of 64, so this suits programs with large data, and tests of
/// the engine; for many small values it is not made.
///
/// ```
/// use orlop_alloc::bare::GlobalAllocator;
///
/// #[global_allocator]
/// static GLOBAL: GlobalAllocator = GlobalAllocator;
///
/// let numbers: Vec<u64> = (0..1000).collect();
/// assert!(GlobalAllocator::with(|allocator| allocator.stats().live()) >= 8000);
/// # drop(numbers);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct GlobalAllocator;

static ALLOCATOR: OnceLock<AllocatorRef<Caching<Mmap>>> = OnceLock::new();

thread_local! {
    /// Whether this thread is inside the engine. Needs no destructor: it can be read to the last.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What came back while its thread was inside the engine: returned when one is outside.
static LATER: OnceLock<Returns<Record>> = OnceLock::new();

/// This thread is inside, until it is dropped. `None` if it was before.
struct Inside;

impl Inside {
    fn enter() -> Option<Self> {
        if INSIDE.replace(true) { None } else { Some(Self) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl GlobalAllocator {
    /// Calls `f` with the allocator behind it: for its statistics, for trimming, for verifying. What `f` allocates comes
    /// from the system, because the engine may not wait for itself.
    pub fn with<R>(f: impl FnOnce(&AllocatorRef<Caching<Mmap>>) -> R) -> R {
        let _inside = Inside::enter();
        f(engine())
    }

    #[cfg(all(unix, not(loom)))]
    pub(crate) fn engine() -> &'static AllocatorRef<Caching<Mmap>> {
        // It may be made now: what it is made of comes from the system.
        let _inside = Inside::enter();
        engine()
    }
}

/// What this thread allocates is the system's until this is dropped.
#[cfg(all(unix, not(loom)))]
pub(crate) struct FromSystem {
    _inside: Inside,
}

#[cfg(all(unix, not(loom)))]
impl FromSystem {
    /// `None` if it was so before.
    pub(crate) fn begin() -> Option<Self> {
        Inside::enter().map(|inside| Self { _inside: inside })
    }
}

fn engine() -> &'static AllocatorRef<Caching<Mmap>> {
    ALLOCATOR
        .get_or_init(|| Caching::builder(Mmap::new().huge_pages(HugePages::System)).name("global").build())
}

/// Returns what could not be returned at once. The thread is inside.
fn return_later() {
    for record in LATER.get().into_iter().filter(|later| !later.is_empty()).flat_map(Returns::take) {
        // SAFETY: from `dealloc`, which was the end of its use.
        unsafe { deallocate(engine(), NonNull::from(Box::leak(record))) };
    }
}

fn take(layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let Some(_inside) = Inside::enter() else { return take_from_system(layout, zeroed) };
    return_later();
    allocate(engine(), layout, zeroed)
}

fn take_from_system(layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let outer = with_header(layout)?;
    let allocate = if zeroed { System::alloc_zeroed } else { System::alloc };
    // SAFETY: not empty: there is a header.
    let base = unsafe { allocate(&System, outer) };
    // SAFETY: of the outer layout.
    NonNull::new(base).map(|base| unsafe { put_header(base, offset(layout), Header::None) })
}

// SAFETY: memory is in a block of its own of the engine's, or from the system; both keep the promises. No way through
// here unwinds: the engine does not panic, and a thread that is inside never enters again.
unsafe impl GlobalAlloc for GlobalAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout, false).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout, true).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let Some(memory) = NonNull::new(ptr) else { return };
        // SAFETY: the caller's promise: from `alloc`.
        let Some(record) = (unsafe { header(memory) }) else {
            if let Some(outer) = with_header(layout) {
                // SAFETY: that far behind its beginning `take_from_system` put it.
                let base = unsafe { memory.sub(offset(layout)) };
                // SAFETY: as `take_from_system` asked for it.
                unsafe { System.dealloc(base.as_ptr(), outer) };
            }
            return;
        };
        let Some(_inside) = Inside::enter() else {
            // SAFETY: the record of a block that nobody uses any more: the list has it to itself.
            LATER.get_or_init(Returns::new).push(unsafe { Box::from_raw(record.as_ptr()) });
            return;
        };
        return_later();
        // SAFETY: the header, and the caller's promise.
        unsafe { deallocate(engine(), record) };
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return std::ptr::null_mut() };
        let Some(memory) = NonNull::new(ptr) else { return std::ptr::null_mut() };
        // SAFETY: the caller's promise.
        if let Some(record) = unsafe { header(memory) } {
            // SAFETY: the record of a live block; nobody changes it while it lives.
            let granted = unsafe { record.as_ref() }.granted;
            let room = granted.saturating_sub(offset(layout));
            // It has room, and not much more than is needed.
            if size <= room && size >= room / 2 {
                return ptr;
            }
        }
        // SAFETY: the caller's promise: the new size is not zero.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: two allocations, of at least so many bytes each.
            unsafe { moved.copy_from_nonoverlapping(ptr, layout.size().min(size)) };
            // SAFETY: the caller's promise.
            unsafe { self.dealloc(ptr, layout) };
        }
        moved
    }
}
