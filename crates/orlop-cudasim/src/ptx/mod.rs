//! The code of kernels in PTX: read when a module is loaded, and executed thread by thread.
//!
//! It is what compilers write: integers, floats of 16 to 64 bits, predicates, branches, calls, parameters,
//! global, shared and local memory, atomic operations, barriers, and what threads of a warp do together. What
//! each instruction does is taken from NVIDIA's *Parallel Thread Execution ISA*, where it leaves a choice (a
//! NaN's payload, the threads that are active) the most inconvenient one. An instruction, a modifier or a
//! type that is not known is an error when the module is loaded, not at its first use.
//!
//! A launch is executed twice: when it is submitted, to learn which memory it accesses, without any data; and
//! when its time comes. So addresses and branches must not depend on data in global memory:
//! `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! | module | what it holds |
//! |---|---|
//! | `types` | types, and how floats are rounded |
//! | `instruction` | instructions and operands |
//! | `program` | an entry point with the functions that it calls |
//! | `read` | a module's text as entry points |
//! | `run` | the execution of a launch |

mod instruction;
mod program;
mod read;
mod run;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use self::program::Program;
pub(crate) use self::read::{EntryPoint, entry_points};
pub(crate) use self::run::{AccessedMemory, Fault, MAX_DYNAMIC_SHARED, Recorder, Shape};
