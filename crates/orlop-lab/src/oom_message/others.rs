//! Messages without the numbers of an allocator: of llama.cpp, vLLM, ONNX Runtime, CUDA's libraries and CUDA
//! itself.

use super::scan::{after, before, digits_at_start, size_after, size_at_start, start_of};
use super::{Framework, OutOfMemoryMessage};

/// What CUDA calls it: the runtime, the driver, and what NCCL and llama.cpp make of it; and what llama.cpp
/// writes of other devices, and after all of them.
const DEVICE: [&str; 7] = [
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "'out of memory'",
    "cudaMalloc failed: out of memory",
    VULKAN,
    BUFFER,
];

const VULKAN: &str = "ggml_vulkan: Device memory allocation of size ";
const BUFFER: &str = " buffer of size ";

/// The statuses of CUDA's libraries, with their names.
const LIBRARIES: [(&str, &str); 5] = [
    ("CUBLAS_STATUS_ALLOC_FAILED", "cuBLAS"),
    ("CUDNN_STATUS_ALLOC_FAILED", "cuDNN"),
    ("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "cuDNN"),
    ("CUSOLVER_STATUS_ALLOC_FAILED", "cuSOLVER"),
    ("CUSPARSE_STATUS_ALLOC_FAILED", "cuSPARSE"),
];

const ONNX_RUNTIME: &str = "Failed to allocate memory for requested buffer of size ";

/// How vLLM's messages begin, or what they contain.
const VLLM: [&str; 3] = [
    "To serve at least one request with the model",
    "is larger than the maximum number of tokens that can be stored in KV cache (",
    "No available memory for the cache blocks",
];

/// A message of vLLM ends within this many bytes.
const VLLM_LENGTH: usize = 600;

/// What llama.cpp writes before CUDA's words is within this many bytes.
const BEFORE: usize = 200;

/// One failure names itself up to this many bytes apart, in several words. The first with numbers stays.
const ONE_FAILURE: usize = 400;

/// Returns the messages with their positions in the log.
pub(super) fn messages(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let mut found = Vec::new();
    let places = DEVICE.iter().flat_map(|start| log.match_indices(start));
    let mut places: Vec<_> =
        places.filter_map(|(at, start)| Some((at, device_message(log, at, start)?))).collect();
    places.sort_by_key(|&(at, _)| at);
    places.dedup_by(|(next, message), (first, kept)| {
        let is_same = *next - *first < ONE_FAILURE;
        if is_same && kept.requested.is_none() {
            std::mem::swap(message, kept);
        }
        is_same
    });
    found.extend(places);
    for (status, name) in LIBRARIES {
        let mut message = OutOfMemoryMessage::new(Framework::CudaLibrary);
        message.device = Some(name.to_owned());
        found.extend(log.match_indices(status).map(|(at, _)| (at, message.clone())));
    }
    for (at, _) in log.match_indices(ONNX_RUNTIME) {
        let mut message = OutOfMemoryMessage::new(Framework::OnnxRuntime);
        message.requested = log.get(at..).and_then(|text| size_after(text, ONNX_RUNTIME));
        found.push((at, message));
    }
    for start in VLLM {
        found.extend(log.match_indices(start).filter_map(|(at, _)| Some((at, vllm(log.get(at..)?)))));
    }
    found
}

/// Reads one of the [`DEVICE`] texts. `None` if it is no failure.
fn device_message(log: &str, at: usize, start: &str) -> Option<OutOfMemoryMessage> {
    let line = before(log, at, BEFORE).lines().next_back().unwrap_or_default();
    let rest = start_of(log.get(at..)?, BEFORE);
    let mut message = OutOfMemoryMessage::new(Framework::LlamaCpp);
    if start == VULKAN {
        message.requested = Some(size_after(rest, VULKAN)?);
        message.device = Some("Vulkan".to_owned());
    } else if start == BUFFER {
        // `ggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 10345253120`, and without a name.
        let (_, name) = line.rsplit_once("failed to allocate")?;
        let name = name.trim_start();
        if name.contains(' ') {
            return None;
        }
        message.device = Some(if name.is_empty() { "CPU".to_owned() } else { name.to_owned() });
        message.requested = Some(size_after(rest, BUFFER)?);
    } else if let Some((before, rest)) = line.rsplit_once(" on device ") {
        // `allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory`
        message.requested = before.rsplit_once("allocating ").and_then(|(_, size)| size_at_start(size));
        message.device = digits_at_start(rest).map(|number| format!("GPU {number}"));
    } else {
        message.framework = Framework::Cuda;
    }
    Some(message)
}

/// Reads `…max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache
/// memory (9.87 GiB). Based on the available memory, the estimated maximum model length is 80848.` and the
/// forms without sizes.
fn vllm(text: &str) -> OutOfMemoryMessage {
    let text = start_of(text, VLLM_LENGTH);
    let mut message = OutOfMemoryMessage::new(Framework::Vllm);
    message.device = Some("The KV cache".to_owned());
    if let Some((needed, rest)) = text.split_once(" KV cache is needed") {
        message.requested = needed.rsplit_once(['(', ',']).and_then(|(_, size)| size_at_start(size));
        message.free = size_after(rest, "available KV cache memory (");
    }
    let tokens = ["estimated maximum model length is ", "can be stored in KV cache ("];
    message.fitting_tokens =
        tokens.iter().find_map(|marker| digits_at_start(after(text, marker)?)?.parse().ok());
    message
}
