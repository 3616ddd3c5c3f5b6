//! Hostile user code: every callback of an allocator does harm in turn, and the allocator stands it.
//!
//! An allocator calls its user in many places: observers, backings and their visitors, callbacks under pressure, warnings,
//! logs, whatever listens to `tracing`, destructors. Such code may panic, allocate from the allocator that called it,
//! return its blocks, drop the last handle, ask for figures, trim. For each callback (`callbacks.rs`) and each
//! [`Mischief`] the suite runs a program in which every third call does harm, and then holds the allocator to this:
//!
//! * nothing waited for ever: each program has a watchdog, which names it;
//! * a panic came out only if it was the callback's own;
//! * a refusal said [out of memory](orlop_alloc::Error::OutOfMemory), [called from inside](orlop_alloc::Error::Reentrant),
//!   or that the backing [cannot zero](orlop_alloc::Error::CannotZero);
//! * the invariants hold, live bytes add up, blocks have what their owners wrote;
//! * it works: what is asked for is there, what comes back is taken;
//! * nothing is lost: with the last handle and block everything is back at the backing, and the engine is gone.

mod backing;
mod callbacks;
mod course;
mod scene;

use self::callbacks::{CALLBACKS, HostileCallback};
pub use self::scene::{Mischief, Struck};
use self::scene::{PERIOD, Scene};
use crate::backings::{BackingCounters, CountingBacking};
use crate::{ConformanceFault, SuiteProfile};
use orlop_alloc::AllocatorRef;
use orlop_alloc::backing::BackingRef;
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// A program that takes longer waits for ever: it takes a few milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Threads that wait for ever are left behind: after so many the suite ends.
const MAX_HANGS: usize = 2;

/// How allocators are made, from any thread.
pub(super) enum HostileMaker {
    Alone(Box<dyn Fn() -> AllocatorRef + Send + Sync>),
    Over {
        base: Box<dyn Fn() -> BackingRef + Send + Sync>,
        make: Box<dyn Fn(BackingRef) -> AllocatorRef + Send + Sync>,
    },
}

/// A fresh allocator.
pub(super) struct HostileRig {
    allocator: AllocatorRef,
    /// What it holds from its backing, if that is in our hands.
    counts: Option<Arc<BackingCounters>>,
    /// Kept until the program is over.
    kept: Vec<Box<dyn Any>>,
}

impl HostileMaker {
    fn plain(&self) -> HostileRig {
        self.with(|backing| backing)
    }

    /// With something between the engine and its backing, if that is in our hands.
    fn with(&self, between: impl FnOnce(BackingRef) -> BackingRef) -> HostileRig {
        match self {
            Self::Alone(make) => HostileRig { allocator: make(), counts: None, kept: Vec::new() },
            Self::Over { base, make } => {
                let (counting, counts) = CountingBacking::new(base());
                let allocator = make(between(Arc::new(counting)));
                HostileRig { allocator, counts: Some(counts), kept: Vec::new() }
            }
        }
    }

    /// The same, where there is a backing in our hands.
    fn over(&self, between: impl FnOnce(BackingRef) -> BackingRef) -> Option<HostileRig> {
        matches!(self, Self::Over { .. }).then(|| self.with(between))
    }
}

/// Runs the suite over the allocators that `make` makes, a fresh one for each program.
///
/// ```
/// use orlop_alloc::backing::System;
/// use orlop_alloc::engine::Direct;
/// use orlop_testkit::{SuiteProfile, hostile};
///
/// hostile("direct", SuiteProfile::strict(), || Direct::new(System::new()).erase());
/// ```
///
/// # Panics
///
/// If a program fails, with the name, each callback and mischief that failed, and why.
pub fn hostile(name: &str, profile: SuiteProfile, make: impl Fn() -> AllocatorRef + Send + Sync + 'static) {
    run(name, profile, HostileMaker::Alone(Box::new(make)));
}

/// The same over a backing in the suite's hands, which counts regions and does harm itself. `make` gets that backing,
/// `base` makes what is under it.
///
/// # Panics
///
/// As [`hostile`].
pub fn hostile_over(
    name: &str,
    profile: SuiteProfile,
    base: impl Fn() -> BackingRef + Send + Sync + 'static,
    make: impl Fn(BackingRef) -> AllocatorRef + Send + Sync + 'static,
) {
    run(name, profile, HostileMaker::Over { base: Box::new(base), make: Box::new(make) });
}

fn run(name: &str, profile: SuiteProfile, maker: HostileMaker) {
    let maker = Arc::new(maker);
    let (mut failed, mut hangs) = (Vec::new(), 0);
    for (number, &callback) in CALLBACKS.iter().enumerate() {
        let mut strikes = None;
        for (turn, mischief) in Mischief::ALL.into_iter().enumerate() {
            for phase in phases(mischief, number + turn) {
                let maker = Arc::clone(&maker);
                match watched(move || play(&maker, profile, callback, mischief, phase)) {
                    Ok(None) => {}
                    Ok(Some(more)) => strikes = Some(strikes.unwrap_or(0) + more),
                    Err(why) => {
                        hangs += usize::from(matches!(why, HostileFailure::Hang));
                        failed.push(format!("{name}: {}, {mischief:?}, {phase}: {why}", callback.0));
                    }
                }
                if hangs == MAX_HANGS {
                    failed.push("and what else there is was not tried".to_owned());
                    panic!("{}", failed.join("\n"));
                }
            }
        }
        if strikes == Some(0) {
            failed.push(format!("{name}: {} was never called", callback.0));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Which of the calls do harm: panics are tried at each, the others at one of them in turn.
fn phases(mischief: Mischief, turn: usize) -> Range<u64> {
    let phase = turn as u64 % PERIOD;
    if mischief == Mischief::Panic { 0..PERIOD } else { phase..phase + 1 }
}

/// The reason why a hostile program failed.
#[derive(Debug, thiserror::Error)]
enum HostileFailure {
    #[error("{0}")]
    Fault(#[from] ConformanceFault),
    #[error("panicked: {0}")]
    Panic(Box<str>),
    #[error("it waits for ever")]
    Hang,
}

/// Runs a program on a thread of its own, which is left behind if it waits for ever.
fn watched<T: Send + 'static>(
    program: impl FnOnce() -> Result<T, ConformanceFault> + Send + 'static,
) -> Result<T, HostileFailure> {
    let (sender, receiver) = mpsc::channel();
    let runner = thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(program));
        let result = match result {
            Ok(result) => result.map_err(HostileFailure::Fault),
            Err(panic) => Err(HostileFailure::Panic(super::message(&*panic).into())),
        };
        // Nobody listens only if this came too late.
        let _ = sender.send(result);
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => {
            // The thread's own destructors are part of the program.
            let ended = runner.join().map_err(|panic| HostileFailure::Panic(super::message(&*panic).into()));
            ended.and(result)
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(HostileFailure::Hang),
    }
}

/// How often there was mischief, where the callback can be had.
fn play(
    maker: &HostileMaker,
    profile: SuiteProfile,
    (_, install): HostileCallback,
    mischief: Mischief,
    phase: u64,
) -> Result<Option<u64>, ConformanceFault> {
    let scene = Scene::new(mischief, phase);
    let Some(rig) = install(maker, &scene) else { return Ok(None) };
    course::run(rig, &scene, profile)?;
    Ok(Some(scene.strikes()))
}
