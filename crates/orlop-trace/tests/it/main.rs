//! Recording, reading, writing and untrusted input, through the public interface.

mod any;
mod formats;
mod histories;
mod hostile;
mod hostile_formats;
mod mock_allocator;
mod recorded;
mod recorded_regions;
mod snapshot;
mod timeline;
