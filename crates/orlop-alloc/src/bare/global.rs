//! A global allocator over the caching engine.

use super::observed::{NAME, notify_allocated, notify_freed};
use super::{Header, base, header, offset, put_header, request, with_header};
use crate::backing::{HugePages, Mmap};
use crate::caching::Caching;
use crate::handle::CountingEngine;
use crate::{Allocator, RawBlock, Record, Request, Result, Stats, Tag, TagUse};
use orlop_core::MemoryKind;
use orlop_host::shield::InsideGuard;
use orlop_sync::RemoteFreeList;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The caching engine as Rust's global allocator.
///
/// The engine's own metadata comes from the system's allocator, and so does everything that is allocated
/// during a call of the engine. It works while threads end, and before and after `main`.
///
/// Every block has a record of 128 bytes and begins at a multiple of 64, so this suits programs with large
/// data and tests of the engine, not programs with many small values.
///
/// No user code runs inside the engine, except an [observer](GlobalAllocator::observe): it has no handle
/// here, so it gives out no blocks and logs nothing. A panic of the observer ends there. A panic of the
/// engine, which would be a bug, aborts the process: global allocators must not unwind.
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
/// Handles and blocks of this engine are not available, because they would call it from within:
///
/// ```compile_fail
/// # use orlop_alloc::bare::GlobalAllocator;
/// let handle = GlobalAllocator::with(|allocator| allocator.clone());
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct GlobalAllocator;

static ENGINE: OnceLock<Caching<Mmap>> = OnceLock::new();

/// Number of blocks that the engine refused to take back.
static REFUSED_FREES: AtomicU64 = AtomicU64::new(0);

/// Blocks that were freed while their thread was inside the engine. They are returned when a thread enters it
/// next.
static DEFERRED_FREES: OnceLock<RemoteFreeList<Record>> = OnceLock::new();

thread_local! {
    /// The kind and the tag of what the thread allocates. Without a destructor, so that it can be read while
    /// the thread ends.
    static ACCOUNT: Cell<(MemoryKind, Tag)> = const { Cell::new((MemoryKind::Default, Tag::NONE)) };
}

/// Restores the account of the thread when it is dropped.
struct AccountGuard((MemoryKind, Tag));

impl Drop for AccountGuard {
    fn drop(&mut self) {
        ACCOUNT.set(self.0);
    }
}

impl GlobalAllocator {
    /// Runs `f`. What this thread allocates meanwhile is counted under this kind and this tag until it is
    /// freed, by any thread. Memory that is reallocated in place keeps its kind and tag. Scopes nest.
    ///
    /// So a program that knows nothing of orlop is accounted by its phases:
    ///
    /// ```
    /// use orlop_alloc::Tag;
    /// use orlop_alloc::bare::GlobalAllocator;
    /// use orlop_core::MemoryKind;
    ///
    /// #[global_allocator]
    /// static GLOBAL: GlobalAllocator = GlobalAllocator;
    ///
    /// let tag = Tag::new("weights");
    /// let weights = GlobalAllocator::scope(MemoryKind::Persistent, tag, || vec![0.5f32; 1 << 18]);
    /// let scratch = GlobalAllocator::scope(MemoryKind::Workspace, Tag::NONE, || weights.clone());
    /// drop(weights);
    /// let live = |kind| GlobalAllocator::stats().kind(kind).live_bytes;
    /// assert_eq!(live(MemoryKind::Persistent), 0);
    /// assert!(live(MemoryKind::Workspace) >= 1 << 20);
    /// # drop(scratch);
    /// ```
    ///
    /// The scope is the thread's: threads that `f` starts, or whose pool it uses, have their own.
    pub fn scope<R>(kind: MemoryKind, tag: Tag, f: impl FnOnce() -> R) -> R {
        let _restore = AccountGuard(ACCOUNT.replace((kind, tag)));
        f()
    }

    /// Returns the live bytes by kind and tag, without those that have no tag.
    #[must_use]
    pub fn tag_uses() -> Vec<TagUse> {
        with_engine(Allocator::tag_uses)
    }

    /// Returns the statistics of the engine.
    #[must_use]
    pub fn stats() -> Stats {
        with_engine(|engine| {
            let totals = engine.counter().totals();
            Stats {
                // The engine's memory is never pinned.
                has_unpinned: totals.kinds[MemoryKind::HostPinned.index()].allocations > 0,
                totals,
                usage: engine.usage(),
                refused_frees: REFUSED_FREES.load(Ordering::Relaxed),
            }
        })
    }

