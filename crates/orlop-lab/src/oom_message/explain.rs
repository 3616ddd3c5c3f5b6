//! What the numbers of a message mean.

use super::{Framework, OutOfMemoryMessage};
use crate::verdict::RunVerdict;
use crate::what_if::{DUMP_SNAPSHOT, RECORD_HISTORY};
use orlop_core::ByteSize;

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

    fn finding(&self) -> String {
        let device = self.device.as_deref().unwrap_or("The device");
        let mut text = format!("{device} ran out of memory");
        if let Some(requested) = self.requested {
            text += &format!(": {} requested", ByteSize(requested));
        }
        if self.times > 1 {
            text += &format!(" ({} times)", self.times);
        }
        let parts = [
            (self.live, "live"),
            (self.unused, "reserved but unused"),
            (self.free, "free on the device"),
            (self.beside().filter(|&bytes| bytes > 0), "of other programs and libraries"),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter_map(|(bytes, what)| Some(format!("{} {what}", ByteSize(bytes?))))
            .collect();
        if !parts.is_empty() {
            text += &format!("; {}", parts.join(", "));
        }
        if let Some(total) = self.total {
            text += &format!(", of {}", ByteSize(total));
        }
        text + "."
    }

    fn remedy(&self) -> String {
        if self.framework == Framework::TorchCpu {
            return "The host has too little memory: use smaller batches, fewer workers, or mapped files."
                .to_owned();
        }
        let Some(requested) = self.requested else {
            return "The message has no numbers: the allocation was not the framework's own.".to_owned();
        };
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
                format!(
                    "The limit of the process is {}: at least {} must go, or the limit.",
                    ByteSize(limit),
                    ByteSize(bytes)
                )
            } else {
                format!("No allocator could have served it: at least {} must go.", ByteSize(bytes))
            };
        }
        let Some(free) = self.unused.zip(self.free).map(|(unused, free)| unused.saturating_add(free)) else {
            return "The message does not say what was free: the framework's own log has more.".to_owned();
        };
        if free < requested {
            return "The memory of the device is nearly full: use smaller batches or free something."
                .to_owned();
        }
        let setting = match self.framework {
            Framework::Torch => "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            Framework::Xla => "set XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
            _ => "set TF_GPU_ALLOCATOR=cuda_malloc_async",
        };
        let largest = self.largest_unused.map_or_else(String::new, |largest| {
            format!(", the largest piece {}", ByteSize(largest.max(self.free.unwrap_or(0))))
        });
        format!("{} were free, but not in one piece{largest}: {setting}.", ByteSize(free))
    }

    fn next(&self) -> String {
        match self.framework {
            Framework::Torch | Framework::Cuda => format!(
                "To see what holds the memory: call {RECORD_HISTORY} before the run and {DUMP_SNAPSHOT} \
                where it \
                 fails, then orlop what-if snapshot.pickle"
            ),
            Framework::TorchCpu => {
                "To see what holds the memory: record the run with torch.profiler(profile_memory=True), then \
                 orlop info trace.json"
                    .to_owned()
            }
            Framework::Xla | Framework::Bfc => {
                "To see what holds the memory: call jax.profiler.save_device_memory_profile(\"memory.prof\") \
                 before the step that fails (TensorFlow: its profiler's memory view)."
                    .to_owned()
            }
        }
    }
}
