//! Messages of allocators that ran out of memory: most reports of a failure contain nothing else.
//!
//! [`OutOfMemoryMessage::find_all`] reads the messages of PyTorch, JAX, TensorFlow, CuPy, Paddle, RMM, vLLM,
//! llama.cpp and ONNX Runtime from a log, and [`OutOfMemoryMessage::verdict`] says what their numbers mean.
//!
//! ```
//! use orlop_lab::oom_message::OutOfMemoryMessage;
//!
//! let log = "RuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB (GPU 0; 8.00 GiB total capacity; \
//!            7.00 GiB already allocated; 512.00 MiB free; 7.25 GiB reserved in total by PyTorch)";
//! let messages = OutOfMemoryMessage::find_all(log);
//! assert_eq!(messages[0].requested, Some(4 << 30));
//! let verdict = messages[0].verdict();
//! assert!(verdict.remedy.starts_with("No allocator could have served it: at least 3."));
//! ```

mod bfc;
mod explain;
mod others;
mod pools;
mod scan;
#[cfg(test)]
mod tests;
mod torch;
mod xla;

pub use self::xla::XlaProgram;

use serde::Serialize;
use std::collections::HashMap;

/// The numbers of a message. Sizes are in bytes; those that the message rounds are as exact as it has them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct OutOfMemoryMessage {
    /// What wrote it.
    pub framework: Framework,
    /// The device: `GPU 0`, `CPU`, or the name of an allocator.
    pub device: Option<String>,
    /// The request that failed.
    pub requested: Option<u64>,
    /// The memory of the device, or the limit of the allocator if it tells no other.
    pub total: Option<u64>,
    /// Free memory of the device.
    pub free: Option<u64>,
    /// Live memory of the program.
    pub live: Option<u64>,
    /// Memory that the allocator reserves and does not use.
    pub unused: Option<u64>,
    /// The largest free piece of it.
    pub largest_unused: Option<u64>,
    /// Live memory in private pools, mostly of CUDA graphs.
    pub private_pools: Option<u64>,
    /// The limit of the process, if that is less than the device's memory.
    pub limit: Option<u64>,
    /// What this process has of the device, libraries included; of CuPy and Paddle, what their pools have.
    pub this_process: Option<u64>,
    /// What other processes have of the device, together.
    pub other_processes: u64,
    /// What the compiled program needs, if it is one of XLA.
    pub program: Option<XlaProgram>,
    /// The tokens of the longest sequence that fits, as vLLM estimates it.
    pub fitting_tokens: Option<u64>,
    /// The number of equal messages.
    pub times: u64,
}

/// The source of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Framework {
    /// PyTorch on a CUDA device.
    Torch,
    /// PyTorch on a CUDA device, with the driver's pool (`backend:cudaMallocAsync`).
    TorchAsync,
    /// PyTorch on a ROCm device.
    TorchHip,
    /// PyTorch on Intel's GPUs.
    TorchXpu,
    /// PyTorch on Huawei's NPUs.
    TorchNpu,
    /// PyTorch on Apple's GPUs.
    TorchMps,
    /// PyTorch on the host.
    TorchCpu,
    /// JAX, or another program on XLA.
    Xla,
    /// TensorFlow, or its BFC allocator, which XLA uses, too.
    Bfc,
    /// CuPy's pool.
    Cupy,
    /// Paddle's allocator.
    Paddle,
    /// The pool of RMM, RAPIDS' memory manager.
    Rmm,
    /// llama.cpp, or another program on ggml.
    LlamaCpp,
    /// vLLM, whose KV cache has no room for one sequence.
    Vllm,
    /// ONNX Runtime's arena.
    OnnxRuntime,
    /// A library of CUDA, such as cuBLAS, which allocates beside the framework.
    CudaLibrary,
    /// CUDA itself, without an allocator's numbers.
    Cuda,
}

impl OutOfMemoryMessage {
    /// Finds the messages in a log, in its order. Equal messages are one.
    #[must_use]
    pub fn find_all(log: &str) -> Vec<Self> {
        let mut found = bfc::messages(log);
        found.extend(torch::messages(log));
        found.extend(xla::messages(log));
        found.extend(pools::messages(log));
        found.extend(others::messages(log));
        found.sort_by_key(|&(at, _)| at);
        let mut messages: Vec<Self> = Vec::new();
        let mut places: HashMap<Self, usize> = HashMap::new();
        for (_, message) in found {
            let place = *places.entry(message.clone()).or_insert(messages.len());
            match messages.get_mut(place) {
                Some(known) => known.times = known.times.saturating_add(1),
                None => messages.push(message),
            }
        }
        if messages.iter().any(|message| message.requested.is_some()) {
            // Beside one with numbers, these say nothing.
            messages.retain(|message| message.framework != Framework::Cuda || message.requested.is_some());
        }
        messages
    }

    fn new(framework: Framework) -> Self {
        Self {
            framework,
            device: None,
            requested: None,
            total: None,
            free: None,
            live: None,
            unused: None,
            largest_unused: None,
            private_pools: None,
            limit: None,
            this_process: None,
            other_processes: 0,
            program: None,
            fitting_tokens: None,
            times: 1,
        }
    }
}
