//! The errors of the library.

use orlop_core::ByteSize;
use orlop_cuda::CudaError;
use orlop_device::DeviceError;

/// Every failure of the library.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TorchError {
    /// The allocator has no memory for a request, or its device failed.
    #[error("{0:#}")]
    Request(#[from] orlop_alloc::Error),
    /// The device could not be opened, or a call of its driver failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The engine refused a call.
    #[error(transparent)]
    Engine(#[from] DeviceError),
    /// A budget that is open has no room for a request.
    #[error("{used} of a budget of {budget} are in live blocks")]
    Budget { budget: ByteSize, used: ByteSize },
    /// PyTorch named a device that does not exist.
    #[error("there is no device {0}")]
    NoSuchDevice(i32),
    /// The address is not that of a live block.
    #[error("{0:#x} is not the address of a live block")]
    UnknownBlock(usize),
    /// The process is a child of the one that used the device. CUDA cannot be used there.
    #[error("the process was forked from one that uses CUDA: start it by spawn or forkserver")]
    Forked,
    /// Other settings than those in use were given after the first request.
    #[error("the allocator is in use with other settings: they are given before the first request")]
    InUse,
    /// The name of a policy is unknown.
    #[error(
        "no policy is named {0:?}: orlop, orlop:hold_to_peak=N, orlop:streams=apart, or torch with settings \
         after a colon"
    )]
    UnknownPolicy(Box<str>),
    /// The library panicked. It is a fault of the library; its state is whole.
    #[error("a fault of the allocator: {0}")]
    Panicked(Box<str>),
}

impl TorchError {
    /// Returns `true` if the request may succeed after memory is freed.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Request(error) => error.is_out_of_memory(),
            Self::Cuda(error) => error.is_out_of_memory(),
            Self::Budget { .. } => true,
            Self::Engine(error) => matches!(error, DeviceError::OutOfMemory { .. }),
            _ => false,
        }
    }
}
