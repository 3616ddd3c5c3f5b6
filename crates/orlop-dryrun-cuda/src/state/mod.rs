//! The parts of the machine, which know nothing of each other.

pub(crate) mod communicator;
pub(crate) mod contents;
pub(crate) mod counters;
pub(crate) mod host_memory;
pub(crate) mod kernels;
pub(crate) mod memory;
pub(crate) mod sizes;
pub(crate) mod space;
pub(crate) mod thread;
pub(crate) mod work;
