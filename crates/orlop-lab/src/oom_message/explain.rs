//! What the numbers of a message mean.

use super::{Framework, OutOfMemoryMessage, XlaProgram};
use crate::verdict::RunVerdict;
use crate::what_if::{DUMP_SNAPSHOT, RECORD_HISTORY};
use orlop_core::ByteSize;
use orlop_core::torch::{SMALL_REQUEST_BYTES, TorchConf, segment_size};

/// A device with this much more than a request that it refused is not full.
const CLEARLY_FREE: u64 = 128 << 20;

/// Lists the sizes that are known, with what each is.
fn listed<'a>(parts: impl IntoIterator<Item = (Option<u64>, &'a str)>) -> String {
    let part = |(bytes, what): (Option<u64>, &str)| Some(format!("{} {what}", ByteSize(bytes?)));
    parts.into_iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

impl XlaProgram {
    fn sentence(&self, total: Option<u64>) -> String {
        let parts = [
            (self.parameters, "parameters"),
            (self.results, "results"),
            (self.temporaries, "temporaries"),
            (self.fragmentation, "lost between temporaries"),
        ];
        let parts = listed(parts.map(|(bytes, what)| (bytes.filter(|&bytes| bytes > 0), what)));
        let mut text = format!("The compiled program needs {}", ByteSize(self.total));
        if let Some(total) = total {
            text += &format!(" of {}", ByteSize(total));
        }
        if !parts.is_empty() {
            text += &format!(": {parts}");
        }
        text + ". Use smaller batches, jax.checkpoint, or donate_argnums."
    }
}

impl OutOfMemoryMessage {
    /// Returns what happened, what helps, and what to do next.
    #[must_use]
    pub fn verdict(&self) -> RunVerdict {
        RunVerdict::new(self.finding(), self.remedy(), self.next())
    }

    /// Returns the memory of the device that is neither this allocator's nor free: the context, libraries and
    /// other processes. `None` if the message does not have the numbers.
    #[must_use]
    pub fn beside(&self) -> Option<u64> {
        let reserved = self.live?.saturating_add(self.unused?);
        Some(self.total?.saturating_sub(self.free?).saturating_sub(reserved))
    }

    /// Returns the memory that this program could have had: all but what others have, within the limit.
    fn available(&self) -> Option<u64> {
        let of_device = self.total.map(|total| total.saturating_sub(self.beside().unwrap_or(0)));
        // Metal's limit is for other allocations of the process, too.
        let others = match (self.total, self.this_process, self.live) {
            (None, Some(process), Some(live)) => process.saturating_sub(live),
            _ => 0,
        };
        let limit = self.limit.map(|limit| limit.saturating_sub(others));
        match (of_device, limit) {
            (Some(bytes), Some(limit)) => Some(bytes.min(limit)),
            (one, other) => one.or(other),
        }
    }

    /// Returns the bytes that have to go before any allocator could serve the request.
    fn bytes_too_many(&self) -> Option<u64> {
        let needed = self.live?.saturating_add(self.requested?);
        needed.checked_sub(self.available()?).filter(|&bytes| bytes > 0)
    }

    /// Returns the free bytes that the driver had beyond the segment which it refused to PyTorch, within the
    /// limit of the process. `None` if a segment had no room.
    fn refused_with(&self) -> Option<u64> {
        let requested = self.requested.filter(|_| self.framework.is_torch_device())?;
        let size = usize::try_from(requested).ok()?;
        let segment = segment_size(size, SMALL_REQUEST_BYTES, TorchConf::default().large_segment_size)?;
        let segment = u64::try_from(segment).ok()?;
        let reserved = self.live?.saturating_add(self.unused?);
        if self.limit.is_some_and(|limit| reserved.saturating_add(segment) > limit) {
            return None;
        }
        self.free?.checked_sub(segment)
    }

    fn finding(&self) -> String {
        let device = self.device.as_deref().unwrap_or("The device");
        let mut text = format!("{device} ran out of memory");
        if let Some(requested) = self.requested {
            text += &format!(": {} requested", ByteSize(requested));
        }
        if self.times > 1 {
            text += &format!(" ({} times)", self.times);
        }
        let outside = match self.framework {
            Framework::TorchMps => {
                self.this_process.zip(self.live).map(|(all, live)| all.saturating_sub(live))
            }
            _ => None,
        };
        let held = self.this_process.filter(|_| self.framework.is_pool());
        let parts = listed([
            (held, "held by the pool, its cache included"),
            (self.live, "live"),
            (self.unused, "reserved but unused"),
            (outside, "of this process outside the allocator"),
            (self.free, "free on the device"),
            (self.beside().filter(|&bytes| bytes > 0), "of other programs and libraries"),
        ]);
        if !parts.is_empty() {
            text += &format!("; {parts}");
        }
        if let Some(total) = self.total {
            text += &format!(", of {}", ByteSize(total));
        }
        text + "."
    }

    fn remedy(&self) -> String {
        match self.framework {
            Framework::TorchCpu => {
                "The host has too little memory: use smaller batches, fewer workers, or mapped files."
                    .to_owned()
            }
            Framework::CudaLibrary => {
                "The library allocates beside PyTorch, which keeps what it reserved: leave it some, by \
                 torch.cuda.set_per_process_memory_fraction(0.9) or torch.cuda.empty_cache()."
                    .to_owned()
            }
            Framework::Vllm => self.vllm_remedy(),
            Framework::Cupy => self.cupy_remedy(),
            Framework::Rmm => "The pool is as large as it may be: raise maximum_pool_size, or use \
                 rmm.mr.CudaAsyncMemoryResource(), which shares the device with other pools."
                .to_owned(),
            Framework::LlamaCpp => {
                "The memory of the device is nearly full: offload fewer layers (--n-gpu-layers), or use a \
                 shorter --ctx-size, a smaller --ubatch-size, or --cache-type-k q8_0."
                    .to_owned()
            }
            Framework::OnnxRuntime => {
                "The arena of ONNX Runtime could not grow: use smaller inputs, or one arena for all sessions."
                    .to_owned()
            }
            _ => match (self.program, self.requested) {
                (Some(program), _) => program.sentence(self.total),
                (None, Some(requested)) => self.device_remedy(requested),
                (None, None) => {
                    "The message has no numbers: the allocation was not the framework's own.".to_owned()
                }
            },
        }
    }

    fn vllm_remedy(&self) -> String {
        let length = match self.fitting_tokens {
            Some(tokens) if tokens > 0 => format!("--max-model-len {tokens} fits, or"),
            _ => "Use a shorter --max-model-len, or".to_owned(),
        };
        let missing = self.requested.zip(self.free).map(|(needed, free)| needed.saturating_sub(free));
        let missing = missing.map_or_else(String::new, |bytes| format!(" for {} more", ByteSize(bytes)));
        format!("{length} raise --gpu-memory-utilization{missing}, or use --kv-cache-dtype fp8.")
    }

    /// Before it fails, CuPy releases all blocks that no array uses.
    fn cupy_remedy(&self) -> String {
        let needed = self.this_process.zip(self.requested).map(|(held, more)| held.saturating_add(more));
        match self.limit.zip(needed) {
            Some((limit, needed)) if needed > limit => format!(
                "The limit of the pool is {}: at least {} must go, or raise it by set_limit.",
                ByteSize(limit),
                ByteSize(needed - limit)
            ),
            _ => "CuPy had released what no array used: free arrays, use smaller ones, or memory that may \
                  be swapped: \
                  cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)"
                .to_owned(),
        }
    }

    fn device_remedy(&self, requested: u64) -> String {
        let others = self.other_processes;
        if let Some(bytes) = self.bytes_too_many() {
            return if others >= bytes {
                format!(
                    "Other processes hold {}: stop them, or {} must go here.",
                    ByteSize(others),
                    ByteSize(bytes)
                )
            } else if let Some(limit) =
                self.limit.filter(|&limit| self.total.is_none_or(|total| limit < total))
            {
                let raise = match self.framework {
                    Framework::TorchMps => "raise it by PYTORCH_MPS_HIGH_WATERMARK_RATIO",
                    _ => "raise it",
                };
                format!(
                    "The limit of the process is {}: at least {} must go, or {raise}.",
                    ByteSize(limit),
                    ByteSize(bytes)
                )
            } else {
                format!("No allocator could have served it: at least {} must go.", ByteSize(bytes))
            };
        }
        const NEARLY_FULL: &str =
            "The memory of the device is nearly full: use smaller batches or free something.";
        let Some((unused, free)) = self.unused.zip(self.free) else {
            return match self.free {
                Some(free) if free < requested => NEARLY_FULL.to_owned(),
                Some(free) => format!(
                    "The driver refused with {} free: look for another process at that moment, or a limit of \
                     the container.",
                    ByteSize(free)
                ),
                None => {
                    "The message does not say what was free: the framework's own log has more.".to_owned()
                }
            };
        };
        let both = unused.saturating_add(free);
        // What is reserved would not have served it, in one piece or in several.
        if unused < requested {
            match self.refused_with() {
                Some(spare) if spare >= CLEARLY_FREE => {
                    return format!(
                        "No setting of PyTorch helps: the driver refused with {} free. Look for another \
                         process at that moment, a limit of the container, or on Windows a small page file.",
                        ByteSize(free)
                    );
                }
                Some(_) => return NEARLY_FULL.to_owned(),
                None if both < requested => return NEARLY_FULL.to_owned(),
                None => {}
            }
        }
        let setting = match self.framework {
            Framework::Torch => "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            Framework::TorchHip => "set PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
            Framework::TorchNpu => "set PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
            Framework::TorchXpu => "use smaller batches, or call torch.xpu.empty_cache() between phases",
            Framework::Xla => "set XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
            _ => "set TF_GPU_ALLOCATOR=cuda_malloc_async",
        };
        let largest = self.largest_unused.map_or_else(String::new, |largest| {
            format!(", the largest piece {}", ByteSize(largest.max(free)))
        });
        format!("{} were free, but not in one piece{largest}: {setting}.", ByteSize(both))
    }

    fn next(&self) -> String {
        match self.framework {
            Framework::Torch
            | Framework::TorchAsync
            | Framework::TorchHip
            | Framework::Cuda
            | Framework::CudaLibrary => {
                let condition = match self.framework {
                    Framework::Cuda => "in PyTorch ",
                    Framework::TorchAsync => "without backend:cudaMallocAsync ",
                    _ => "",
                };
                format!(
                    "To see what holds the memory: {condition}call {RECORD_HISTORY} before the run and \
                     {DUMP_SNAPSHOT} where it fails, then orlop what-if snapshot.pickle"
                )
            }
            Framework::TorchMps => {
                "To see what holds the memory: print torch.mps.current_allocated_memory() and \
                 torch.mps.driver_allocated_memory() in the run."
                    .to_owned()
            }
            Framework::TorchCpu | Framework::TorchXpu | Framework::TorchNpu => {
                "To see what holds the memory: record the run with torch.profiler(profile_memory=True), then \
                 orlop info trace.json"
                    .to_owned()
            }
            Framework::Xla | Framework::Bfc => {
                "To see what holds the memory: call jax.profiler.save_device_memory_profile(\"memory.prof\") \
                 before the step that fails (TensorFlow: its profiler's memory view)."
                    .to_owned()
            }
            Framework::Cupy => "To see what holds the memory: compare used_bytes() and total_bytes() of \
                 cupy.get_default_memory_pool(), and run under cupy.cuda.memory_hooks.LineProfileHook()."
                .to_owned(),
            Framework::Paddle => "To see what is cached: compare paddle.device.cuda.memory_allocated() and \
                 paddle.device.cuda.memory_reserved() before the step that fails."
                .to_owned(),
            Framework::Rmm => {
                "To see what holds the memory: call rmm.enable_logging(log_file_name=\"rmm.csv\") before the \
                 run, then orlop info on the log"
                    .to_owned()
            }
            Framework::LlamaCpp => {
                "To see what holds the memory: the lines with `buffer size` before the message add up to it."
                    .to_owned()
            }
            Framework::Vllm => {
                "To see how many tokens fit, and what is reused: orlop kv TRACE --model NAME --pool SIZE"
                    .to_owned()
            }
            Framework::OnnxRuntime => {
                "To see what the activations need at least: orlop plan MODEL.onnx".to_owned()
            }
        }
    }
}

impl Framework {
    /// Whether its message has what the pool holds, and not what is live.
    fn is_pool(self) -> bool {
        matches!(self, Self::Cupy | Self::Paddle)
    }

    fn is_torch_device(self) -> bool {
        matches!(self, Self::Torch | Self::TorchHip | Self::TorchXpu | Self::TorchNpu)
    }
}
