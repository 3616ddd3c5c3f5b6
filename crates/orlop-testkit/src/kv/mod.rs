//! One suite for managers of paged KV memory: bugs that managers had, as cases from public reports.
//!
//! A manager is put through it by one adaptor, [`KvManager`]. The suite plays an engine whose steps run as
//! late as they may: 0, 1 or 2 steps after they were closed. Each slot of the device's memory is stamped with
//! the tokens, the position and the group that it was written for, and every read is checked, so that a page
//! that was handed out too early, shared wrongly or not copied is found without a model. Pages that are
//! handed out are cleared at once, on another stream than that of the steps. The [device](KvDevice) is one in
//! host memory, or another one that checks the order of streams itself.
//!
//! Each case is run in pools of 1, 2, 3 and more blocks. Below the smallest pool that suffices the manager
//! must refuse, and be consistent afterwards; in all larger ones the case must pass.
//!
//! ```ignore
//! kv_conformance::<MyManager>();
//! ```

mod cases;
mod device;
mod manager;
mod serving;

pub use self::device::{CLEARED, HostKvDevice, KvDevice, KvLaunch};
pub use self::manager::{
    KvBooks, KvCopy, KvGroupSpec, KvLayers, KvManager, KvPrompt, KvRefusal, KvSetup, KvTruncation,
};
pub use self::serving::Serving;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The blocks of the largest pool that a case is tried in.
const MAX_BLOCKS: u32 = 96;

/// What a case did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvOutcome {
    /// It passed in pools of this number of blocks and more.
    Passed {
        /// The blocks of the smallest pool.
        blocks: u32,
    },
    /// The manager does not have such groups or such a function.
    Unsupported,
    /// It failed.
    Failed {
        /// The blocks of the pool.
        blocks: u32,
        /// What was wrong.
        message: String,
    },
}

/// The result of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvResult {
    /// The name of the case.
    pub case: &'static str,
    /// The public reports that it retells.
    pub reports: &'static str,
    /// Steps in flight.
    pub lag: u32,
    /// What it did.
    pub outcome: KvOutcome,
}

/// Runs all cases with 0, 1 and 2 steps in flight, and returns their results.
#[must_use]
pub fn run_kv_suite<M: KvManager>() -> Vec<KvResult> {
    let mut results = Vec::new();
    for case in cases::all::<M>() {
        for lag in 0..=2 {
            let outcome = run_case(&case, lag);
            results.push(KvResult { case: case.name, reports: case.reports, lag, outcome });
        }
    }
    results
}

/// Runs all cases.
///
/// # Panics
/// If a case fails, or does not pass in as many blocks as it should take.
pub fn kv_conformance<M: KvManager>() {
    let results = run_kv_suite::<M>();
    let failed: Vec<&KvResult> =
        results.iter().filter(|result| matches!(result.outcome, KvOutcome::Failed { .. })).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

fn run_case<M: KvManager>(case: &cases::KvCase<M>, lag: u32) -> KvOutcome {
    let mut smallest = None;
    for blocks in 1..=MAX_BLOCKS {
        // Around the smallest pool every size counts; above it, a few do.
        if smallest.is_some_and(|smallest| blocks > smallest + 2 && !blocks.is_power_of_two()) {
            continue;
        }
        let setup = KvSetup { blocks, lag, ..(case.setup)() };
        let Some(mut serving) = Serving::<M>::new(setup) else { return KvOutcome::Unsupported };
        let played = catch_unwind(AssertUnwindSafe(|| {
            let played = (case.run)(&mut serving);
            serving.check();
            played
        }));
        let failed = |message: String| KvOutcome::Failed { blocks, message };
        match played {
            Ok(Ok(())) => smallest = smallest.or(Some(blocks)),
            Ok(Err(KvRefusal::Unsupported)) => return KvOutcome::Unsupported,
            Ok(Err(refusal)) if smallest.is_some() => {
                return failed(format!("{refusal:?}, and fewer blocks were enough"));
            }
            Ok(Err(_)) => {}
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                return failed(text.unwrap_or_else(|| "a panic".into()));
            }
        }
    }
    match smallest {
        Some(blocks) if lag > 0 || blocks <= case.blocks => KvOutcome::Passed { blocks },
        Some(blocks) => {
            KvOutcome::Failed { blocks, message: format!("{} blocks should be enough", case.blocks) }
        }
        None => KvOutcome::Failed { blocks: MAX_BLOCKS, message: "refused in every pool".into() },
    }
}
