//! Fork handlers: the child of a `fork` gets a working allocator, whatever the other threads were doing.
//!
//! `fork` copies all memory as it is, and one thread. A lock that another thread held stays locked in the
//! copy, and what that thread was changing stays half changed. So the engine's locks are taken before a fork,
//! in the order in which the engine itself takes them (growth, slots, heap), and released after it, in the
//! parent and in the child. `pthread_atfork` exists for this.
//!
//! # Several engines
//!
//! The latest engine is locked first: an engine over memory of another one waits for that, never the reverse,
//! and the other is older. Rust's global allocator is locked last, because records of the others may come
//! from it.
//!
//! # Forks inside a backing
//!
//! A backing, such as a visitor that starts a process, runs under a growth lock. The child has a copy of the
//! thread that holds it, and that thread releases it, so a fork leaves the lock alone. Such a thread waits
//! for no other growth lock: two of them would wait for each other. An engine that another thread is growing
//! at that moment is not locked, and the child must not use it.
//!
//! Any other fork waits for all growth locks, but without the lock of the list, which a backing may need to
//! register an engine or to drop one: it releases everything and tries again.
//!
//! # What the handlers must not do
//!
//! They must not allocate from a locked engine. They allocate what they need before they take the first lock;
//! and where the engine is Rust's global allocator, the system serves this thread's allocations meanwhile.

use super::Caching;
use super::index::ClassIndex;
use super::thread_cache::ThreadCache;
use crate::backing::{Backing, is_inside_backing};
use crate::bare::{GlobalAllocator, SystemScope};
use crate::bfc::heap::Heap;
use crate::{Error, Result};
use orlop_sync::{ColdMutexGuard, GrowableHeap, MutexGuard, QuiescedCounters, ShardedCounters};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The fork-safe engines, in the order of their numbers.
static ENGINES: Mutex<Vec<Engine>> = Mutex::new(Vec::new());

fn engines() -> std::sync::MutexGuard<'static, Vec<Engine>> {
    ENGINES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Engine {
    number: u64,
    pointers: LockPointers,
}

/// The number of the global allocator, which is never removed. In an engine's `fork_number`: not in the list.
const GLOBAL: u64 = 0;

/// Pointers to the locks of an engine. Invariant: they are valid while the engine is in the list.
#[derive(Debug, Clone, Copy)]
struct LockPointers {
    counters: NonNull<ShardedCounters<ThreadCache>>,
    heap: NonNull<GrowableHeap<Heap<ClassIndex>>>,
}

// SAFETY: they give shared access from any thread, as the engine itself does: it is `Sync`.
unsafe impl Send for LockPointers {}

/// The locks of one engine. Fields are in the order in which they are released.
#[derive(Debug)]
struct EngineLocks {
    heap: MutexGuard<'static, Heap<ClassIndex>>,
    slots: QuiescedCounters<'static, ThreadCache>,
    /// `None` if the thread that forks is growing the engine.
    growth: Option<ColdMutexGuard<'static, ()>>,
}

impl EngineLocks {
    /// Returns `None` if another thread is growing the engine.
    ///
    /// # Safety
    ///
    /// The engine stays in the list until the result is dropped.
    unsafe fn acquire(pointers: LockPointers) -> Option<Self> {
        // SAFETY: the invariant of `LockPointers`; guaranteed by the caller.
        let heap: &'static GrowableHeap<_> = unsafe { pointers.heap.as_ref() };
        // SAFETY: as above.
        let counters: &'static ShardedCounters<_> = unsafe { pointers.counters.as_ref() };
        let growth = heap.try_stop_growing();
        if growth.is_none() && !heap.is_growing_here() {
            return None;
        }
        let slots = counters.quiesce();
        Some(Self { heap: heap.lock(), slots, growth })
    }

    /// # Safety
    ///
    /// This is the child of a `fork` before which the locks were acquired, and the calling thread is the only
    /// one.
    unsafe fn release_in_child(self) {
        let Self { heap, slots, growth } = self;
        drop(heap);
        // SAFETY: guaranteed by the caller.
        unsafe { slots.release_in_child() };
        drop(growth);
    }
}

