//! The dump of TensorFlow's BFC allocator, which JAX writes, too.

use super::scan::{after, size_after, size_at_start};
use super::{Framework, OutOfMemoryMessage};

const START: &str = "ran out of memory trying to allocate ";

/// The allocator's name is within this many bytes before it.
const NAME: usize = 200;

/// Returns the messages with their positions in the log. Each is followed by its dump.
pub(super) fn messages(log: &str) -> Vec<(usize, OutOfMemoryMessage)> {
    let starts: Vec<usize> = log.match_indices(START).map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([log.len()]);
    let texts = starts.iter().zip(ends).filter_map(|(&at, end)| Some((at, log.get(at..end)?)));
    texts.map(|(at, text)| (at, read(log.get(..at).unwrap_or_default(), text))).collect()
}

fn read(before: &str, text: &str) -> OutOfMemoryMessage {
    let mut message = OutOfMemoryMessage::new(Framework::Bfc);
    let near = before.len().saturating_sub(NAME);
    let near = (near..=before.len()).find(|&at| before.is_char_boundary(at)).unwrap_or(0);
    message.device = before
        .get(near..)
        .unwrap_or_default()
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
