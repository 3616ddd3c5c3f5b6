//! [`ThreadState`]: what a thread of the program did last, from which its next read of a device is answered.

use crate::state::sizes::SizeResult;

/// What calls of a thread left for its next ones. Threads that run models at once do not see each other's.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    /// The stub of the kernel that was launched last.
    pub(crate) last_kernel: usize,
    /// The result of that kernel, if sizes follow from it.
    pub(crate) size_result: Option<SizeResult>,
    /// What the next read of device memory at this address returns, as computed on the host.
    pub(crate) expected: Option<(usize, Vec<u8>)>,
    /// What the next size that follows from values is, as computed on the host.
    pub(crate) known_size: Option<u64>,
    /// The devices of the contexts below the current one.
    pub(crate) contexts: Vec<usize>,
}

/// Returns the number of this thread. A thread variable with this state would have a destructor, whose
/// registration takes the loader's lock.
pub(crate) fn number() -> i32 {
    // SAFETY: the call has no arguments and always succeeds.
    unsafe { libc::gettid() }
}
