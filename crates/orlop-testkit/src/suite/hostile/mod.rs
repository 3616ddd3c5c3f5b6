//! Hostile user code in every callback of an allocator, in turn.
//!
//! An allocator calls user code in many places: observers, backings and their visitors, pressure callbacks,
//! warnings, logs, `tracing` subscribers, destructors. Such code may panic, allocate from the allocator that
//! called it, free its blocks, drop the last handle, read statistics, trim. For each callback
//! (`callbacks.rs`) and each [`HostileAction`] the suite runs a program in which every third call is hostile,
//! and then checks that:
//!
//! - nothing hangs: each program has a watchdog that names it;
//! - only the callback's own panics reached the caller;
//! - every error was [out of memory](orlop_alloc::Error::OutOfMemory), [called from
//!   inside](orlop_alloc::Error::Reentrant), or that the backing [cannot
//!   zero](orlop_alloc::Error::CannotZero);
//! - the invariants hold, live bytes add up, and blocks have the contents that their owners wrote;
//! - the allocator works: requests are granted and blocks are freed;
//! - nothing leaks: with the last handle and block everything is released, and the engine is dropped.

mod backing;
mod callbacks;
mod program;
mod setup;
mod state;

use self::callbacks::{CALLBACKS, HostileCallback};
use self::setup::HostileFactory;
pub use self::state::{HostileAction, InjectedPanic};
use self::state::{HostileState, PERIOD};
use super::run::message;
use crate::{ConformanceFault, SuiteProfile};
use orlop_alloc::AllocatorRef;
use orlop_alloc::backing::BackingRef;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The watchdog's timeout: a program takes a few milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Threads that hang are left behind: after this number the suite ends.
const MAX_HANGS: usize = 2;

/// Runs the suite over allocators from `make`, a new one for each program.
///
/// ```
/// use orlop_alloc::backing::System;
/// use orlop_alloc::engine::Direct;
/// use orlop_alloc::Allocator;
/// use orlop_testkit::{SuiteProfile, hostile};
///
/// hostile("direct", SuiteProfile::strict(), || Direct::new(System::new()).into_ref().erase());
/// ```
///
/// # Panics
///
/// If a program fails; the message names all failed callbacks and actions with their faults.
pub fn hostile(name: &str, profile: SuiteProfile, make: impl Fn() -> AllocatorRef + Send + Sync + 'static) {
    run(name, profile, HostileFactory::Alone(Box::new(make)));
}

/// Runs the suite over a backing that it controls, which counts regions and is hostile itself. `make` gets
/// that backing, and `base` creates the backing under it.
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
    run(name, profile, HostileFactory::Over { base: Box::new(base), make: Box::new(make) });
}

fn run(name: &str, profile: SuiteProfile, factory: HostileFactory) {
    let factory = Arc::new(factory);
    let (mut failed, mut hangs) = (Vec::new(), 0);
    for (number, &callback) in CALLBACKS.iter().enumerate() {
        let mut strikes = None;
        for (turn, action) in HostileAction::ALL.into_iter().enumerate() {
            for phase in phases(action, number + turn) {
                let factory = Arc::clone(&factory);
                match watched(move || play(&factory, profile, callback, action, phase)) {
                    Ok(None) => {}
                    Ok(Some(more)) => strikes = Some(strikes.unwrap_or(0) + more),
                    Err(why) => {
                        hangs += usize::from(matches!(why, HostileFailure::Hang));
                        failed.push(format!("{name}: {}, {action:?}, {phase}: {why}", callback.0));
                    }
                }
                if hangs == MAX_HANGS {
                    failed.push("and the remaining programs were not run".to_owned());
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

/// Returns the phases in which calls are hostile: all for panics, one in turn for the other actions.
fn phases(action: HostileAction, turn: usize) -> Range<u64> {
    let phase = turn as u64 % PERIOD;
    if action == HostileAction::Panic { 0..PERIOD } else { phase..phase + 1 }
}

/// The reason why a hostile program failed.
#[derive(Debug, thiserror::Error)]
enum HostileFailure {
    #[error("{0}")]
    Fault(#[from] ConformanceFault),
    #[error("panicked: {0}")]
    Panic(Box<str>),
    #[error("it hangs")]
    Hang,
}

/// Runs a program on a thread of its own, which is left behind if it hangs.
fn watched<T: Send + 'static>(
    program: impl FnOnce() -> Result<T, ConformanceFault> + Send + 'static,
) -> Result<T, HostileFailure> {
    let (sender, receiver) = mpsc::channel();
    let runner = thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(program));
        let result = match result {
            Ok(result) => result.map_err(HostileFailure::Fault),
            Err(panic) => Err(HostileFailure::Panic(message(&*panic).into())),
        };
        // The channel is closed only after the timeout.
        let _ = sender.send(result);
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => {
            // The thread's own destructors are part of the program.
            let ended = runner.join().map_err(|panic| HostileFailure::Panic(message(&*panic).into()));
            ended.and(result)
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(HostileFailure::Hang),
    }
}

/// Runs a program. Returns the number of hostile calls, or `None` if the allocator cannot have the callback.
fn play(
    factory: &HostileFactory,
    profile: SuiteProfile,
    (_, install): HostileCallback,
    action: HostileAction,
    phase: u64,
) -> Result<Option<u64>, ConformanceFault> {
    let state = HostileState::new(action, phase);
    let Some(setup) = install(factory, &state) else { return Ok(None) };
    program::run(setup, &state, profile)?;
    Ok(Some(state.strikes()))
}
