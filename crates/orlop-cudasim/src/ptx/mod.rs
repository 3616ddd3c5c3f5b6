//! The code of kernels in PTX: read when a module is loaded, and executed thread by thread.
//!
//! It is a subset: integers, `f32` and `f64`, predicates, branches, parameters and global memory; no shared
//! memory, barriers, calls or atomics. What each instruction does is taken from NVIDIA's *Parallel Thread
//! Execution ISA*, where it leaves a choice (a NaN's payload) the most inconvenient one. An instruction, a
//! modifier or a type that is not known is an error when the module is loaded, not at its first use.
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
//! | `execute` | threads |
//! | `memory` | the accesses of a launch, and its memory |

mod arithmetic;
mod entry;
mod execute;
mod instruction;
mod memory;
mod names;
mod opcode;
mod parse;
#[cfg(test)]
mod tests;

pub(crate) use self::entry::{EntryPoint, entry_points};
pub(crate) use self::execute::Shape;
pub(crate) use self::instruction::Program;
pub(crate) use self::memory::{AccessedMemory, Recorder};
