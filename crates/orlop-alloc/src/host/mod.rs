//! The host's memory: how much there is, its NUMA nodes, and an allocator for each of them.

mod node_allocators;
pub mod numa;
pub(crate) mod system_memory;

pub use self::node_allocators::NodeAllocators;
