//! The ids of threads.

use std::cell::Cell;

thread_local! {
    /// The id; 0 before it is known.
    static ID: Cell<u64> = const { Cell::new(0) };
}

/// Returns the operating system's id of the calling thread, as debuggers show it. Where the system has none,
/// it is a number that no other thread of the process has.
#[must_use]
pub fn os_thread_id() -> u64 {
    match ID.get() {
        0 => {
            let id = query();
            ID.set(id);
            id
        }
        id => id,
    }
}

#[cfg(target_os = "linux")]
fn query() -> u64 {
    // SAFETY: a query without arguments that cannot fail.
    u64::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn query() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static THREADS: AtomicU64 = AtomicU64::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed) + 1
}
