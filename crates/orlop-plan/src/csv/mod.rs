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
//! | `offset` | | where the buffer has to be, in bytes; may be empty |
//! | `hint` | | where it was in an earlier plan, with which a search begins; may be empty |
//!
//! minimalloc's `gaps` (times at which a buffer is not live) may be empty. A buffer with gaps is refused, as
//! is a file with other columns: a plan that ignored them could be wrong. Blank lines are ignored. Fields
//! with commas or quotes are quoted, and quotes in them doubled. One line is in memory at a time, and a
//! buffer takes a few times the memory of its text, so that an untrusted file cannot exhaust the memory.
//!
//! A plan is written with the column `offset`, which is the solution format of minimalloc.

mod line;
mod read;
mod write;

pub use self::line::MAX_LINE;