    /// Resets the peaks of live and reserved bytes to the current values.
    pub fn reset_peaks() {
        with_engine(|engine| {
            engine.counter().reset_peaks();
            engine.reset_peak();
        });
    }

    /// Releases cached memory until at most `target` bytes are reserved, as far as live blocks allow. Returns
    /// the number of bytes released.
    pub fn trim(target: u64) -> u64 {
        with_engine(|engine| engine.trim(target))
    }

    /// Releases memory that was not needed since the last call: see [`Caching::decay`]. Returns the number of
    /// bytes released.
    pub fn decay() -> u64 {
        with_engine(Caching::decay)
    }

    /// Checks the invariants of every data structure.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) with the invariant that does not hold.
    pub fn verify() -> Result<()> {
        with_engine(Allocator::verify)
    }

    #[cfg(all(unix, not(loom)))]
    pub(crate) fn engine() -> &'static Caching<Mmap> {
        // The engine may be created here; its own allocations then come from the system.
        let _inside = InsideGuard::enter();
        engine()
    }
}

/// Calls a method of the engine. What that allocates comes from the system, because the engine must not wait
/// for itself.
fn with_engine<R>(method: impl FnOnce(&'static Caching<Mmap>) -> R) -> R {
    let _inside = InsideGuard::enter();
    method(engine())
}

/// Aborts the process if it is dropped by unwinding.
struct AbortOnDrop;

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Calls `f`, and aborts the process if it panics.
#[inline(always)]
fn abort_on_unwind<R>(f: impl FnOnce() -> R) -> R {
    let guard = AbortOnDrop;
    let result = f();
    std::mem::forget(guard);
    result
}

/// Makes this thread allocate from the system until it is dropped.
#[cfg(all(unix, not(loom)))]
pub(crate) struct SystemScope {
    _inside: InsideGuard,
}

#[cfg(all(unix, not(loom)))]
impl SystemScope {
    /// Begins the scope. Returns `None` if the thread was inside the engine before.
    pub(crate) fn begin() -> Option<Self> {
        InsideGuard::enter().map(|inside| Self { _inside: inside })
    }
}

fn engine() -> &'static Caching<Mmap> {
    let mmap = || Mmap::new().huge_pages(HugePages::System);
    ENGINE.get_or_init(|| Caching::builder(mmap()).name(NAME).build())
}

