//! The dump of TensorFlow's BFC allocator, which JAX writes, too, and TensorFlow's error about a tensor.

use super::scan::{after, before, size_after, size_at_start, start_of};
use super::{Framework, OutOfMemoryMessage};
use std::collections::HashSet;

const START: &str = "ran out of memory trying to allocate ";

/// The allocator's name is within this many bytes before it.
const NAME: usize = 200;

/// How TensorFlow's error begins, in capitals and without.
const TENSOR: [&str; 2] =
    ["OOM when allocating tensor with shape[", "oom when allocating tensor with shape["];

/// An error about a tensor ends within this many bytes.
const TENSOR_LENGTH: usize = 600;

/// A request is rounded up to this.
const ROUNDING: u64 = 256;

/// Returns the messages with their positions in the log. The error about a tensor follows the dump of the
/// same request, if there is one, and says less.
pub(super) fn messages(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let rounded = |message: &OutOfMemoryMessage| {
        Some((message.device.clone(), message.requested?.checked_next_multiple_of(ROUNDING)?))
    };
    let mut found = dumps(log);
    let dumped: HashSet<_> = found.iter().filter_map(|(_, dump)| rounded(dump)).collect();
    let is_new =
        |tensor: &OutOfMemoryMessage| rounded(tensor).is_none_or(|request| !dumped.contains(&request));
    found.extend(tensors(log).into_iter().filter(|(_, tensor)| is_new(tensor)));
    found
}

/// Reads `OOM when allocating tensor with shape[64,112,112,64] and type float on … by allocator GPU_0_bfc`.
fn tensors(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let read = |at: usize, start: &str| {
        let text = start_of(log.get(at + start.len()..)?, TENSOR_LENGTH).lines().next()?;
        let (shape, rest) = text.split_once(']')?;
        let name = after(rest, " and type ")?.split([' ', ',']).next()?;
        let sizes = shape.split(',').filter(|size| !size.trim().is_empty());
        let bytes = sizes
            .map(|size| size.trim().parse::<u64>().ok())
            .try_fold(bytes_of(name)?, |bytes, size| bytes.checked_mul(size?))?;
        let mut message = OutOfMemoryMessage::new(Framework::Bfc);
        message.requested = Some(bytes);
        message.device = after(rest, "by allocator ")?.split_whitespace().next().map(str::to_owned);
        Some((at, message))
    };
    let starts = TENSOR.into_iter().flat_map(|start| log.match_indices(start));
    starts.filter_map(|(at, start)| read(at, start)).collect()
}

/// Returns the bytes of an element of one of TensorFlow's types.
fn bytes_of(name: &str) -> Option<u64> {
    Some(match name {
        "bool" | "int8" | "uint8" | "qint8" | "quint8" | "float8_e4m3fn" | "float8_e5m2" => 1,
        "half" | "bfloat16" | "int16" | "uint16" | "qint16" | "quint16" => 2,
        "float" | "int32" | "uint32" | "qint32" => 4,
        "double" | "int64" | "uint64" | "complex64" => 8,
        "complex128" => 16,
        _ => return None,
    })
}

fn dumps(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let starts: Vec<usize> = log.match_indices(START).map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([log.len()]);
    let texts = starts.iter().zip(ends).filter_map(|(&at, end)| Some((at, log.get(at..end)?)));
    texts.map(|(at, text)| (at, read(log, at, text))).collect()
}

/// Reads the dump `text`, which begins at `at`.
fn read(log: &str, at: usize, text: &str) -> OutOfMemoryMessage {
    let mut message = OutOfMemoryMessage::new(Framework::Bfc);
    message.device = before(log, at, NAME)
        .rsplit_once("Allocator (")
        .and_then(|(_, name)| name.split_once(')'))
        .map(|(name, _)| name.to_owned());
    message.requested = size_after(text, "(rounded to ").or_else(|| size_after(text, START));
    let statistic = |name: &str| text.lines().find_map(|line| size_at_start(after(line, name)?));
    message.total = statistic("Limit: ").or_else(|| statistic("memory_limit_: "));
    let regions = statistic("total_region_allocated_bytes_: ");
    message.live = statistic("InUse: ").or_else(|| statistic("Sum Total of in-use chunks: "));
    message.unused = regions.zip(message.live).map(|(regions, live)| regions.saturating_sub(live));
    message.free = message.total.zip(regions).map(|(total, regions)| total.saturating_sub(regions));
    message.largest_unused = statistic("LargestFreeBlock: ").filter(|&bytes| bytes > 0).or_else(|| {
        // `Free  at 7f12 of size 256 next 1`
        let free = text.lines().filter_map(|line| after(line, "Free "));
        free.filter_map(|line| size_after(line, " of size ")).max()
    });
    message
}