/// Everything that is locked during one fork. Fields are in the order in which they are released.
struct ForkLocks {
    locks: Vec<EngineLocks>,
    _system: Option<SystemScope>,
    _list: std::sync::MutexGuard<'static, Vec<Engine>>,
}

impl ForkLocks {
    /// Returns `None` if the fork has to wait for an engine that another thread is growing.
    fn try_acquire() -> Option<Self> {
        let list = engines();
        // The system serves the vector below, and what other handlers allocate during the fork.
        let system = SystemScope::begin();
        let mut locks = Vec::with_capacity(list.len());
        for engine in list.iter().rev() {
            // SAFETY: the list stays locked until the locks are released.
            match unsafe { EngineLocks::acquire(engine.pointers) } {
                Some(acquired) => locks.push(acquired),
                None if is_inside_backing() => {}
                None => return None,
            }
        }
        Some(Self { locks, _system: system, _list: list })
    }
}

thread_local! {
    /// The locks of a thread between `before` and the handler after the fork; the child has a copy.
    static FORK: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

impl LockPointers {
    /// # Safety
    ///
    /// The engine does not move, and is removed from the list before it is dropped.
    unsafe fn of<B: Backing>(engine: &Caching<B>) -> Self {
        Self { counters: NonNull::from(&engine.counters), heap: NonNull::from(&engine.heap) }
    }
}

impl<B: Backing> Caching<B> {
    /// Adds the engine to the list, unless it is there.
    ///
    /// # Safety
    ///
    /// The engine does not move any more.
    pub(super) unsafe fn begin_forks(&self) -> Result<()> {
        register_handlers()?;
        let mut engines = engines();
        // Relaxed: it is written under the list's lock.
        if self.fork_number.load(Ordering::Relaxed) != GLOBAL {
            return Ok(());
        }
        let number = engines.last().map_or(GLOBAL, |last| last.number) + 1;
        // SAFETY: it does not move (guaranteed by the caller), and its destructor calls `end_forks`.
        engines.push(Engine { number, pointers: unsafe { LockPointers::of(self) } });
        // Relaxed: it is read by the destructor, which is ordered after every use of the engine.
        self.fork_number.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the engine from the list before it is dropped.
    pub(super) fn end_forks(&self) {
        let number = self.fork_number.load(Ordering::Relaxed);
        if number != GLOBAL {
            engines().retain(|engine| engine.number != number);
        }
    }
}

impl GlobalAllocator {
    /// Makes the global allocator work in the child of a fork, whatever other threads were doing: see
    /// [`AllocatorRef::hold_over_forks`](crate::AllocatorRef::hold_over_forks).
    ///
    /// # Errors
    ///
    /// [`Error::ForkHandlers`] if the system registers no more handlers.
    pub fn hold_over_forks() -> Result<()> {
        // Made before the list is locked, because allocations under that lock come from this engine.
        let engine = Self::engine();
        register_handlers()?;
        let mut engines = engines();
        if engines.first().is_none_or(|first| first.number != GLOBAL) {
            // SAFETY: the global engine is never dropped.
            engines.insert(0, Engine { number: GLOBAL, pointers: unsafe { LockPointers::of(engine) } });
        }
        Ok(())
    }
}

fn register_handlers() -> Result<()> {
    static CODE: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handlers are functions, valid as long as the program.
    let code = *CODE.get_or_init(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child))
    });
    if code == 0 { Ok(()) } else { Err(Error::ForkHandlers { code }) }
}

extern "C" fn before() {
    // Fails only in a thread that is ending, which does not fork.
    let _ = FORK.try_with(|fork| {
        let locks = loop {
            match ForkLocks::try_acquire() {
                Some(locks) => break locks,
                None => std::thread::yield_now(),
            }
        };
        *fork.borrow_mut() = Some(locks);
    });
}

extern "C" fn after_in_parent() {
    let _ = FORK.try_with(|fork| drop(fork.borrow_mut().take()));
}

extern "C" fn after_in_child() {
    let _ = FORK.try_with(|fork| {
        if let Some(mut fork) = fork.borrow_mut().take() {
            for locks in fork.locks.drain(..) {
                // SAFETY: the system calls this in the child, after `before` in its parent.
                unsafe { locks.release_in_child() };
            }
        }
    });
}
