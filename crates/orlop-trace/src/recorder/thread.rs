//! The state of the current thread: its number, and whether it is recording.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers have 24 bits in a record; they wrap around after that many threads.
const NUMBERS: u32 = (1 << 24) - 1;

/// Set while the thread may allocate on behalf of the recorder.
const BUSY: u32 = 1 << 31;

thread_local! {
    /// The number, from 1; 0 if not assigned yet. One word without a destructor: it can be read while the
    /// thread ends.
    static STATE: Cell<u32> = const { Cell::new(0) };
}

/// Returns the current thread's number, or `None` while it is recording: its allocations are then not
/// recorded.
#[inline]
pub(super) fn number() -> Option<u32> {
    let state = STATE.get();
    if state.wrapping_sub(1) < NUMBERS { Some(state) } else { unusual(state) }
}

#[cold]
fn unusual(state: u32) -> Option<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if state != 0 {
        return None;
    }
    // Relaxed: numbers only need to differ.
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % NUMBERS + 1;
    STATE.set(number);
    Some(number)
}

/// Marks the current thread as recording until it is dropped.
#[derive(Debug)]
pub(super) struct RecordingGuard {
    before: u32,
}

impl RecordingGuard {
    pub(super) fn begin() -> Self {
        let before = STATE.get();
        STATE.set(before | BUSY);
        Self { before }
    }
}

impl Drop for RecordingGuard {
    fn drop(&mut self) {
        STATE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_numbers_and_none_while_busy() {
        let mine = number().unwrap();
        assert_eq!(number(), Some(mine));
        let busy = RecordingGuard::begin();
        drop(RecordingGuard::begin());
        assert_eq!(number(), None);
        drop(busy);
        assert_eq!(number(), Some(mine));
        let other = std::thread::spawn(number).join().unwrap();
        assert_ne!(other, Some(mine));
    }
}
