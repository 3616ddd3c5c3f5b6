//! Why requests were refused, by thread.
//!
//! An error of ONNX Runtime says only `std::bad_alloc`; the report is kept here until the call has returned.
//! Callbacks run on the thread of the call, so a thread's refusals are those of its own calls. They end with
//! the thread.

use crate::Error;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// What ONNX Runtime's error for an exception contains.
const EXCEPTION: &str = "bad_alloc";

thread_local! {
    /// The last refusal of each allocator on this thread.
    static REFUSALS: RefCell<Vec<(u64, orlop::memory::Error)>> = const { RefCell::new(Vec::new()) };
}

/// The last refusals of an allocator, one of each thread.
#[derive(Debug)]
pub(crate) struct ThreadRefusals {
    allocator: u64,
}

impl ThreadRefusals {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: numbers only need to differ.
        Self { allocator: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Keeps the refusal instead of the thread's last one. While the thread ends, it is dropped.
    pub(crate) fn keep(&self, refusal: orlop::memory::Error) {
        drop(self.take());
        let _ended = REFUSALS.try_with(|all| all.borrow_mut().push((self.allocator, refusal)));
    }

    /// Takes the last refusal of this thread.
    pub(crate) fn take(&self) -> Option<orlop::memory::Error> {
        let taken = REFUSALS.try_with(|all| {
            let mut all = all.borrow_mut();
            let at = all.iter().position(|(allocator, _)| *allocator == self.allocator)?;
            Some(all.swap_remove(at).1)
        });
        taken.ok().flatten()
    }

    /// Adds the reason to an error of ONNX Runtime, if that is a refused request.
    pub(crate) fn explain(&self, runtime: ort::Error) -> Error {
        let refusal = if runtime.to_string().contains(EXCEPTION) { self.take() } else { None };
        match refusal {
            Some(refusal) => Error::Refused { refusal, runtime },
            None => Error::Runtime(runtime),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> orlop::memory::Error {
        orlop::memory::Error::NoRawDeleter
    }

    #[test]
    fn a_refusal_is_of_its_thread_and_allocator() {
        let [refusals, other] = [(), ()].map(|()| ThreadRefusals::new());
        refusals.keep(refusal());
        refusals.keep(refusal());
        assert!(other.take().is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(refusals.take().is_none()));
        });
        assert!(refusals.take().is_some());
        assert!(refusals.take().is_none());
    }

    #[test]
    fn only_an_exception_is_explained_by_a_refusal() {
        let refusals = ThreadRefusals::new();
        refusals.keep(refusal());
        let unrelated = refusals.explain(ort::Error::new("Got invalid dimensions for input: x"));
        assert!(matches!(unrelated, Error::Runtime(_)), "{unrelated}");
        let refused = refusals.explain(ort::Error::new("Exception during run: std::bad_alloc"));
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        let unknown = refusals.explain(ort::Error::new("Exception during run: std::bad_alloc"));
        assert!(matches!(unknown, Error::Runtime(_)), "{unknown}");
    }
}
