//! The host's memory: its size, and its NUMA nodes.

pub mod numa;
pub mod system_memory;
