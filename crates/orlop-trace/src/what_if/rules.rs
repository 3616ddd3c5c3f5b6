//! Whose rules a workload is replayed by.

use orlop_device::{ConfError, Policy, TorchConf};
use std::fmt;

/// An allocator, with its settings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Rules {
    /// PyTorch's CUDACachingAllocator.
    Torch(TorchConf),
    /// Ours, on a device whose pages can be moved.
    Orlop,
    /// Ours, on a device that gives memory in pieces and takes it back in pieces.
    OrlopSegments,
    /// TensorFlow's BFC, with growth.
    TensorFlow,
}

impl Rules {
    /// PyTorch's with these settings, as they stand in `PYTORCH_CUDA_ALLOC_CONF`.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn torch(conf: &str) -> Result<Self, ConfError> {
        conf.parse().map(Self::Torch)
    }

    /// The allocator's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Torch(_) => "torch",
            Self::Orlop => "orlop",
            Self::OrlopSegments => "orlop-segments",
            Self::TensorFlow => "tensorflow",
        }
    }

    /// The settings to paste into `PYTORCH_CUDA_ALLOC_CONF`; `None` if it is not PyTorch's allocator.
    #[must_use]
    pub fn conf(&self) -> Option<String> {
        match self {
            Self::Torch(conf) => Some(conf.to_string()),
            _ => None,
        }
    }

    /// How many settings are other than PyTorch's defaults; 0 for other allocators.
    pub(super) fn settings(&self) -> usize {
        let conf = self.conf().unwrap_or_default();
        // Lists of values have commas, too, but no names.
        conf.split(',').filter(|setting| setting.contains('_')).count()
    }

    /// The share of the device's memory that the settings allow.
    pub(super) fn memory_fraction(&self) -> Option<f64> {
        match self {
            Self::Torch(conf) => conf.memory_fraction,
            _ => None,
        }
    }

    /// Whether the allocator gives nothing back while the device has more: then it needs what it held to run without a retry.
    pub(super) fn hold_their_peak(&self) -> bool {
        match self {
            Self::Torch(conf) => conf.max_split_size.is_none() && conf.garbage_collection_threshold <= 0.0,
            _ => false,
        }
    }

    /// The device engine's rules; `None` for TensorFlow's, which another engine has.
    pub(super) fn policy(&self) -> Option<Policy> {
        match self {
            Self::Torch(conf) => Some(Policy::torch(conf)),
            Self::Orlop => Some(Policy::orlop()),
            Self::OrlopSegments => Some(Policy::orlop_without_pages()),
            Self::TensorFlow => None,
        }
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torch(conf) if *conf == TorchConf::default() => f.write_str("torch, default settings"),
            Self::Torch(conf) => write!(f, "torch, {conf}"),
            other => f.write_str(other.name()),
        }
    }
}
