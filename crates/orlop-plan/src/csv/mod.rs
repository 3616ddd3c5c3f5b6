//! Problems as text: the format of minimalloc and idealloc.
//!
//! The first line names the columns, in any order; every other line is a buffer.
//!
//! | column | also called | holds |
//! |---|---|---|
//! | `id` | `buffer`, `buffer_id` | a name; need not be there |
//! | `lower` | `start`, `begin` | the first moment at which the buffer lives |
//! | `upper` | | the first moment at which it does not |
//! | `end` | | instead of `upper`: the *last* moment at which it lives, as in minimalloc's old files |
//! | `size` | | bytes |
//! | `alignment` | | a power of two; 1 if the column is not there |
//!
//! Other columns are passed over, but for minimalloc's `gaps`: a buffer that has some is refused. Blank lines
//! are nothing. Fields with commas or quotes are quoted, and quotes in them doubled. One line is held at a
//! time, and a buffer takes no more memory than a few times its text: a file from a stranger cannot fill the
//! memory.

mod line;
mod read;
mod write;

pub use self::line::MAX_LINE;
