//! A pair of fences of unequal cost.
//!
//! Two threads that each write one word and then read the other's (Dekker's handshake) need a full fence
//! between the two on both sides, or both may miss the other's write. Where one side runs constantly and the
//! other rarely, Linux lets the rare side pay for both: `membarrier(2)` makes every running thread of the
//! process execute a full fence, so the frequent side only has to keep the compiler from reordering the two
//! accesses. Under loom and Miri both functions are the full fence that they amount to.
//!
//! ThreadSanitizer does not model fences, and need not: fences decide which value each side reads, and the
//! side that then enters has read with acquire what the other stored with release. A model with a common word
//! would order more than that, and hide races.

pub use self::imp::{asymmetric, heavy, light, light_or_full, try_heavy};

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
mod imp {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    /// Set when the pair is known to work.
    static WORKS: AtomicBool = AtomicBool::new(false);

    // From `linux/membarrier.h`.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes two numbers and accesses no memory of this program. Kernels before 4.14 and
        // some sandboxes refuse it.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 }
    }

    /// Returns `true` if [`light`] and [`heavy`] work as a pair in this process. If not, `light` must not be
    /// relied on.
    pub fn asymmetric() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| {
            let works = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
            WORKS.store(works, Ordering::Relaxed);
            works
        })
    }

    /// Executes the frequent side's fence, between its write and its read.
    #[inline(always)]
    pub fn light() {
        compiler_fence(Ordering::SeqCst);
    }

    /// Executes the frequent side's fence, also where there is no asymmetric pair, or none that
    /// [`asymmetric`] has found yet.
    #[inline(always)]
    pub fn light_or_full() {
        // A full fence is right in either case.
        if WORKS.load(Ordering::Relaxed) { light() } else { fence(Ordering::SeqCst) }
    }

    /// Executes the rare side's fence, between its write and its read.
    pub fn heavy() {
        // It worked in `asymmetric`, before any code relied on it. A filter installed since then could
        // refuse, and continuing would be unsound.
        if !try_heavy() {
            std::process::abort();
        }
    }

    /// Executes the rare side's fence if the system does not refuse it. Returns `true` if it was executed.
    pub fn try_heavy() -> bool {
        if asymmetric() {
            return membarrier(PRIVATE_EXPEDITED);
        }
        fence(Ordering::SeqCst);
        true
    }
}

/// The full fence on both sides.
#[cfg(any(not(target_os = "linux"), loom, miri))]
mod imp {
    use crate::ordering;
    #[cfg(loom)]
    use loom::sync::atomic::fence;
    #[cfg(not(loom))]
    use std::sync::atomic::fence;

    /// Returns `true` under loom and Miri, which thus run the code that runs on Linux.
    pub fn asymmetric() -> bool {
        cfg!(any(loom, miri))
    }

    /// Executes the frequent side's fence, between its write and its read.
    pub fn light() {
        fence(ordering!("fence.light", SeqCst));
    }

    /// Executes the frequent side's fence, also where there is no asymmetric pair.
    pub fn light_or_full() {
        light();
    }

    /// Executes the rare side's fence, between its write and its read.
    pub fn heavy() {
        fence(ordering!("fence.heavy", SeqCst));
    }

    /// Executes the rare side's fence. Returns `true`.
    pub fn try_heavy() -> bool {
        heavy();
        true
    }
}
