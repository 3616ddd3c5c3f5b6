//! The peak of a call's heap use, which readers of damaged files must keep small.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct CountingAlloc;

#[global_allocator]
static GLOBAL: CountingAlloc = CountingAlloc;

thread_local! {
    /// The live bytes of this thread and their peak, both since [`peak_of`] reset them.
    static LIVE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    let counted = LIVE.try_with(|live| {
        let now = live.get().0.wrapping_add(bytes);
        live.set((now, live.get().1.max(now)));
    });
    // The counter is gone while the thread ends, and is not read any more.
    counted.unwrap_or(());
}

fn size(layout: Layout) -> isize {
    isize::try_from(layout.size()).unwrap_or(isize::MAX)
}

// SAFETY: the system's allocator with counters, which allocate nothing.
unsafe impl GlobalAlloc for CountingAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout));
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-size(layout));
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Returns the result of `f`, and the peak of this thread's live heap bytes during the call.
pub(super) fn peak_of<R>(f: impl FnOnce() -> R) -> (R, usize) {
    LIVE.set((0, 0));
    let result = f();
    (result, usize::try_from(LIVE.get().1).unwrap())
}

#[test]
fn peaks() {
    let (_, peak) = peak_of(|| drop(vec![0u8; 5000]));
    assert!((5000..6000).contains(&peak), "{peak}");
}
