//! Messages of pools, which tell what they hold of the device, cached memory included: CuPy's, Paddle's and
//! RMM's.

use super::scan::{after, digits_at_start, size_after, size_at_start, start_of, with_binary_units};
use super::{Framework, OutOfMemoryMessage};

/// How CuPy's messages begin, since version 7 and before it.
const CUPY: [&str; 2] = ["Out of memory allocating ", "out of memory to allocate "];

/// How Paddle's messages begin.
const PADDLE: &str = "Out of memory error on GPU ";

/// How the messages of RMM begin; what follows names the request, since 2025.
const RMM: &str = "Maximum pool size exceeded";

/// A message ends within this many bytes.
const LENGTH: usize = 400;

/// Returns the messages with their positions in the log.
pub(super) fn messages(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let text_at = |at: usize| start_of(log.get(at..).unwrap_or_default(), LENGTH);
    let cupy = CUPY.iter().flat_map(|&start| {
        log.match_indices(start).filter_map(move |(at, _)| Some((at, cupy(text_at(at), start)?)))
    });
    let paddle = log.match_indices(PADDLE).filter_map(move |(at, _)| Some((at, paddle(text_at(at))?)));
    let rmm = log.match_indices(RMM).map(|(at, _)| (at, rmm(text_at(at))));
    cupy.chain(paddle).chain(rmm).collect()
}

/// Reads ` (failed to allocate 2.000 GiB): …`, or nothing.
fn rmm(text: &str) -> OutOfMemoryMessage {
    let mut message = OutOfMemoryMessage::new(Framework::Rmm);
    message.device = Some("The pool of RMM".to_owned());
    message.requested = text
        .strip_prefix(RMM)
        .and_then(|rest| rest.strip_prefix(" (failed to allocate ").and_then(size_at_start));
    message
}

/// Reads `805,306,368 bytes (allocated so far: 536,870,912 bytes, limit set to: 1,073,741,824 bytes).`, and
/// `163840000 bytes (total 1673061376 bytes)`, where the total includes the request.
fn cupy(text: &str, start: &str) -> Option<OutOfMemoryMessage> {
    let mut message = OutOfMemoryMessage::new(Framework::Cupy);
    let requested = bytes_after(text, start)?;
    message.requested = Some(requested);
    let total = || bytes_after(text, "(total ")?.checked_sub(requested);
    message.this_process = Some(bytes_after(text, "(allocated so far: ").or_else(total)?);
    let limits = ["limit set to: ", "limit set to "];
    message.limit = limits.iter().find_map(|marker| bytes_after(text, marker));
    Some(message)
}

/// Reads `0. Cannot allocate 56.000000MB memory on GPU 0, 7.782776GB memory has been allocated and available
/// memory is only 12.750000MB.`, and the older forms without the second size. The units are binary.
fn paddle(text: &str) -> Option<OutOfMemoryMessage> {
    let mut message = OutOfMemoryMessage::new(Framework::Paddle);
    message.device = digits_at_start(after(text, PADDLE)?).map(|number| format!("GPU {number}"));
    let binary = with_binary_units(text);
    message.requested = Some(size_after(&binary, "Cannot allocate ")?);
    let held = binary
        .split_once(" memory has been allocated")
        .and_then(|(before, _)| before.rsplit_once(", ").and_then(|(_, size)| size_at_start(size)));
    message.this_process = held;
    let markers = ["available memory is only ", "available memory is "];
    message.free = markers.iter().find_map(|marker| size_after(&binary, marker));
    Some(message)
}

