//! Recording, reading, writing and untrusted input, through the public interface.

mod any;
mod formats;
mod histories;
mod hostile;
mod hostile_formats;
mod mock_allocator;
mod pprof;
mod recorded;
mod recorded_refusals;
mod recorded_regions;
mod recorder_writers;
mod recording_files;
mod recordings;
mod snapshot;
mod steps;
mod timeline;
