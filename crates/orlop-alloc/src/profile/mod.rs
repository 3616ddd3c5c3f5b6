//! Who holds the memory: what is still alive by tag, and what each step of a program needed (P23, P30).
//!
//! Both are observers and see every block of a context, or of one allocator, whatever the engines behind it:
//!
//! | question | answer |
//! |---|---|
//! | what was allocated since, and is still alive? | [`LeakCheck`] → [`Leaks`] |
//! | what did a step allocate, free, keep, and need at most? | [`MemorySteps`] → [`StepTable`] |
//! | for tensors of which shapes? | [`LiveBlock::shape`], [`MemorySteps::record_shapes`] |
//!
//! ```
//! use orlop_alloc::profile::{LeakCheck, MemorySteps, Observers};
//! use orlop_alloc::{Context, Request, Tag};
//! use orlop_core::Device;
//!
//! let context = Context::new();
//! let observers = Observers::on(&context);
//! let (leaks, steps) = (LeakCheck::with(&observers), MemorySteps::with(&observers));
//! let cache = {
//!     let _step = steps.step("forward");
//!     let _scratch = context.allocate(Device::CPU, &Request::new(1 << 20))?;
//!     context.allocate(Device::CPU, &Request::new(4096).tag(Tag::new("kv cache")))?
//! };
//! assert_eq!(steps.finished()[0].all.growth(), cache.capacity() as i64);
//! let leaks = leaks.finish();
//! assert_eq!(leaks.by_tag()[0].tag.name(), "kv cache");
//! println!("{steps}\n{leaks}");
//! # Ok::<(), orlop_alloc::Error>(())
//! ```
//!
//! # What it costs
//!
//! Nothing while nobody observes. Else allocators leave their quickest way, and each block costs a lock or two: right for
//! looking, wrong for timing.
//!
//! # Limits
//!
//! - A context or an allocator tells one observer. [`Observers`] takes its place, tells it too, and gives the place back
//!   in the end.
//! - Who sets an observer later takes the place in turn. Then blocks come and go unseen, and [`Observers::missed`] says how
//!   many did; that observer stays when the profiles end.
//! - Blocks of allocators that are not registered in the context, such as an arena over one of its blocks, are not seen:
//!   watch those with [`Observers::on_allocator`].
//! - The profiles keep their records on the heap: what serves the heap itself
//!   ([`bare::GlobalAllocator`](crate::bare::GlobalAllocator)) is not for them.

mod leak_report;
mod leaks;
mod memory_steps;
mod observers;
mod shapes;
mod step_table;
mod table;

pub use self::leak_report::{LeakGroup, Leaks};
pub use self::leaks::{LeakCheck, LiveBlock};
pub use self::memory_steps::{MemorySteps, Step, StepFigures, StepMemory};
pub use self::observers::{Listening, Observers};
pub use self::shapes::{ShapeFigures, TensorShape, of_shape, wants_shapes};
pub use self::step_table::{StepOrder, StepTable};

#[cfg(all(test, not(loom)))]
mod observer_tests;
#[cfg(all(test, not(loom)))]
mod tests;
