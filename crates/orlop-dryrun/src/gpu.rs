//! [`GpuModel`]: the GPUs that a dry run can be told to be, as data.
//!
//! Total memory and the overhead of a process are what PyTorch reports on a device of the model, not what its
//! data sheet says. Limits of threads and of shared memory follow from the compute capability (CUDA C++
//! Programming Guide, "Technical Specifications per Compute Capability").

use crate::error::{DryRunError, Result};

const MIB: u64 = 1 << 20;

/// A model of GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuModel {
    /// The name on the command line.
    pub key: &'static str,
    /// The name that the driver reports.
    pub name: &'static str,
    /// Total memory that the driver reports, in bytes.
    pub memory: u64,
    /// Memory that the driver and the context of one process take, in bytes.
    pub overhead: u64,
    /// The compute capability.
    pub capability: (u8, u8),
    /// The number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// The L2 cache, in bytes.
    pub l2_cache: u32,
    /// Where memory and overhead are from.
    pub source: &'static str,
}

/// Limits of a multiprocessor, which follow from the compute capability. All of shared memory is in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MultiprocessorLimits {
    /// Resident threads.
    pub threads: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// Shared memory.
    pub shared: u32,
    /// Shared memory of a block that opts in.
    pub shared_per_block: u32,
}

/// All models.
pub const GPU_MODELS: [GpuModel; 9] = [
    GpuModel {
        key: "h100",
        name: "NVIDIA H100 80GB HBM3",
        memory: 85_024_112_640,
        overhead: 768 * MIB,
        capability: (9, 0),
        multiprocessors: 132,
        l2_cache: 50 << 20,
        source: "memory: testdata/torch-runs (driver 580); overhead: 639 to 771 MiB for the programs of \
                 docs/dry-run-accuracy.md, 751 after a matrix product, 767 with cuDNN",
    },
    GpuModel {
        key: "h200",
        name: "NVIDIA H200",
        memory: 150_109_880_320,
        overhead: 768 * MIB,
        capability: (9, 0),
        multiprocessors: 132,
        l2_cache: 60 << 20,
        source: "memory: measured, driver 580; overhead: as an H100's",
    },
    GpuModel {
        key: "a100-80gb",
        name: "NVIDIA A100-SXM4-80GB",
        memory: 81_152 * MIB,
        overhead: 410 * MIB,
        capability: (8, 0),
        multiprocessors: 108,
        l2_cache: 40 << 20,
        source: "PyTorch's message in github.com/HiDream-ai/VAREdit/issues/6: 79.25 GiB",
    },
    GpuModel {
        key: "a100-40gb",
        name: "NVIDIA A100-SXM4-40GB",
        memory: 40_448 * MIB,
        overhead: 500 * MIB,
        capability: (8, 0),
        multiprocessors: 108,
        l2_cache: 40 << 20,
        source: "PyTorch's message in github.com/TianheWu/CoSeR/issues/10: 39.50 GiB",
    },
    GpuModel {
        key: "l40s",
        name: "NVIDIA L40S",
        memory: 45_466 * MIB,
        overhead: 510 * MIB,
        capability: (8, 9),
        multiprocessors: 142,
        l2_cache: 96 << 20,
        source: "PyTorch's message in github.com/QwenLM/Qwen3-VL/issues/2097 (an L40): 44.40 GiB",
    },
    GpuModel {
        key: "a4000",
        name: "NVIDIA RTX A4000",
        memory: 15_985 * MIB,
        overhead: 210 * MIB,
        capability: (8, 6),
        multiprocessors: 48,
        l2_cache: 4 << 20,
        source: "PyTorch's message in github.com/DengKaiCQ/VGGT-Long/issues/6: 15.61 GiB",
    },
    GpuModel {
        key: "rtx4090",
        name: "NVIDIA GeForce RTX 4090",
        memory: 24_207 * MIB,
        overhead: 470 * MIB,
        capability: (8, 9),
        multiprocessors: 128,
        l2_cache: 72 << 20,
        source: "PyTorch's message in github.com/ali-vilab/VGen/issues/104: 23.64 GiB",
    },
    GpuModel {
        key: "rtx5090",
        name: "NVIDIA GeForce RTX 5090",
        memory: 32_122 * MIB,
        overhead: 590 * MIB,
        capability: (12, 0),
        multiprocessors: 170,
        l2_cache: 96 << 20,
        source: "PyTorch's message in github.com/Wan-Video/Wan2.1/issues/465: 31.37 GiB",
    },
    GpuModel {
        key: "t4",
        name: "Tesla T4",
        memory: 15_104 * MIB,
        overhead: 130 * MIB,
        capability: (7, 5),
        multiprocessors: 40,
        l2_cache: 4 << 20,
        source: "PyTorch's message in github.com/hpcaitech/Open-Sora/issues/697: 14.75 GiB",
    },
];

impl GpuModel {
    /// Returns the model with this key, in any case.
    ///
    /// # Errors
    ///
    /// [`DryRunError::UnknownGpu`], with the known keys.
    pub fn named(key: &str) -> Result<Self> {
        let found = GPU_MODELS.iter().find(|model| model.key.eq_ignore_ascii_case(key));
        found.cloned().ok_or_else(|| DryRunError::UnknownGpu {
            name: key.to_owned(),
            known: GPU_MODELS.iter().map(|model| model.key).collect(),
        })
    }

    /// Returns the limits of a multiprocessor.
    #[must_use]
    pub fn limits(&self) -> MultiprocessorLimits {
        let (threads, blocks, shared) = match self.capability {
            (7, 5) => (1024, 16, 64),
            (8, 0) => (2048, 32, 164),
            (8, 9) => (1536, 24, 100),
            (8, _) => (1536, 16, 100),
            (9 | 10, _) => (2048, 32, 228),
            _ => (1536, 24, 100),
        };
        // A block leaves 1 KiB of a multiprocessor to the system, except before capability 8.0.
        let kept = u32::from(self.capability.0 >= 8);
        MultiprocessorLimits {
            threads,
            blocks,
            shared: shared << 10,
            shared_per_block: (shared - kept) << 10,
        }
    }

    /// Returns the memory that is left to a program, in bytes.
    #[must_use]
    pub fn usable(&self) -> u64 {
        self.memory.saturating_sub(self.overhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_found_in_any_case() {
        for (index, model) in GPU_MODELS.iter().enumerate() {
            assert_eq!(GpuModel::named(&model.key.to_uppercase()).unwrap(), *model);
            assert!(GPU_MODELS[..index].iter().all(|other| other.key != model.key));
            assert!(model.overhead < model.memory / 8);
        }
        let error = GpuModel::named("h101").unwrap_err().to_string();
        assert!(error.starts_with("unknown GPU \"h101\": choose one of h100, "), "{error}");
    }

    #[test]
    fn shared_memory_follows_the_capability() {
        let limits = GpuModel::named("h100").unwrap().limits();
        assert_eq!((limits.shared, limits.shared_per_block), (233_472, 232_448));
        assert_eq!(GpuModel::named("t4").unwrap().limits().shared_per_block, 65_536);
    }
}
