//! Messages of PyTorch, of all forms since PyTorch 1.0.

use super::scan::{
    after, before, digits_at_start, size_after, size_at_start, size_before, until_next, with_binary_units,
};
use super::{Framework, OutOfMemoryMessage};

/// A message ends here: the next line begins something else. No form has more characters.
const MAX_LENGTH: usize = 1500;

/// How messages begin, with the source of each.
const STARTS: [(&str, Framework); 6] = [
    ("CUDA out of memory. Tried to allocate", Framework::Torch),
    ("HIP out of memory. Tried to allocate", Framework::TorchHip),
    ("XPU out of memory. Tried to allocate", Framework::TorchXpu),
    ("NPU out of memory. Tried to allocate", Framework::TorchNpu),
    ("MPS backend out of memory", Framework::TorchMps),
    ("DefaultCPUAllocator: ", Framework::TorchCpu),
];

/// What follows the name of the device, and is where pasted messages often begin.
const REQUEST: &str = "Tried to allocate ";

/// What follows the name of the device in a message of the backend cudaMallocAsync.
const ASYNC: &str = " would exceed allowed memory. (out of memory)";

/// The most bytes of the name of a device before that.
const DEVICE_LENGTH: usize = 16;

/// Returns the messages with their positions in the log.
pub(super) fn messages(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let mut found = without_beginning(log);
    found.extend(log.match_indices(ASYNC).map(|(at, _)| (at, read_async(log, at))));
    for (start, framework) in STARTS {
        for (at, _) in log.match_indices(start) {
            let text = message_at(log, at);
            found.push((at, read(text, framework)));
        }
    }
    found
}

/// Finds messages whose first words were not pasted, or are on a line before: those that have the numbers of
/// a device all the same.
fn without_beginning(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let is_cut = |at: usize| {
        let before = log.get(..at).unwrap_or_default();
        !before.ends_with("out of memory. ") && !before.ends_with("). ")
    };
    let read = |at: usize| {
        let text = message_at(log, at);
        let others = text.get(REQUEST.len()..)?.find(REQUEST).map_or(text.len(), |end| end + REQUEST.len());
        let message = read(text.get(..others)?, Framework::Torch);
        (message.total.is_some() && message.live.is_some()).then_some((at, message))
    };
    log.match_indices(REQUEST).map(|(at, _)| at).filter(|&at| is_cut(at)).filter_map(read).collect()
}

/// Returns the text from a position on, at most to the next message.
fn message_at(log: &str, at: usize) -> &str {
    let text = log.get(at..).unwrap_or_default();
    let end = text.char_indices().nth(MAX_LENGTH).map_or(text.len(), |(end, _)| end);
    let text = text.get(..end).unwrap_or(text);
    until_next(text, STARTS.map(|(start, _)| start))
}

fn read(text: &str, framework: Framework) -> OutOfMemoryMessage {
    let mut message = OutOfMemoryMessage::new(framework);
    match framework {
        Framework::TorchCpu => {
            message.device = Some("CPU".to_owned());
            message.requested = size_after(text, "you tried to allocate ");
        }
        Framework::TorchMps => read_mps(text, &mut message),
        _ => read_device(text, &mut message),
    }
    message
}

/// Reads `Allocation on device 0 would exceed allowed memory. (out of memory)` and the lines below, with one
/// size each.
fn read_async(log: &str, at: usize) -> OutOfMemoryMessage {
    let text = until_next(message_at(log, at), [ASYNC]);
    let size = |name| size_after(after(text, name)?, ": ");
    let mut message = OutOfMemoryMessage::new(Framework::TorchAsync);
    let number =
        before(log, at, DEVICE_LENGTH).rsplit_once("device ").and_then(|(_, rest)| digits_at_start(rest));
    message.device = number.map(|number| format!("GPU {number}"));
    message.live = size("Currently allocated");
    message.requested = size("Requested");
    message.total = size("Device limit");
    message.free = size("Free (according to CUDA)");
    // Without a limit it is that of all numbers.
    message.limit = size("user-supplied memory fraction)").filter(|&limit| Some(limit) < message.total);
    message
}

/// Metal's sizes are in GB and mean GiB.
fn read_mps(text: &str, message: &mut OutOfMemoryMessage) {
    let binary = with_binary_units(text);
    message.device = Some("MPS".to_owned());
    message.requested = size_after(&binary, REQUEST);
    message.live = size_after(&binary, "MPS allocated: ");
    message.this_process = message
        .live
        .zip(size_after(&binary, "other allocations: "))
        .map(|(live, others)| live.saturating_add(others));
    message.limit = size_after(&binary, "max allowed: ");
}

