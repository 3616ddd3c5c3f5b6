//! The shipped traces, formats, recording, hostile input and replays, through the public interface.

mod formats;
mod histories;
mod hostile;
mod hostile_formats;
mod recorded;
mod replays;
mod shipped;