/// # Safety
///
/// The record is the header of memory from [`allocate_memory`] that is no longer in use, and this thread is
/// inside the engine.
unsafe fn return_record(record: NonNull<Record>) {
    // SAFETY: guaranteed by the caller; the engine is never destroyed.
    if unsafe { return_block(engine(), record) }.is_err() {
        // The block stays allocated and counted. The counter is the only way to report it.
        REFUSED_FREES.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the blocks whose free was deferred. The thread is inside the engine.
fn return_deferred() {
    for record in
        DEFERRED_FREES.get().into_iter().filter(|later| !later.is_empty()).flat_map(RemoteFreeList::take)
    {
        // SAFETY: `dealloc` put the record there, so the memory is no longer in use.
        unsafe { return_record(NonNull::from(Box::leak(record))) };
    }
}

fn allocate_memory(layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let Some(_inside) = InsideGuard::enter() else { return allocate_from_system(layout, zeroed) };
    return_deferred();
    let (kind, tag) = ACCOUNT.get();
    let request = Request { kind, tag, ..request(layout, zeroed)? };
    let engine = engine();
    let cached = engine.take_cached(&request);
    let block = cached.or_else(|| engine.allocate(&request).ok())?;
    notify_allocated(&block);
    // SAFETY: the block has the size and alignment of the layout with its header.
    Some(unsafe { put_header(block.ptr, offset(layout), Some(block.record())) })
}

/// Returns a block to the engine.
///
/// # Safety
///
/// As for [`return_record`].
unsafe fn return_block(engine: &Caching<Mmap>, record: NonNull<Record>) -> Result<()> {
    // SAFETY: the header of a block that `allocate_memory` converted into a bare pointer.
    let block = unsafe { RawBlock::from_record(record) };
    notify_freed(&block);
    // SAFETY: guaranteed by the caller; the engine is never destroyed.
    match unsafe { Caching::give_cached(NonNull::from(engine), block) } {
        None => Ok(()),
        // SAFETY: as above; `give_cached` returned the block unchanged.
        Some(block) => unsafe { engine.deallocate(block) },
    }
}

/// The alignment of memory from the system that has no header: none from the engine has it, whose memory
/// begins a header after a multiple of 64.
///
/// Such memory is freed by the caller's own pointer. With a header it could not be: while a function has a
/// `Box` as an argument, its memory may be freed through the box only, and that does not reach a header.
const SYSTEM_ALIGN: usize = 16;

/// Returns the layout of memory without a header for `layout`; `None` if the memory has one.
fn without_header(layout: Layout) -> Option<Layout> {
    let has_none = layout.align() < SYSTEM_ALIGN && !offset(layout).is_multiple_of(SYSTEM_ALIGN);
    if has_none { Layout::from_size_align(layout.size(), SYSTEM_ALIGN).ok() } else { None }
}

/// Returns the record of the engine's block that memory is in; `None` for memory from the system.
///
/// # Safety
///
/// `memory` came from [`allocate_memory`] with this layout and has not been freed.
unsafe fn record_of(memory: NonNull<u8>, layout: Layout) -> Header {
    if without_header(layout).is_some() && memory.addr().get().is_multiple_of(SYSTEM_ALIGN) {
        return None;
    }
    // SAFETY: guaranteed by the caller, and all other memory has a header.
    unsafe { header(memory) }
}

fn allocate_from_system(layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let allocate = if zeroed { System::alloc_zeroed } else { System::alloc };
    if let Some(layout) = without_header(layout) {
        // SAFETY: the layout is not empty (guaranteed by the caller of the global allocator).
        return NonNull::new(unsafe { allocate(&System, layout) });
    }
    let outer = with_header(layout)?;
    // SAFETY: the layout is not empty: it includes the header.
    let base = unsafe { allocate(&System, outer) };
    // SAFETY: `base` has the outer layout.
    NonNull::new(base).map(|base| unsafe { put_header(base, offset(layout), Header::None) })
}

/// Frees memory from [`allocate_memory`].
///
/// # Safety
///
/// As for [`GlobalAlloc::dealloc`].
unsafe fn free_memory(memory: NonNull<u8>, layout: Layout) {
    // SAFETY: guaranteed by the caller: the memory came from `alloc`.
    let Some(record) = (unsafe { record_of(memory, layout) }) else {
        if let Some(layout) = without_header(layout) {
            // SAFETY: allocated by `allocate_from_system` with this layout.
            unsafe { System.dealloc(memory.as_ptr(), layout) };
        } else if let Some(outer) = with_header(layout) {
            // SAFETY: allocated by `allocate_from_system` with this layout, and this offset.
            unsafe { System.dealloc(base(memory, offset(layout)), outer) };
        }
        return;
    };
    let Some(_inside) = InsideGuard::enter() else {
        // SAFETY: the record of a block that is no longer in use; the list becomes its only holder.
        DEFERRED_FREES.get_or_init(RemoteFreeList::new).push(unsafe { Box::from_raw(record.as_ptr()) });
        return;
    };
    return_deferred();
    // SAFETY: the memory's header; the memory is no longer in use (guaranteed by the caller).
    unsafe { return_record(record) };
}

// SAFETY: memory is in a block of its own in the engine, or from the system; both meet the contract. No call
// unwinds (`abort_on_unwind`), and a thread that is inside the engine does not enter it again.
unsafe impl GlobalAlloc for GlobalAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        abort_on_unwind(|| allocate_memory(layout, false)).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        abort_on_unwind(|| allocate_memory(layout, true)).map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let Some(memory) = NonNull::new(ptr) else { return };
        // SAFETY: guaranteed by the caller.
        abort_on_unwind(|| unsafe { free_memory(memory, layout) });
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return std::ptr::null_mut() };
        let Some(memory) = NonNull::new(ptr) else { return std::ptr::null_mut() };
        // SAFETY: guaranteed by the caller.
        if let Some(record) = unsafe { record_of(memory, layout) } {
            // SAFETY: the record of a live block, which does not change while the block is live.
            let block = unsafe { record.as_ref() };
            let room = block.granted.saturating_sub(offset(layout));
            // The block has room for the new size, and not much more than that.
            if size <= room && size >= room / 2 {
                // The caller's pointer may be one to fewer bytes. SAFETY: where the memory was before.
                return unsafe { block.ptr.as_ptr().add(offset(layout)) };
            }
        }
        // SAFETY: guaranteed by the caller: the new size is not zero.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: two distinct allocations, each of at least the copied length.
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
        orlop_testkit::aborts::assert_aborts("bare::global::tests::a_panic_inside_ends_the_process", || {
            let unwound = std::panic::catch_unwind(|| abort_on_unwind(|| panic!("inside")));
            assert!(unwound.is_err());
        });
    }
}
