//! What a callback has at hand, and the harm it does with it.

use crate::fault::{ConformanceFault, rule};
use crate::pattern;
use orlop_alloc::{Allocator, AllocatorRef, Block, Context, Error, Request};
use orlop_core::Device;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What user code does when it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mischief {
    /// It panics.
    Panic,
    /// It allocates from the allocator that called it, and keeps some of it.
    Allocate,
    /// It returns blocks of the allocator.
    Free,
    /// It drops the last handle that it can reach, and all blocks.
    Abandon,
    /// It asks for figures, verifies, trims, and sets another observer.
    Ask,
}

impl Mischief {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Panic, Self::Allocate, Self::Free, Self::Abandon, Self::Ask];
}

/// What a hostile callback panics with: no message, and a program can tell it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Struck;

/// A live block, and the seed of what is in it.
pub(super) type SeededBlock = (u64, Block);

/// So deep callbacks may cause themselves.
const DEPTH: u32 = 3;

/// Every so many calls there is mischief.
pub(super) const PERIOD: u64 = 3;

/// There is mischief so often at most: what an observer does may have consequences that it observes, without end.
const MAX_STRIKES: u64 = 100;

/// An allocator, its live blocks, and what befalls them. Callbacks reach it by an `Arc`.
#[derive(Debug)]
pub(super) struct Scene {
    mischief: Mischief,
    /// The calls whose number leaves this remainder.
    phase: u64,
    armed: AtomicBool,
    calls: AtomicU64,
    strikes: AtomicU64,
    seeds: AtomicU64,
    handle: Mutex<Option<AllocatorRef>>,
    /// What allocates, if it is not the handle.
    context: Mutex<Option<(Context, Device)>>,
    blocks: Mutex<Vec<SeededBlock>>,
    /// The first one, noted by a callback.
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

impl Scene {
    pub(super) fn new(mischief: Mischief, phase: u64) -> Arc<Self> {
        Arc::new(Self {
            mischief,
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

    /// How often there was mischief.
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

    /// Lets go of the allocator and of what leads to it.
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

    /// The sum of the capacities of all live blocks.
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

    /// A block full of its own pattern, kept among the live ones. A refusal is nobody's fault if it is out of memory, said to
    /// come from inside, or of a backing that could not zero.
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

    /// User code was called.
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
        if self.mischief == Mischief::Panic {
            resume_unwind(Box::new(Struck));
        }
        // Nobody else hears of a panic here: it would end at the allocator's shield.
        match catch_unwind(AssertUnwindSafe(|| self.harm())) {
            Ok(result) => self.blame(result),
            Err(panic) => {
                self.blame(Err(ConformanceFault::Rule("what a callback may call does not panic")));
                resume_unwind(panic);
            }
        }
    }

    /// What is done from inside a callback.
    fn harm(&self) -> Result<(), ConformanceFault> {
        let allocator = self.handle();
        match (self.mischief, allocator) {
            (Mischief::Free, _) => {
                self.take_block(true).map_or(Ok(()), intact)?;
                self.take_block(false).map_or(Ok(()), intact)
            }
            (Mischief::Abandon, allocator) => {
                let blocks = self.take_blocks();
                drop(allocator);
                self.abandon();
                blocks.into_iter().try_for_each(intact)
            }
            (Mischief::Allocate, Some(allocator)) => self.allocate_some(&allocator),
            (Mischief::Ask, Some(allocator)) => ask(&allocator),
            _ => Ok(()),
        }
    }

    fn allocate_some(&self, allocator: &AllocatorRef) -> Result<(), ConformanceFault> {
        for bytes in [48, 3000, 70_000] {
            self.allocate(allocator, &Request::new(bytes))?;
            // Not more and more: the oldest goes.
            self.take_block(false).map_or(Ok(()), intact)?;
        }
        Ok(())
    }
}

/// Every question, and what changes nothing that others could miss.
fn ask(allocator: &AllocatorRef) -> Result<(), ConformanceFault> {
    let stats = allocator.stats();
    rule("the table is printed", !stats.to_string().is_empty())?;
    allocator.verify()?;
    allocator.find(4096);
    allocator.device_memory();
    allocator.trim(0);
    allocator.reset_peaks();
    let observer = allocator.observer();
    allocator.set_observer(None);
    allocator.set_observer(observer);
    rule("the allocator says what it is", !format!("{allocator:?}").is_empty())
}

/// Returns a block, if nobody else has written there.
pub(super) fn intact((seed, block): SeededBlock) -> Result<(), ConformanceFault> {
    let address = block.as_ptr().as_ptr().addr();
    match block.bytes().ok().and_then(|bytes| pattern::difference(seed, bytes)) {
        None => Ok(()),
        Some((offset, expected, found)) => {
            Err(ConformanceFault::Changed { address, offset, expected, found })
        }
    }
}
