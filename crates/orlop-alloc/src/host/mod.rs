//! The host: the size of its memory, its NUMA nodes, its threads.

pub mod numa;
pub mod system_memory;
mod threads;

pub use self::threads::os_thread_id;
