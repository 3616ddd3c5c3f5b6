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
//!
//! Other columns are ignored, except minimalloc's `gaps`: a buffer with gaps is refused. Blank lines are
//! ignored. Fields with commas or quotes are quoted, and quotes in them doubled. One line is in memory at a
//! time, and a buffer takes a few times the memory of its text, so that an untrusted file cannot exhaust the
//! memory.

mod line;
mod read;
mod write;

pub use self::line::MAX_LINE;
