//! The state that hostile callbacks share, and their actions.

use crate::fault::{ConformanceFault, rule};
use crate::model::check_contents;
use crate::pattern;
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, Request};
use orlop_context::Context;
use orlop_core::Device;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What hostile user code does when it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostileAction {
    /// It panics.
    Panic,
    /// It allocates from the allocator that called it, and keeps some blocks.
    Allocate,
    /// It frees blocks of the allocator.
    Free,
    /// It drops the last handle that it can access, and all blocks.
    Abandon,
    /// It reads statistics, verifies, trims, and sets another observer.
    Query,
}

impl HostileAction {
    /// All actions.
    pub const ALL: [Self; 5] = [Self::Panic, Self::Allocate, Self::Free, Self::Abandon, Self::Query];
}

/// The payload of a hostile callback's panic: no message, and distinct from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InjectedPanic;

/// The seed of a live block's contents, and the block.
pub(super) type SeededBlock = (u64, Block);

/// The depth up to which callbacks may cause themselves.
const DEPTH: u32 = 3;

/// One in this number of calls is hostile.
pub(super) const PERIOD: u64 = 3;

/// The largest number of hostile calls: an observer's actions may be observed again, without end.
const MAX_STRIKES: u64 = 100;

/// An allocator and its live blocks. Callbacks access it through an `Arc`.
#[derive(Debug)]
pub(super) struct HostileState {
    action: HostileAction,
    /// The remainder of the numbers of hostile calls.
    phase: u64,
    armed: AtomicBool,
    calls: AtomicU64,
    strikes: AtomicU64,
    seeds: AtomicU64,
    handle: Mutex<Option<AllocatorRef>>,
    /// The context to allocate through, instead of the handle.
    context: Mutex<Option<(Context, Device)>>,
    blocks: Mutex<Vec<SeededBlock>>,
    /// The first fault in a callback.
    fault: Mutex<Option<ConformanceFault>>,
}

thread_local! {
    static DEEP: Cell<u32> = const { Cell::new(0) };
}

/// Counts a callback as running until dropped.
struct CallbackDepth;

