//! What the live memory is: parameters, gradients, optimizer state, activations.
//!
//! A recording does not say what a block is for. It follows from the pass that allocates the block, as its
//! call site tells it, and from the passes that the block outlives (`classify`). Recordings without call
//! sites leave the order of allocations and frees (`lifetimes`).
//!
//! | category | a block is of it if |
//! |---|---|
//! | parameters | the model is built, moved or loaded there, or it is live from the start to the end |
//! | gradients | the backward pass leaves it behind |
//! | optimizer state | the optimizer leaves it behind |
//! | activations | the forward pass leaves it to the backward pass; without a backward pass, all of it |
//! | temporaries | it is freed in the pass that allocates it |
//! | workspaces | a pass leaves it behind for all steps that follow (cuBLAS) |
//! | CUDA graphs | it is in a private pool |

mod classify;
mod lifetimes;
mod modules;
mod pass;
mod usage;
mod zeroed;

use serde::Serialize;
use std::fmt;

pub use self::modules::ModuleUsage;
pub(crate) use self::usage::categories;
pub use self::usage::{CategorySample, CategoryUsage, Evidence, MemoryCategories};

/// What a block is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Category {
    /// Parameters and buffers of the model.
    Parameters,
    /// Gradients of the parameters.
    Gradients,
    /// State of the optimizer.
    OptimizerState,
    /// Activations and inputs: what the forward pass leaves to the backward pass.
    Activations,
    /// Blocks that are freed in the pass that allocates them.
    Temporaries,
    /// Workspaces of libraries, and other blocks that a pass leaves behind for good.
    Workspaces,
    /// Private pools of CUDA graphs.
    CudaGraphs,
    /// Blocks from before the recording about which nothing is known.
    Unknown,
}

impl Category {
    /// All categories, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Parameters,
        Self::Gradients,
        Self::OptimizerState,
        Self::Activations,
        Self::Temporaries,
        Self::Workspaces,
        Self::CudaGraphs,
        Self::Unknown,
    ];

    /// Returns the name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::OptimizerState => "optimizer state",
            Self::Activations => "activations",
            Self::Temporaries => "temporaries",
            Self::Workspaces => "workspaces",
            Self::CudaGraphs => "CUDA graphs",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
