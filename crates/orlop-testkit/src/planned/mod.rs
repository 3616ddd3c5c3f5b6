//! The conformance suite for planned memory: engines that lend tensors at places fixed in advance.
//!
//! | part | module |
//! |---|---|
//! | the engine under test | `engine` |
//! | its context, over a backing that the suite controls | `setup` |
//! | random declarations of buffers | `program` |
//! | the expected contents and addresses | `model` |
//! | the parts of the suite | `parts` |
//!
//! What the suite for allocators checks of blocks is checked here of lent tensors: they do not overlap while
//! they can be used, unless they are declared to; addresses are aligned, and the same in each step and run;
//! nothing but their users changes their contents; bytes are counted under the kind; a failure of the backing
//! is an error without effect; everything works in several threads and is released in any order.
//!
//! Not part of it: requests at the edges, raw pointers, trimming, peaks, stream uses and zeroing belong to
//! the allocator that the arenas come from. No planned memory is zeroed, persistent buffers neither: in half
//! of the programs it is dirty.

pub(crate) mod engine;
mod model;
mod parts;
mod program;
mod setup;

pub use self::engine::{LendRefusal, MakePlanned, PlannedEngine};
pub use self::program::{BufferDeclaration, BufferPlace, NEVER, declarations, memory_of};

use self::setup::PlannedSuite;
use crate::suite::run::run_parts;
use orlop_alloc::Error;
use orlop_context::Context;

/// Runs the suite over engines from `make`, which declares all buffers and reserves their memory from the
/// context. A buffer of steps that never end is persistent.
///
/// # Panics
///
/// If a part fails; the message names all failed parts with their faults.
pub fn planned_conformance(
    name: &str,
    make: impl Fn(&[BufferDeclaration], &Context) -> Result<Box<dyn PlannedEngine>, Error> + Sync,
) {
    run_parts(name, &PlannedSuite { name, make: &make }, parts::PARTS);
}
