//! Messages of PyTorch, of all forms since PyTorch 1.0.

use super::scan::{
    after, digits_at_start, size_after, size_at_start, size_before, until_next, with_binary_units,
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

/// Returns the messages with their positions in the log.
pub(super) fn messages(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let mut found = without_beginning(log);
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
