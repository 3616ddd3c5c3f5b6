//! What models use of the slots and safe code does not.

use super::Slots;

impl<V: Default, S: Default> Slots<V, S> {
    /// Runs `f` on the shared part of this thread's slot, and on whether [`Slots::seal_slots`] has visited
    /// it.
    #[doc(hidden)]
    pub fn with_seal<R>(&self, f: impl FnOnce(&S, bool) -> R) -> R {
        let guard = self.enter();
        f(guard.shared(), guard.is_sealed())
    }

    /// Seals every slot, as a close of counters does.
    #[doc(hidden)]
    pub fn seal_slots(&self, f: impl FnMut(&S)) {
        self.seal(f);
    }
}
