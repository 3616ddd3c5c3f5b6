//! How much of the heap a call takes at most: what readers of lies must keep small.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static GLOBAL: Counting = Counting;

thread_local! {
    /// Bytes this thread has taken and not given back, and the most of them: both since [`peak_of`] looked.
    static LIVE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(bytes: isize) {
    let counted = LIVE.try_with(|live| {
        let now = live.get().0.wrapping_add(bytes);
        live.set((now, live.get().1.max(now)));
    });
    // Gone when the thread ends, and then nobody asks.
    counted.unwrap_or(());
}

fn size(layout: Layout) -> isize {
    isize::try_from(layout.size()).unwrap_or(isize::MAX)
}

// SAFETY: the system's allocator with sums beside it, which allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout));
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-size(layout));
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// The result of `f`, and the most bytes of the heap that this thread had at one time meanwhile.
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
