//! A program that meets hostile callbacks, and what must be so afterwards.

use super::callbacks::BOUND;
use super::scene::{Scene, intact};
use super::{HostileRig, Struck};
use crate::SuiteProfile;
use crate::fault::{ConformanceFault, equal, rule};
use orlop_alloc::{Allocator, AllocatorRef, Error, Request};
use orlop_core::{Alignment, StreamId};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

/// From a thread's cache, from the heap, and by growth.
const SIZES: [usize; 5] = [48, 5000, 5000, 30_000, 120_000];

const ROUNDS: usize = 2;

pub(super) fn run(
    rig: HostileRig,
    scene: &Arc<Scene>,
    profile: SuiteProfile,
) -> Result<(), ConformanceFault> {
    let HostileRig { allocator, counts, kept } = rig;
    scene.give(allocator);
    scene.arm(true);
    let played = play(scene);
    scene.arm(false);
    drop(kept);
    scene.fault()?;
    played?;
    match scene.handle() {
        Some(allocator) => afterwards(&allocator, scene, profile)?,
        None => scene.take_blocks().into_iter().try_for_each(intact)?,
    }
    scene.abandon();
    let Some(counts) = counts else { return Ok(()) };
    counts.check_returned()?;
    rule("the engine goes with the last handle and block", Arc::strong_count(&counts) == 1)
}

/// Does something that may be unwound by a callback's panic, and by no other.
fn step(act: impl FnOnce() -> Result<(), ConformanceFault>) -> Result<(), ConformanceFault> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => result,
        Err(panic) if panic.is::<Struck>() => Ok(()),
        Err(panic) => resume_unwind(panic),
    }
}

fn play(scene: &Arc<Scene>) -> Result<(), ConformanceFault> {
    for round in 0..ROUNDS {
        for bytes in SIZES {
            allocate(scene, &Request::new(bytes))?;
        }
        give_back(scene, true)?;
        give_back(scene, false)?;
        allocate(scene, &Request::new(5000).zeroed())?;
        allocate(scene, &Request::new(2000).align(Alignment::PLANNED).stream(StreamId::DEFAULT))?;
        elsewhere(scene, round)?;
        with(scene, |allocator| {
            allocator.trim(0);
            Ok(())
        })?;
        // More than a limit or budget leaves, and more than there is.
        allocate(scene, &Request::new(BOUND - 1000).zeroed())?;
        allocate(scene, &Request::new(BOUND - 2000))?;
        allocate(scene, &Request::new(usize::MAX / 4))?;
        with(scene, |allocator| Ok(allocator.verify()?))?;
        with(scene, raw)?;
        while scene.live() > BOUND as u64 {
            give_back(scene, round % 2 == 0)?;
        }
    }
    Ok(())
}

fn allocate(scene: &Scene, request: &Request) -> Result<(), ConformanceFault> {
    with(scene, |allocator| scene.allocate(allocator, request))
}

/// Does something with the allocator, if it is still there.
fn with(
    scene: &Scene,
    act: impl FnOnce(&AllocatorRef) -> Result<(), ConformanceFault>,
) -> Result<(), ConformanceFault> {
    step(|| scene.handle().map_or(Ok(()), |allocator| act(&allocator)))
}

/// Returns a block with no handle in hand: the one of the scene may be the last.
fn give_back(scene: &Scene, newest: bool) -> Result<(), ConformanceFault> {
    step(|| scene.take_block(newest).map_or(Ok(()), intact))
}

/// Another thread returns a block and takes one, and does so again while it ends.
fn elsewhere(scene: &Arc<Scene>, round: usize) -> Result<(), ConformanceFault> {
    struct Last(Arc<Scene>);
    impl Drop for Last {
        fn drop(&mut self) {
            // A destructor that runs while its thread ends must not panic; what went wrong shows afterwards.
            let _shown_later = give_back(&self.0, true).and_then(|()| allocate(&self.0, &Request::new(700)));
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    let scene = Arc::clone(scene);
    let other = thread::spawn(move || {
        if round > 0 {
            LAST.with_borrow_mut(|last| *last = Some(Last(Arc::clone(&scene))));
        }
        give_back(&scene, true)?;
        allocate(&scene, &Request::new(5000))?;
        give_back(&scene, false)
    });
    other.join().unwrap_or(Err(ConformanceFault::Rule("no thread panics")))
}

/// Frees a bare address, and refuses one that is nobody's.
fn raw(allocator: &AllocatorRef) -> Result<(), ConformanceFault> {
    if !allocator.has_raw_deleter() {
        return Ok(());
    }
    let mut nowhere = 0u8;
    // SAFETY: breaks the promise on purpose: the address is no block's, and is refused.
    let refused = unsafe { allocator.free((&mut nowhere).into(), None) };
    rule("an address that is nobody's is refused", matches!(refused, Err(Error::ForeignPointer { .. })))
}

/// Nobody does harm any more.
fn afterwards(
    allocator: &AllocatorRef,
    scene: &Scene,
    profile: SuiteProfile,
) -> Result<(), ConformanceFault> {
    allocator.verify()?;
    if profile.counted {
        equal("live bytes after hostile callbacks", scene.live(), allocator.stats().live())?;
    }
    scene.take_blocks().into_iter().try_for_each(intact)?;
    for bytes in SIZES {
        let before = scene.live();
        scene.allocate(allocator, &Request::new(bytes).zeroed())?;
        rule("the allocator works after hostile callbacks", scene.live() > before || profile.limited)?;
    }
    scene.take_blocks().into_iter().try_for_each(intact)?;
    let totals = allocator.stats().totals.all;
    equal("live bytes with no block", 0, totals.live_bytes)?;
    equal("blocks that came back", totals.allocations, totals.frees)?;
    allocator.trim(0);
    if profile.trims_to_zero {
        equal("reserved bytes with no block, trimmed", 0, allocator.stats().usage.reserved)?;
    }
    Ok(allocator.verify()?)
}
