//! A program with hostile callbacks, and its final checks.

use super::callbacks::BOUND;
use super::setup::HostileSetup;
use super::state::{HostileState, InjectedPanic, intact};
use crate::SuiteProfile;
use crate::fault::{ConformanceFault, equal, rule};
use orlop_alloc::{Allocator, AllocatorRef, Error, Request};
use orlop_core::{Alignment, StreamId};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

/// Sizes from a thread cache, from the heap, and by growth.
const SIZES: [usize; 5] = [48, 5000, 5000, 30_000, 120_000];

const ROUNDS: usize = 2;

pub(super) fn run(
    setup: HostileSetup,
    state: &Arc<HostileState>,
    profile: SuiteProfile,
) -> Result<(), ConformanceFault> {
    let HostileSetup { allocator, counts, kept } = setup;
    state.give(allocator);
    state.arm(true);
    let played = play(state);
    state.arm(false);
    drop(kept);
    state.fault()?;
    played?;
    match state.handle() {
        Some(allocator) => afterwards(&allocator, state, profile)?,
        None => state.take_blocks().into_iter().try_for_each(intact)?,
    }
    state.abandon();
    let Some(counts) = counts else { return Ok(()) };
    counts.check_returned()?;
    rule("the engine is dropped with the last handle and block", Arc::strong_count(&counts) == 1)
}

/// Runs an action that only a callback's own panic may unwind.
fn step(act: impl FnOnce() -> Result<(), ConformanceFault>) -> Result<(), ConformanceFault> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => result,
        Err(panic) if panic.is::<InjectedPanic>() => Ok(()),
        Err(panic) => resume_unwind(panic),
    }
}

fn play(state: &Arc<HostileState>) -> Result<(), ConformanceFault> {
    for round in 0..ROUNDS {
        for bytes in SIZES {
            allocate(state, &Request::new(bytes))?;
        }
        give_back(state, true)?;
        give_back(state, false)?;
        allocate(state, &Request::new(5000).zeroed())?;
        allocate(state, &Request::new(2000).align(Alignment::PLANNED).stream(StreamId::HOST))?;
        elsewhere(state, round)?;
        with(state, |allocator| {
            allocator.trim(0);
            Ok(())
        })?;
        // More than a limit or budget leaves, and more than there is.
        allocate(state, &Request::new(BOUND - 1000).zeroed())?;
        allocate(state, &Request::new(BOUND - 2000))?;
        allocate(state, &Request::new(usize::MAX / 4))?;
        with(state, |allocator| Ok(allocator.verify()?))?;
        with(state, raw)?;
        while state.live() > BOUND as u64 {
            give_back(state, round % 2 == 0)?;
        }
    }
    Ok(())
}

fn allocate(state: &HostileState, request: &Request) -> Result<(), ConformanceFault> {
    with(state, |allocator| state.allocate(allocator, request))
}

/// Runs an action with the allocator, if it still exists.
fn with(
    state: &HostileState,
    act: impl FnOnce(&AllocatorRef) -> Result<(), ConformanceFault>,
) -> Result<(), ConformanceFault> {
    step(|| state.handle().map_or(Ok(()), |allocator| act(&allocator)))
}

/// Frees a block without holding a handle: the state's may be the last one.
fn give_back(state: &HostileState, newest: bool) -> Result<(), ConformanceFault> {
    step(|| state.take_block(newest).map_or(Ok(()), intact))
}

/// Another thread frees a block and allocates one, and does so again while it ends.
fn elsewhere(state: &Arc<HostileState>, round: usize) -> Result<(), ConformanceFault> {
    struct StrikeAtThreadExit(Arc<HostileState>);
    impl Drop for StrikeAtThreadExit {
        fn drop(&mut self) {
            // A destructor that runs while its thread ends must not panic; the fault shows afterwards.
            let _shown_later = give_back(&self.0, true).and_then(|()| allocate(&self.0, &Request::new(700)));
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<StrikeAtThreadExit>> = const { std::cell::RefCell::new(None) };
    }
    let state = Arc::clone(state);
    let other = thread::spawn(move || {
        if round > 0 {
            LAST.with_borrow_mut(|last| *last = Some(StrikeAtThreadExit(Arc::clone(&state))));
        }
        give_back(&state, true)?;
        allocate(&state, &Request::new(5000))?;
        give_back(&state, false)
    });
    other.join().unwrap_or(Err(ConformanceFault::Rule("no thread panics")))
}

/// Frees a raw address, and rejects one that is no block's.
fn raw(allocator: &AllocatorRef) -> Result<(), ConformanceFault> {
    if !allocator.has_raw_deleter() {
        return Ok(());
    }
    let mut nowhere = 0u8;
    // SAFETY: violates the contract on purpose: the address is no block's, and is rejected.
    let refused = unsafe { allocator.free((&mut nowhere).into(), None) };
    rule("an address that is no block's is rejected", matches!(refused, Err(Error::ForeignPointer { .. })))
}

/// Checks the allocator with hostile code disabled.
fn afterwards(
    allocator: &AllocatorRef,
    state: &HostileState,
    profile: SuiteProfile,
) -> Result<(), ConformanceFault> {
    allocator.verify()?;
    if profile.counted {
        equal("live bytes after hostile callbacks", state.live(), allocator.stats().live())?;
    }
    state.take_blocks().into_iter().try_for_each(intact)?;
    for bytes in SIZES {
        let before = state.live();
        state.allocate(allocator, &Request::new(bytes).zeroed())?;
        rule("the allocator works after hostile callbacks", state.live() > before || profile.limited)?;
    }
    state.take_blocks().into_iter().try_for_each(intact)?;
    let totals = allocator.stats().totals.all;
    equal("live bytes with no block", 0, totals.live_bytes)?;
    equal("freed blocks", totals.allocations, totals.frees)?;
    allocator.trim(0);
    if profile.trims_to_zero {
        equal("reserved bytes with no block, trimmed", 0, allocator.stats().usage.reserved)?;
    }
    Ok(allocator.verify()?)
}
