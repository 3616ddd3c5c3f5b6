//! The host's memory: its size, its NUMA nodes, and an allocator for each node.

mod node_allocators;
pub mod numa;
pub(crate) mod system_memory;

pub use self::node_allocators::NodeAllocators;
