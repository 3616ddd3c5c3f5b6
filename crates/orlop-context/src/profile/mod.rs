//! Memory profiles: live blocks by tag, and the memory that each step of a program uses.
//!
//! Both profiles are observers. They see every block of a context, or of one allocator, whatever the engine:
//!
//! | question | answer |
//! |---|---|
//! | Which blocks were allocated in a span of time, and are still live? | [`LeakCheck`] → [`Leaks`] |
//! | What did a step allocate, free and keep, and what was its peak? | [`MemorySteps`] → [`StepTable`] |
//! | How long did it take, on the host and on a device? | [`StepMemory`], [`MemorySteps::time_on`] |
//! | For tensors of which shapes? | [`LiveBlock::shape`], [`MemorySteps::record_shapes`] |
//!
//! ```
//! use orlop_context::profile::{LeakCheck, MemorySteps};
//! use orlop_alloc::{Request, Tag};
//! use orlop_context::Context;
//! use orlop_core::Device;
//!
//! let context = Context::new();
//! let (leaks, steps) = (LeakCheck::on(&context), MemorySteps::on(&context));
//! let cache = {
//!     let _step = steps.step("forward");
//!     let _scratch = context.allocate(Device::CPU, &Request::new(1 << 20))?;
//!     context.allocate(Device::CPU, &Request::new(4096).tag(Tag::new("kv cache")))?
//! };
//! assert_eq!(steps.finished()[0].all.growth(), cache.capacity() as i64);
//! let leaks = leaks.finish();
//! assert_eq!(leaks.groups()[0].tag.name(), "kv cache");
//! println!("{steps}\n{leaks}");
//! # Ok::<(), orlop_alloc::Error>(())
//! ```
//!
//! # Cost
//!
//! Nothing without an observer. With one, allocators leave their fast path, and each block costs one or two
//! locks: suitable for analysis, not for timing.
//!
//! # Limits
//!
//! - Blocks of allocators that the context does not count, such as an arena over one of its blocks that was
//!   never passed to it, are not seen: use [`LeakCheck::on_allocator`] and [`MemorySteps::on_allocator`].
//! - The profiles allocate from the heap: do not watch the allocator that serves the heap itself
//!   ([`bare::GlobalAllocator`](orlop_alloc::bare::GlobalAllocator)).

mod device_time;
mod leak_report;
mod leaks;
mod memory_steps;
mod shapes;
mod step;
mod step_table;
mod table;
mod unread_spans;

pub use self::device_time::{DeviceClock, DeviceSpan};
pub use self::leak_report::{LeakGroup, Leaks, LiveBlock};
pub use self::leaks::LeakCheck;
pub use self::memory_steps::{MemoryStepGuard, MemorySteps};
pub use self::shapes::{ShapeStats, TensorShape, wants_shapes, with_shape};
pub use self::step::{StepMemory, StepStats};
pub use self::step_table::{StepOrder, StepTable};
