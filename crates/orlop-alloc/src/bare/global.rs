//! orlop as the allocator of a whole program.

use super::{Header, allocate, deallocate, header, offset, put_header, with_header};
use crate::backing::{HugePages, Mmap};
use crate::caching::Caching;
use crate::{Allocator, Record, Result, Stats};
use orlop_sync::{BlockCounter, RemoteFreeList, Totals};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The caching engine as Rust's global allocator.
///
/// What the engine itself needs, its records, comes from the system's allocator: so does all that is allocated while it
/// is being called. It works while threads end, and before and after `main`.
///
/// A block has a record of 128 bytes and begins at a multiple of 64, so this suits programs with large data, and tests of
/// the engine; for many small values it is not made.
///
/// Nothing of the program's runs inside: the engine has no handle here, so there is no observer and no block to be had from
/// it, and nothing is traced. A panic inside, which would be a mistake of the engine's, ends the process: global allocators
/// may not unwind.
///
/// ```
/// use orlop_alloc::bare::GlobalAllocator;
///
/// #[global_allocator]
/// static GLOBAL: GlobalAllocator = GlobalAllocator;
///
/// let numbers: Vec<u64> = (0..1000).collect();
/// assert!(GlobalAllocator::stats().live() >= 8000);
/// # drop(numbers);
/// ```
///
/// Neither handles nor blocks of the engine can be had, which would come back to it from within:
///
/// ```compile_fail
/// # use orlop_alloc::bare::GlobalAllocator;
/// let handle = GlobalAllocator::with(|allocator| allocator.clone());
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct GlobalAllocator;

static ENGINE: OnceLock<Caching<Mmap>> = OnceLock::new();

/// Blocks that the engine refused to take back.
static REFUSED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is inside the engine. Needs no destructor: it can be read to the last.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What came back while its thread was inside the engine: returned when one is outside.
static LATER: OnceLock<RemoteFreeList<Record>> = OnceLock::new();

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
    /// Returns what was allocated, and what is held for that.
    #[must_use]
    pub fn stats() -> Stats {
        inside(|engine| Stats {
            totals: engine.counter().map_or_else(Totals::default, BlockCounter::totals),
            usage: engine.usage(),
            refused_frees: REFUSED.load(Ordering::Relaxed),
            // What it hands out is of the default kind.
            has_unpinned: false,
        })
    }

    /// Makes peaks start again from now, live and reserved.
    pub fn reset_peaks() {
        inside(|engine| {
            if let Some(counter) = engine.counter() {
                counter.reset_peaks();
            }
            engine.reset_peak();
        });
    }

    /// Gives cached memory back until at most `target` bytes are held, as far as live blocks allow. Returns the bytes given
    /// back.
    pub fn trim(target: u64) -> u64 {
        inside(|engine| engine.trim(target))
    }

    /// Gives back what was not needed since the last call: see [`Caching::decay`]. Returns the bytes given back.
    pub fn decay() -> u64 {
        inside(Caching::decay)
    }

    /// Walks every structure and proves the invariants.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) with the rule that does not hold.
    pub fn verify() -> Result<()> {
        inside(Allocator::verify)
    }

    #[cfg(all(unix, not(loom)))]
    pub(crate) fn engine() -> &'static Caching<Mmap> {
        // It may be made now: what it is made of comes from the system.
        let _inside = Inside::enter();
        engine()
    }
}

/// Calls a method of the engine's. What that allocates comes from the system, because the engine may not wait for itself.
fn inside<R>(method: impl FnOnce(&'static Caching<Mmap>) -> R) -> R {
    let _inside = Inside::enter();
    method(engine())
}

/// Whether events may be traced: a subscriber is code of the program's, which may neither run inside nor unwind from there.
pub(crate) fn may_trace() -> bool {
    !INSIDE.get()
}

/// Ends the process if a panic comes by.
struct NoUnwinding;

impl Drop for NoUnwinding {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Calls `f`, which does not unwind.
#[inline(always)]
fn contained<R>(f: impl FnOnce() -> R) -> R {
    let guard = NoUnwinding;
    let result = f();
    std::mem::forget(guard);
    result
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

fn engine() -> &'static Caching<Mmap> {
    let mmap = || Mmap::new().huge_pages(HugePages::System);
    ENGINE.get_or_init(|| Caching::builder(mmap()).name("global").build_engine())
}

/// # Safety
///
/// The record is the header of memory from [`take`], which nobody uses any more. The thread is inside.
unsafe fn give(record: NonNull<Record>) {
    // SAFETY: the caller's promise; the engine never goes.
    if unsafe { deallocate(engine(), record) }.is_err() {
        // The block stays as it is, and counted. Nobody can be told but by the figure.
        REFUSED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns what could not be returned at once. The thread is inside.
fn return_later() {
    for record in LATER.get().into_iter().filter(|later| !later.is_empty()).flat_map(RemoteFreeList::take) {
        // SAFETY: from `dealloc`, which was the end of its use.
        unsafe { give(NonNull::from(Box::leak(record))) };
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

/// Returns memory from [`take`].
///
/// # Safety
///
/// Those of [`GlobalAlloc::dealloc`].
unsafe fn put(memory: NonNull<u8>, layout: Layout) {
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
        LATER.get_or_init(RemoteFreeList::new).push(unsafe { Box::from_raw(record.as_ptr()) });
        return;
    };
    return_later();
    // SAFETY: the header, and the caller's promise.
    unsafe { give(record) };
}

// SAFETY: memory is in a block of its own of the engine's, or from the system; both keep the promises. No way through
// here unwinds (`contained`), and a thread that is inside never enters again.
unsafe impl GlobalAlloc for GlobalAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        contained(|| take(layout, false)).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        contained(|| take(layout, true)).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let Some(memory) = NonNull::new(ptr) else { return };
        // SAFETY: the caller's promises.
        contained(|| unsafe { put(memory, layout) });
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return std::ptr::null_mut() };
        let Some(memory) = NonNull::new(ptr) else { return std::ptr::null_mut() };
        // SAFETY: guaranteed by the caller.
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
            // SAFETY: guaranteed by the caller.
            unsafe { self.dealloc(ptr, layout) };
        }
        moved
    }
}

#[cfg(all(test, unix, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_ends_the_process() {
        orlop_testkit::dies::dies("bare::global::tests::a_panic_inside_ends_the_process", || {
            let unwound = std::panic::catch_unwind(|| contained(|| panic!("inside")));
            assert!(unwound.is_err());
        });
    }
}
