//! A module's text as entry points.
//!
//! | module | what it holds |
//! |---|---|
//! | `module` | the functions and entry points of a text |
//! | `linker` | the functions that an entry point calls |
//! | `function` | a function's text as instructions |
//! | `names` | what names and numbers in a text stand for |
//! | `opcode` | one instruction's text; moves and branches |
//! | `arithmetic`, `accesses`, `collectives` | the instructions of a kind |

mod accesses;
mod arithmetic;
mod collectives;
mod function;
mod linker;
mod module;
mod names;
mod opcode;

pub(crate) use self::module::{EntryPoint, entry_points};