/// The number of bytes directly after a marker, with or without commas between thousands.
fn bytes_after(text: &str, marker: &str) -> Option<u64> {
    let rest = after(text, marker)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',')?;
    let (number, unit) = rest.split_at_checked(end)?;
    unit.starts_with(" byte").then(|| number.replace(',', "").parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oom_message::tests::{MIB, one};

    #[test]
    fn cupy_tells_what_its_pool_holds() {
        let limited = one("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 805,306,368 bytes \
             (allocated so far: 536,870,912 bytes, limit set to: 1,073,741,824 bytes).");
        assert_eq!((limited.requested, limited.this_process), (Some(768 * MIB), Some(512 * MIB)));
        assert_eq!(limited.limit, Some(1024 * MIB));
        let verdict = limited.verdict();
        assert!(verdict.finding.contains("768 MiB requested; 512 MiB held"), "{}", verdict.finding);
        assert!(verdict.remedy.starts_with("The limit of the pool is 1.00 GiB: at least 256 MiB must go"));
        let full = one("Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes).");
        assert_eq!((full.requested, full.limit), (Some(25_600_000), None));
        assert!(full.verdict().remedy.starts_with("CuPy had released"), "{}", full.verdict().remedy);
        let old = one("out of memory to allocate 163840000 bytes (total 1673061376 bytes)");
        assert_eq!((old.requested, old.this_process), (Some(163_840_000), Some(1_509_221_376)));
        let old = one("out of memory to allocate 10 bytes (total 30 bytes, limit set to 25 bytes)");
        assert_eq!((old.this_process, old.limit), (Some(20), Some(25)));
        assert!(full.verdict().next.contains("cupy.get_default_memory_pool()"));
    }

    #[test]
    fn paddle_tells_what_is_allocated_and_free() {
        let full = one("ResourceExhaustedError: \n\nOut of memory error on GPU 1. Cannot allocate \
             56.000000MB memory on GPU 1, 7.500000GB memory has been allocated and available memory is only \
             12.750000MB.\n\nPlease check whether there is any other process using GPU 1.");
        assert_eq!((full.device.as_deref(), full.requested), (Some("GPU 1"), Some(56 * MIB)));
        assert_eq!((full.this_process, full.free), (Some(7680 * MIB), Some(51 * MIB / 4)));
        assert!(full.verdict().remedy.contains("nearly full"), "{}", full.verdict().remedy);
        assert!(full.verdict().next.contains("paddle.device.cuda.memory_reserved()"));
        let old = one("Out of memory error on GPU 0. Cannot allocate 6.933594GB memory on GPU 0, available \
             memory is only 726.750000MB.");
        assert_eq!((old.this_process, old.free), (None, Some(2907 * MIB / 4)));
        let oldest =
            one("Out of memory error on GPU 0. Cannot allocate 145.5MB GPU memory, available memory \
             is 72.5MB.");
        assert_eq!(oldest.free, Some(145 * MIB / 2));
        let none = one("Out of memory error on GPU 0. Cannot allocate 50.000000MB memory on GPU 0, \
             11.999512GB memory has been allocated and available memory is only 0.000000B.");
        assert_eq!(none.free, Some(0));
    }

    #[test]
    fn the_pool_of_rmm_is_full() {
        let old = one("MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/include/rmm/mr/device/\
             pool_memory_resource.hpp:196: Maximum pool size exceeded\n");
        assert_eq!((old.framework, old.requested), (Framework::Rmm, None));
        assert!(old.verdict().remedy.contains("maximum_pool_size"));
        assert!(old.verdict().next.contains("rmm.enable_logging"));
        let new = one("Maximum pool size exceeded (failed to allocate 2.000 GiB): Not enough room to grow");
        assert_eq!(new.requested, Some(2048 * MIB));
        assert_eq!(new.verdict().finding, "The pool of RMM ran out of memory: 2.00 GiB requested.");
    }

    #[test]
    fn other_texts_are_no_messages() {
        for text in [
            "Out of memory allocating ",
            "Out of memory allocating é bytes",
            "Out of memory allocating 5 bytes",
            "Out of memory allocating 99999999999999999999999 bytes (allocated so far: 1 bytes).",
            "out of memory to allocate 30 bytes (total 10 bytes)",
            "Out of memory error on GPU ",
            "Out of memory error on GPU é. Cannot allocate éGB memory has been allocated",
        ] {
            assert!(messages(&text.repeat(3)).is_empty(), "{text}");
            assert!(messages(&text.repeat(20_000)).is_empty(), "{text}");
        }
    }
}
