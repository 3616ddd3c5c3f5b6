//! The simulated device: addresses without memory, for replays and for tests that touch no memory.
//!
//! | module | what it holds |
//! |---|---|
//! | `null_device` | [`NullDevice`], the backing |
//! | `addresses` | which addresses it hands out: ascending, or as CUDA's driver places them |
//! | `completion_queue` | events that complete when they did in a recording |
//! | `restore` | an engine over it in the state that a snapshot shows |

mod addresses;
mod completion_queue;
mod null_device;
mod restore;

pub use self::null_device::NullDevice;
