//! [`Communicator`]: a rank of a communicator of NCCL, and its memory.

/// The memory of a communicator of two ranks, and of more, in bytes: on A100s with NVLink after an all-reduce
/// (github.com/NVIDIA/nccl/issues/964). One of a single rank is taken to have none.
const PAIR_BYTES: usize = 544 << 20;
const GROUP_BYTES: usize = 688 << 20;

/// A rank of a communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Communicator {
    pub(crate) ranks: i32,
    pub(crate) rank: i32,
    pub(crate) device: usize,
    /// Its memory on the device; `None` for a communicator of a single rank.
    pub(crate) memory: Option<usize>,
}

impl Communicator {
    pub(crate) fn new(ranks: i32, rank: i32, device: usize) -> Self {
        Self { ranks, rank, device, memory: None }
    }

    /// Returns the bytes of its memory.
    pub(crate) fn bytes(&self) -> usize {
        match self.ranks {
            ..=1 => 0,
            2 => PAIR_BYTES,
            _ => GROUP_BYTES,
        }
    }
}