impl Drop for CallbackDepth {
    fn drop(&mut self) {
        DEEP.set(DEEP.get() - 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostileState {
    pub(super) fn new(action: HostileAction, phase: u64) -> Arc<Self> {
        Arc::new(Self {
            action,
            phase,
            armed: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            strikes: AtomicU64::new(0),
            seeds: AtomicU64::new(1),
            handle: Mutex::default(),
            context: Mutex::default(),
            blocks: Mutex::default(),
            fault: Mutex::default(),
        })
    }

    pub(super) fn arm(&self, armed: bool) {
        self.armed.store(armed, Ordering::SeqCst);
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    /// Returns the number of hostile calls.
    pub(super) fn strikes(&self) -> u64 {
        self.strikes.load(Ordering::SeqCst)
    }

    pub(super) fn give(&self, handle: AllocatorRef) {
        *lock(&self.handle) = Some(handle);
    }

    pub(super) fn allocate_through(&self, context: Context, device: Device) {
        *lock(&self.context) = Some((context, device));
    }

    pub(super) fn handle(&self) -> Option<AllocatorRef> {
        lock(&self.handle).clone()
    }

    /// Drops the allocator and everything that leads to it.
    pub(super) fn abandon(&self) {
        let (handle, context) = (lock(&self.handle).take(), lock(&self.context).take());
        drop((handle, context));
    }

    pub(super) fn take_block(&self, newest: bool) -> Option<SeededBlock> {
        let mut blocks = lock(&self.blocks);
        if newest || blocks.is_empty() { blocks.pop() } else { Some(blocks.remove(0)) }
    }

    pub(super) fn take_blocks(&self) -> Vec<SeededBlock> {
        std::mem::take(&mut *lock(&self.blocks))
    }

    /// Returns the sum of the capacities of all live blocks.
    pub(super) fn live(&self) -> u64 {
        lock(&self.blocks).iter().map(|(_, block)| block.capacity() as u64).sum()
    }

    pub(super) fn fault(&self) -> Result<(), ConformanceFault> {
        lock(&self.fault).take().map_or(Ok(()), Err)
    }

    fn blame(&self, result: Result<(), ConformanceFault>) {
        if let Err(fault) = result {
            lock(&self.fault).get_or_insert(fault);
        }
    }

    /// Allocates a block with its own pattern and keeps it. Allowed errors are out of memory, called from
    /// inside, and a backing that cannot zero.
    pub(super) fn allocate(
        &self,
        allocator: &AllocatorRef,
        request: &Request,
    ) -> Result<(), ConformanceFault> {
        let context = lock(&self.context).clone();
        let result = match context {
            Some((context, device)) => context.allocate(device, request),
            None => allocator.allocate(request),
        };
        let mut block = match result {
            Ok(block) => block,
            Err(Error::OutOfMemory(_) | Error::Reentrant { .. } | Error::CannotZero { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let seed = self.seeds.fetch_add(1, Ordering::Relaxed);
        if let Ok(bytes) = block.bytes_mut() {
            rule("zeroed memory is zero", !request.zeroed || pattern::nonzero(bytes).is_none())?;
            pattern::fill(seed, bytes);
        }
        lock(&self.blocks).push((seed, block));
        Ok(())
    }

    /// Handles a call of user code.
    pub(super) fn strike(&self) {
        if !self.is_armed() || DEEP.get() >= DEPTH || std::thread::panicking() {
            return;
        }
        if self.calls.fetch_add(1, Ordering::SeqCst) % PERIOD != self.phase
            || self.strikes.fetch_add(1, Ordering::SeqCst) >= MAX_STRIKES
        {
            return;
        }
        DEEP.set(DEEP.get() + 1);
        let _inside = CallbackDepth;
        if self.action == HostileAction::Panic {
            resume_unwind(Box::new(InjectedPanic));
        }
        // A panic is caught here, because the allocator would catch it without a report.
        match catch_unwind(AssertUnwindSafe(|| self.harm())) {
            Ok(result) => self.blame(result),
            Err(panic) => {
                self.blame(Err(ConformanceFault::Rule("functions that a callback may call do not panic")));
                resume_unwind(panic);
            }
        }
    }

    /// Runs the action of a callback.
    fn harm(&self) -> Result<(), ConformanceFault> {
        let allocator = self.handle();
        match (self.action, allocator) {
            (HostileAction::Free, _) => {
                self.take_block(true).map_or(Ok(()), intact)?;
                self.take_block(false).map_or(Ok(()), intact)
            }
            (HostileAction::Abandon, allocator) => {
                let blocks = self.take_blocks();
                drop(allocator);
                self.abandon();
                blocks.into_iter().try_for_each(intact)
            }
            (HostileAction::Allocate, Some(allocator)) => self.allocate_some(&allocator),
            (HostileAction::Query, Some(allocator)) => query(&allocator),
            _ => Ok(()),
        }
    }

    fn allocate_some(&self, allocator: &AllocatorRef) -> Result<(), ConformanceFault> {
        for bytes in [48, 3000, 70_000] {
            self.allocate(allocator, &Request::new(bytes))?;
            // The number of blocks stays bounded: the oldest is freed.
            self.take_block(false).map_or(Ok(()), intact)?;
        }
        Ok(())
    }
}

/// Calls all queries, and everything without a lasting effect.
fn query(allocator: &AllocatorRef) -> Result<(), ConformanceFault> {
    let stats = allocator.stats();
    rule("the table is printed", !stats.to_string().is_empty())?;
    allocator.verify()?;
    allocator.find(4096);
    allocator.device_memory();
    allocator.trim(0);
    allocator.reset_peaks();
    for observer in allocator.observers() {
        allocator.remove_observer(&observer);
        allocator.add_observer(observer);
    }
    rule("the allocator has a debug form", !format!("{allocator:?}").is_empty())
}

/// Frees a block after a check of its contents.
pub(super) fn intact((seed, block): SeededBlock) -> Result<(), ConformanceFault> {
    check_contents(&block, seed)
}
