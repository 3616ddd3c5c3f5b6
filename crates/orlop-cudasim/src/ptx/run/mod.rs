//! The execution of a launch, thread by thread.
//!
//! | module | what it holds |
//! |---|---|
//! | `blocks` | the blocks of a launch, and their barriers |
//! | `warp` | what the threads of a warp do together |
//! | `thread` | one thread, up to its next barrier |
//! | `frame` | a function that a thread is in |
//! | `arithmetic`, `floats`, `atomics` | what instructions compute |
//! | `bytes` | the memory of a block and of a thread |
//! | `memory` | the accesses of a launch, and its memory |
//! | `races` | accesses of threads that nothing orders |

mod arithmetic;
mod atomics;
mod blocks;
mod bytes;
mod floats;
mod frame;
mod memory;
mod races;
mod thread;
mod warp;

pub(crate) use self::blocks::{Fault, Shape};
pub(crate) use self::bytes::MAX_DYNAMIC_SHARED;
pub(in crate::ptx) use self::bytes::{LOCAL_WINDOW, MAX_LOCAL, SHARED_WINDOW, SharedVariables};
#[cfg(test)]
pub(in crate::ptx) use self::memory::GlobalMemory;
pub(crate) use self::memory::{AccessedMemory, Recorder};
