//! The lines of an allocation log.
//!
//! They are RMM's (`Thread,Time,Action,Pointer,Size,Stream`), so that its replay and plotting tools read
//! them, with four more columns: the tag, the step, the id of the allocation, and its allocator.

use orlop_alloc::{AllocationId, Tag};
use orlop_core::StreamId;
use std::fmt::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

/// An action in an allocation log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogAction {
    /// A block was allocated.
    Allocate,
    /// A request failed, for whatever reason; the pointer is null.
    AllocateFailure,
    /// A block was freed.
    Free,
    /// A free was refused: the block was foreign, or freed already.
    FreeRefused,
}

impl fmt::Display for LogAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocate => "allocate",
            Self::AllocateFailure => "allocate failure",
            Self::Free => "free",
            Self::FreeRefused => "free refused",
        })
    }
}

/// One line of the log.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LogRecord<'a> {
    /// The operating system's id of the thread if it has one, else a number that differs by thread.
    pub thread: u64,
    /// The time of the event.
    pub time: SystemTime,
    /// The action.
    pub action: LogAction,
    /// The block's address, zero if there is none.
    pub pointer: usize,
    /// Requested bytes.
    pub bytes: usize,
    /// The stream of the request; the default stream for a free by address.
    pub stream: StreamId,
    /// The tag of the request; none for a free by address.
    pub tag: Tag,
    /// The step set by [`LogSwitch::set_step`](super::LogSwitch::set_step).
    pub step: u64,
    /// The id of the allocation; none for a failed request, and where the allocator gives no ids.
    pub id: AllocationId,
    /// The name of the allocator.
    pub allocator: &'a str,
}

impl LogRecord<'_> {
    /// The heading of a log.
    pub const HEADER: &'static str = "Thread,Time,Action,Pointer,Size,Stream,Tag,Step,Id,Allocator";
}

/// The line of CSV, without its end. The time of day is UTC, to the microsecond.
impl fmt::Display for LogRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A clock before 1970 is broken; its lines have midnight.
        let since_epoch = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = since_epoch.as_secs() % 86_400;
        write!(
            f,
            "{},{:02}:{:02}:{:02}.{:06},{},{:#x},{},",
            self.thread,
            second / 3600,
            second / 60 % 60,
            second % 60,
            since_epoch.subsec_micros(),
            self.action,
            self.pointer,
            self.bytes,
        )?;
        if self.stream.is_default() {
            f.write_str("0,")?;
        } else {
            write!(f, "{:#x},", self.stream.raw())?;
        }
        write_field(f, self.tag.name())?;
        write!(f, ",{},{},", self.step, self.id)?;
        write_field(f, self.allocator)
    }
}

/// A field of CSV, quoted where it must be (RFC 4180).
fn write_field(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    if !text.contains([',', '"', '\n', '\r']) {
        return f.write_str(text);
    }
    f.write_char('"')?;
    for character in text.chars() {
        if character == '"' {
            f.write_char('"')?;
        }
        f.write_char(character)?;
    }
    f.write_char('"')
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_time_of_day_is_utc() {
        let record = LogRecord {
            thread: 1,
            time: UNIX_EPOCH + Duration::new(86_400 * 365 + 3 * 3600 + 25 * 60 + 45, 678_000),
            action: LogAction::Free,
            pointer: 0xff0,
            bytes: 8,
            stream: StreamId::HOST,
            tag: Tag::NONE,
            step: 0,
            id: AllocationId::NONE,
            allocator: "bfc, small",
        };
        assert_eq!(record.to_string(), "1,03:25:45.000678,free,0xff0,8,0,,0,0,\"bfc, small\"");
    }
}