fn read_device(text: &str, message: &mut OutOfMemoryMessage) {
    message.requested = size_after(text, REQUEST);
    let prefix = if message.framework == Framework::TorchNpu { "(NPU " } else { "GPU " };
    message.device = after(text, prefix).and_then(|rest| {
        let number = digits_at_start(rest.trim_start())?;
        Some(format!("{} {number}", prefix.trim_matches(['(', ' '])))
    });
    if text.contains("total capacity;") {
        read_first_form(text, message);
    } else {
        read_second_form(text, message);
    }
    message.private_pools = size_before(text, " allocated in private pools");
    let reserved = message.live.zip(message.unused).map(|(live, unused)| live.saturating_add(unused));
    // In a container, a process does not know its number, and cannot tell itself from the others.
    if message.this_process.is_none()
        && reserved.is_some_and(|reserved| message.other_processes >= reserved)
        && other_processes(text).count() == 1
    {
        message.this_process = Some(std::mem::take(&mut message.other_processes));
    }
}

/// Reads `(GPU 0; 7.79 GiB total capacity; 6.20 GiB already allocated; 14.44 MiB free; 6.32 GiB reserved in
/// total by PyTorch)`, before PyTorch 1.5 with `100.00 MiB cached` at the end.
fn read_first_form(text: &str, message: &mut OutOfMemoryMessage) {
    message.total = size_before(text, " total capacity");
    message.live = size_before(text, " already allocated");
    message.free = size_before(text, " free;");
    message.limit = size_before(text, " allowed;");
    let reserved = size_before(text, " reserved in total");
    message.unused = match (reserved, message.live) {
        (Some(reserved), Some(live)) => Some(reserved.saturating_sub(live)),
        _ => size_before(text, " cached"),
    };
}

/// Returns the sizes of `Process 77 has 12.00 GiB memory in use`.
fn other_processes(text: &str) -> impl Iterator<Item = u64> + '_ {
    text.split("Process ").skip(1).filter_map(|rest| {
        let (number, rest) = rest.split_once(" has ")?;
        size_at_start(rest).filter(|_| number.parse::<u64>().is_ok())
    })
}

/// Reads the sentences that PyTorch writes from 2.1 on.
fn read_second_form(text: &str, message: &mut OutOfMemoryMessage) {
    // The word was misspelt in PyTorch 2.1.
    message.total =
        ["total capacity of ", "total capacty of "].iter().find_map(|marker| size_after(text, marker));
    message.free = size_after(text, "of which ");
    message.limit = size_before(text, " allowed;");
    message.this_process = size_after(text, "this process has ");
    message.other_processes = other_processes(text).fold(0, u64::saturating_add);
    message.live = size_after(text, "Of the allocated memory ");
    message.unused = size_before(text, " is reserved by PyTorch but unallocated");
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gib, one};
    use super::*;

    /// As PyTorch 2.11 wrote it on an H100.
    #[test]
    fn pytorch_with_the_pool_of_the_driver() {
        let text = |limit: &str| {
            format!(
                "OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n\
                 Currently allocated     : 77.00 GiB\nRequested               : 7.00 GiB\n\
                 Device limit            : 79.18 GiB\nFree (according to CUDA): 2.19 MiB\n\
                 PyTorch limit (set by user-supplied memory fraction)\n                        : {limit}\n"
            )
        };
        let message = one(&text("17179869184.00 GiB"));
        assert_eq!((message.framework, message.device.as_deref()), (Framework::TorchAsync, Some("GPU 0")));
        assert_eq!((message.requested, message.total, message.live), (gib(700), gib(7918), gib(7700)));
        assert_eq!(message.limit, None);
        let verdict = message.verdict();
        assert!(
            verdict.remedy.starts_with("No allocator could have served it: at least 4."),
            "{}",
            verdict.remedy
        );
        assert!(verdict.next.contains("without backend:cudaMallocAsync call"), "{}", verdict.next);
        let limited = OutOfMemoryMessage::find_all(&(text("40.00 GiB") + &text("50.00 GiB")));
        assert_eq!(limited.iter().map(|message| message.limit).collect::<Vec<_>>(), [gib(4000), gib(5000)]);
    }
}
