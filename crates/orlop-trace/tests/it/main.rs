//! The shipped traces, hostile input and replays, through the public interface.

mod hostile;
mod replays;
mod shipped;
mod snapshot;
