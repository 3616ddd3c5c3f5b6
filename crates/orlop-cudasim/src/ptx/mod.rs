//! The code of kernels in PTX: read when a module is loaded, and executed thread by thread.
//!
//! It is what compilers write for kernels without calls, atomics and warp functions: integers, `f32` and
//! `f64`, predicates, branches, parameters, global and shared memory, barriers of whole blocks. What each
//! instruction does is taken from NVIDIA's *Parallel Thread Execution ISA*, where it leaves a choice (a NaN's
//! payload) the most inconvenient one. An instruction, a modifier or a type that is not known is an error
//! when the module is loaded, not at its first use.
//!
//! A launch is executed twice: when it is submitted, to learn which memory it accesses, without any data; and
//! when its time comes. So addresses and branches must not depend on data in global memory:
//! `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! | module | what it holds |
//! |---|---|
//! | `entry` | a module's text as entry points |
//! | `instruction` | instructions, types, operands |
//! | `parse` | a function's text as instructions |
//! | `opcode` | one instruction's text |
//! | `names` | what names and numbers in a text stand for |
//! | `arithmetic` | what instructions compute |
//! | `execute` | the blocks of a launch, and their barriers |
//! | `thread` | one thread, up to its next barrier |
//! | `shared` | the memory of a block |
//! | `races` | accesses of threads that no barrier orders |
//! | `memory` | the accesses of a launch, and its memory |

mod arithmetic;
mod entry;
mod execute;
mod instruction;
mod memory;
mod names;
mod opcode;
mod parse;
mod races;
mod shared;
#[cfg(test)]
mod tests;
mod thread;

pub(crate) use self::entry::{EntryPoint, entry_points};
pub(crate) use self::execute::Shape;
pub(crate) use self::instruction::Program;
pub(crate) use self::memory::{AccessedMemory, Recorder};
