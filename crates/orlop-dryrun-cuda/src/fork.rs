//! Forks: the lock of the machine is free in the child, which cannot use CUDA if its parent initialized it.

use crate::call;
use crate::machine::Machine;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{MutexGuard, Once};

/// Whether this process used CUDA. Relaxed: a fork copies what the forking thread sees.
static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that used CUDA. Written by the one thread of a new process.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The lock, while the thread forks.
    static HELD: RefCell<Option<MutexGuard<'static, Option<Machine>>>> = const { RefCell::new(None) };
}

/// Notes that the process uses CUDA. Returns `false` if it cannot.
pub(crate) fn initialize() -> bool {
    IS_INITIALIZED.store(true, Relaxed);
    !IS_FORKED.load(Relaxed)
}

/// Says whether the process used CUDA, and returns whether it had, as numbers. The code that starts the
/// recording uses CUDA where the program does not.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn orlop_dry_run_swap_use(is_used: i32) -> i32 {
    i32::from(IS_INITIALIZED.swap(is_used != 0, Relaxed))
}

/// Makes forks hold the lock, so that no other thread has it when the process is copied.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    // SAFETY: the handlers have this type, and this library is not unloaded. The child's handler only writes
    // to memory of its own.
    WATCHED.call_once(|| match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => {}
        code => eprintln!("orlop dry-run: forks are not watched: error {code}"),
    });
}

extern "C" fn prepare() {
    // The variable is created before the lock is taken: that takes the loader's lock.
    HELD.with_borrow_mut(|held| *held = Some(call::lock()));
}

extern "C" fn parent() {
    HELD.with_borrow_mut(|held| *held = None);
}

extern "C" fn child() {
    parent();
    IS_FORKED.store(IS_INITIALIZED.load(Relaxed), Relaxed);
}
