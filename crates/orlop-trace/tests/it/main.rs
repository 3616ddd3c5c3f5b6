//! The shipped traces, hostile input and replays, through the public interface.

mod hostile;
mod lab;
mod replays;
mod shipped;
mod snapshot;
mod what_if;
