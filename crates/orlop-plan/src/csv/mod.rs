//! Problems as CSV: the format of minimalloc and idealloc.
//!
//! The first line names the columns, in any order; every other line is a buffer.
//!
//! | column | also called | value |
//! |---|---|---|
//! | `id` | `buffer`, `buffer_id` | a name; optional |
//! | `lower` | `start`, `begin` | the first time at which the buffer is live |
//! | `upper` | | the first time at which it is no longer live |
//! | `end` | | instead of `upper`: the *last* time at which it is live, as in minimalloc's old files |
//! | `size` | | bytes |
//! | `alignment` | | a power of two; 1 without the column |
//! | `gaps` | | times in between at which the buffer is not live, like `3-5 8-9`; may be empty |
//! | `offset` | | where the buffer has to be, in bytes; may be empty |
//! | `hint` | | where it was in an earlier plan, with which a search begins; may be empty |
//! | `accesses` | | how often it is accessed, which matters with several memories; may be empty |
//! | `spaces` | | the names of the memories in which it may be, like `sram dram`; empty for all |
//! | `part_of` | | the buffer in which it is and the first byte there, like `3@1024`; may be empty |
//! | `exclude` | | buffers with which it shares no bytes, whenever they are live, like `3 7`; may be empty |
//!
//! `part_of` and `exclude` number the buffers from 0 in the order of their lines. A gap ends as a lifetime
//! does: before its second number, or with it in a file with `end`. minimalloc's
//! gaps with a window, in which a part of the buffer is live, are refused, as is a file with other columns: a
//! plan that ignored them could be wrong. Blank lines are ignored. Fields
//! with commas or quotes are quoted, and quotes in them doubled. One line is in memory at a time, and a
//! buffer takes a few times the memory of its text, so that an untrusted file cannot exhaust the memory.
//!
//! A plan is written with the column `offset`, which is the solution format of minimalloc.

pub(crate) mod error;
mod line;
mod read;
mod relations;
mod write;

pub use self::line::MAX_LINE;
