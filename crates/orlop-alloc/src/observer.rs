//! The hook through which recording sees every allocation; one relaxed load when nobody looks.

use crate::{Error, OutOfMemory, RawBlock};
use crate::context::LadderStep;
use orlop_core::MemoryKind;
use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

/// Something that happened in an allocator.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A block was handed out.
    Allocated {
        /// The block.
        block: &'a RawBlock,
        /// By whom.
        allocator: &'a str,
    },
    /// A block is coming back.
    Freed {
        /// The block.
        block: &'a RawBlock,
        /// To whom.
        allocator: &'a str,
    },
    /// A free was refused; the memory stays as it was.
    FreeRefused {
        /// Why.
        error: &'a Error,
        /// By whom.
        allocator: &'a str,
    },
    /// A request failed for good.
    OutOfMemory {
        /// The story.
        report: &'a OutOfMemory,
    },
    /// The reclaim ladder took a step for a request that did not fit.
    Reclaimed {
        /// Which.
        step: LadderStep,
        /// The kind that needed memory.
        kind: MemoryKind,
        /// Bytes that came back.
        bytes: u64,
    },
}

/// Is told what happens, on the thread where it happens, with no lock of the allocator held. It must be
/// quick, and must not allocate from the allocator it watches without expecting its own events.
pub trait Observer: Send + Sync {
    /// Takes note.
    fn observe(&self, event: &Event<'_>);
}

/// Where an observer is put. Reading costs one relaxed load while it is empty.
///
/// A removed observer is kept until the slot goes, because another thread may be calling it just then:
/// observers are set a few times in a program's life.
#[derive(Default)]
pub(crate) struct ObserverSlot {
    /// Null, or points into an element of `kept`.
    current: AtomicPtr<Arc<dyn Observer>>,
    #[expect(clippy::vec_box, reason = "`current` points at the boxed value, which must not move")]
    kept: Mutex<Vec<Box<Arc<dyn Observer>>>>,
}

impl ObserverSlot {
    #[inline]
    pub(crate) fn get(&self) -> Option<&dyn Observer> {
        if self.current.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // Acquire: pairs with the release in `set`, so that the observer's own data is seen.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: null (then `None`), or a pointer to a boxed element of `kept`, which is never removed or
        // changed before the slot itself goes, and `&self` outlives the reference.
        unsafe { current.as_ref() }.map(|observer| &**observer)
    }

    pub(crate) fn set(&self, observer: Option<Arc<dyn Observer>>) {
        let mut kept = self.kept.lock().unwrap_or_else(|e| e.into_inner());
        let current = match observer {
            Some(observer) => {
                kept.push(Box::new(observer));
                kept.last().map_or(std::ptr::null_mut(), |kept| (&raw const **kept).cast_mut())
            }
            None => std::ptr::null_mut(),
        };
        self.current.store(current, Ordering::Release);
    }
}

impl fmt::Debug for ObserverSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverSlot").field("observed", &self.get().is_some()).finish()
    }
}
