//! Fork handlers: the child of a `fork` gets an allocator that works, whatever the other threads were doing.
//!
//! `fork` copies all memory as it is, and one thread. A lock that another thread held stays locked in the copy, and what
//! it was changing stays half changed. So before a fork the engine's locks are taken, in the order in which its own ways
//! take them (growth, slots, heap, figures), and after it they are let go, in the parent and in the child. That is what
//! `pthread_atfork` is for.
//!
//! # Several engines
//!
//! The latest is held first: an engine over memory of another waits for the other, never the other way round, and the
//! other is older. Rust's global allocator is held last, for the others' records may come from there.
//!
//! # What the handlers may not do
//!
//! Allocate from what is held. They make room for their notes before they take the first lock; and where the engine is
//! Rust's global allocator, this thread's allocations are the system's meanwhile.

use super::Caching;
use super::index::ClassIndex;
use super::thread_cache::Front;
use crate::backing::Backing;
use crate::bare::{GlobalAllocator, SystemScope};
use crate::central::heap::Heap;
use crate::{Error, Result};
use orlop_sync::{GrowableHeap, MutexGuard, QuiescedCounters, ShardedCounters};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The engines that are held over forks, in the order of their numbers.
static ENGINES: Mutex<Vec<Engine>> = Mutex::new(Vec::new());

fn engines() -> std::sync::MutexGuard<'static, Vec<Engine>> {
    ENGINES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Engine {
    number: u64,
    parts: Parts,
}

/// The number of the global allocator's, which is never taken out. An engine with this number is not in the list.
const GLOBAL: u64 = 0;

/// Where the locks of an engine are. Invariant: they are there while the engine is in the list.
#[derive(Debug, Clone, Copy)]
struct Parts {
    counters: NonNull<ShardedCounters<Front>>,
    heap: NonNull<GrowableHeap<Heap<ClassIndex>>>,
}

// SAFETY: shared access from any thread, as the engine itself gives: it is `Sync`.
unsafe impl Send for Parts {}

/// The locks of one engine, taken. Fields in the order in which they are let go.
#[derive(Debug)]
struct Held {
    heap: MutexGuard<'static, Heap<ClassIndex>>,
    slots: QuiescedCounters<'static, Front>,
    growth: MutexGuard<'static, ()>,
}

impl Held {
    /// # Safety
    ///
    /// The engine is in the list until this is gone.
    unsafe fn take(parts: Parts) -> Self {
        // SAFETY: the invariant of `Parts`, and the caller's promise.
        let heap: &'static GrowableHeap<_> = unsafe { parts.heap.as_ref() };
        // SAFETY: as above.
        let counters: &'static ShardedCounters<_> = unsafe { parts.counters.as_ref() };
        let growth = heap.stop_growing();
        let slots = counters.quiesce();
        Self { heap: heap.lock(), slots, growth }
    }

    fn release_alone(self) {
        let Self { heap, slots, growth } = self;
        drop(heap);
        slots.release_alone();
        drop(growth);
    }
}

/// Everything that is held during one fork. Fields in the order in which they are let go.
struct Fork {
    held: Vec<Held>,
    _system: Option<SystemScope>,
    _engines: std::sync::MutexGuard<'static, Vec<Engine>>,
}

thread_local! {
    /// What the thread holds that is about to fork, and of its copy afterwards.
    static FORK: RefCell<Option<Fork>> = const { RefCell::new(None) };
}

impl Parts {
    /// # Safety
    ///
    /// The engine does not move, and is taken out of the list before it goes.
    unsafe fn of<B: Backing>(engine: &Caching<B>) -> Self {
        Self { counters: NonNull::from(&engine.counters), heap: NonNull::from(&engine.heap) }
    }
}

impl<B: Backing> Caching<B> {
    /// From now on a fork waits until no thread is inside.
    ///
    /// # Safety
    ///
    /// The engine does not move any more.
    pub(super) unsafe fn hold_over_forks(&self) -> Result<()> {
        register_handlers()?;
        let mut engines = engines();
        let number = engines.last().map_or(GLOBAL, |last| last.number) + 1;
        // SAFETY: it does not move (the caller's promise), and `end_forks` is called when it is dropped.
        engines.push(Engine { number, parts: unsafe { Parts::of(self) } });
        // Relaxed: read when the engine is dropped, which comes after all that was done with it.
        self.forks.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the engine out of the list; it is about to go.
    pub(super) fn end_forks(&self) {
        let number = self.forks.load(Ordering::Relaxed);
        if number != GLOBAL {
            engines().retain(|engine| engine.number != number);
        }
    }
}

impl GlobalAllocator {
    /// From now on the child of a fork has a global allocator that works, whatever other threads were doing: see
    /// [`CachingBuilder::fork_safe`](crate::caching::CachingBuilder::fork_safe).
    ///
    /// # Errors
    ///
    /// [`Error::ForkHandlers`] if the system registers no more handlers.
    pub fn hold_over_forks() -> Result<()> {
        // Made before the list is locked, for what is allocated meanwhile comes from there.
        let engine = Self::engine();
        register_handlers()?;
        let mut engines = engines();
        if engines.first().is_none_or(|first| first.number != GLOBAL) {
            // SAFETY: it never goes.
            engines.insert(0, Engine { number: GLOBAL, parts: unsafe { Parts::of(engine) } });
        }
        Ok(())
    }
}

fn register_handlers() -> Result<()> {
    static CODE: OnceLock<i32> = OnceLock::new();
    // SAFETY: functions that live as long as the program.
    let code = *CODE.get_or_init(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child))
    });
    if code == 0 { Ok(()) } else { Err(Error::ForkHandlers { code }) }
}

extern "C" fn before() {
    // Not so in a thread that is about to end, from where nobody forks.
    let _ = FORK.try_with(|fork| {
        let engines = engines();
        // The notes are the system's, and so is what other handlers allocate meanwhile.
        let system = SystemScope::begin();
        let mut held = Vec::with_capacity(engines.len());
        for engine in engines.iter().rev() {
            // SAFETY: the list is locked until all of this is gone.
            held.push(unsafe { Held::take(engine.parts) });
        }
        *fork.borrow_mut() = Some(Fork { held, _system: system, _engines: engines });
    });
}

extern "C" fn after_in_parent() {
    let _ = FORK.try_with(|fork| drop(fork.borrow_mut().take()));
}

extern "C" fn after_in_child() {
    let _ = FORK.try_with(|fork| {
        if let Some(mut fork) = fork.borrow_mut().take() {
            fork.held.drain(..).for_each(Held::release_alone);
        }
    });
}
