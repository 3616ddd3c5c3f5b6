//! The allocators that a simulation can run, with their settings.

use orlop_core::torch::{ConfError, TieRule, TorchConf, TorchVersion};
use orlop_device::Policy;
use std::fmt;

/// An allocator with its settings.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there is one for each replay, not for each block")]
pub enum AllocatorRules {
    /// PyTorch's `CUDACachingAllocator`.
    Torch(TorchConf),
    /// Orlop's allocator on a device with movable pages.
    Orlop,
    /// Orlop's allocator on a device that reserves and releases whole segments.
    OrlopSegments,
    /// TensorFlow's BFC, with growth.
    TensorFlow,
}

impl AllocatorRules {
    /// Creates PyTorch's rules with these settings, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    ///
    /// # Errors
    ///
    /// The first setting that PyTorch would refuse.
    pub fn torch(conf: &str) -> Result<Self, ConfError> {
        conf.parse().map(Self::Torch)
    }

    /// Returns the allocator's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Torch(_) => "torch",
            Self::Orlop => "orlop",
            Self::OrlopSegments => "orlop-segments",
            Self::TensorFlow => "tensorflow",
        }
    }

    /// Returns the settings for `PYTORCH_CUDA_ALLOC_CONF`; `None` if it is not PyTorch's allocator.
    #[must_use]
    pub fn conf(&self) -> Option<String> {
        match self {
            Self::Torch(conf) => Some(conf.to_string()),
            _ => None,
        }
    }

    /// Returns the number of settings that differ from PyTorch's defaults; 0 for other allocators.
    pub(crate) fn settings(&self) -> usize {
        let conf = self.conf().unwrap_or_default();
        // Lists of values have commas, too, but no names.
        conf.split(',').filter(|setting| setting.contains('_')).count()
    }

    /// Returns the first release of PyTorch that has these settings.
    pub(crate) fn since(&self) -> TorchVersion {
        match self {
            Self::Torch(conf) => conf.since(),
            _ => TorchVersion::OLDEST,
        }
    }

    /// Returns the fraction of the device's memory that the settings allow.
    pub(crate) fn memory_fraction(&self) -> Option<f64> {
        match self {
            Self::Torch(conf) => conf.memory_fraction,
            _ => None,
        }
    }

    /// Returns `true` if the allocator releases nothing while the device has more memory: to run without a
    /// retry it then needs its peak of reserved bytes.
    pub(crate) fn keeps_cache(&self) -> bool {
        match self {
            Self::Torch(conf) => conf.max_split_size.is_none() && conf.garbage_collection_threshold <= 0.0,
            _ => false,
        }
    }

    /// Sets the rule of PyTorch's allocator for free blocks of equal size.
    pub(crate) fn set_ties(&mut self, ties: TieRule) {
        if let Self::Torch(conf) = self {
            conf.ties = ties;
        }
    }

    /// Returns the policy of the device engine; `None` for TensorFlow's rules, which another engine runs.
    pub(crate) fn policy(&self) -> Option<Policy> {
        match self {
            Self::Torch(conf) => Some(Policy::torch(conf)),
            Self::Orlop => Some(Policy::orlop()),
            Self::OrlopSegments => Some(Policy::orlop_without_pages()),
            Self::TensorFlow => None,
        }
    }
}

impl fmt::Display for AllocatorRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torch(conf) if conf.to_string().is_empty() => f.write_str("torch, default settings"),
            Self::Torch(conf) => write!(f, "torch, {conf}"),
            other => f.write_str(other.name()),
        }
    }
}
