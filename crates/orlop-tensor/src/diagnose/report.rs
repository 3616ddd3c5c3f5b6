//! The text form of a [`Diagnosis`]: two columns.

use super::{BlockDiagnosis, Diagnosis};
use orlop_alloc::{Access, AllocationId, Tag};
use orlop_core::{ByteSize, Overlap};
use std::fmt;

/// Writes one property per line: its name and its value.
///
/// ```text
/// shape             [64, 32]
/// strides           [32, 1]
/// storage offset    0
/// dtype             float16
/// ...
/// ```
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.defined {
            return f.write_str("undefined");
        }
        let (shape, strides): (&[usize], &[usize]) = (&self.shape, &self.strides);
        row(f, "shape", format_args!("{shape:?}"))?;
        next(f, "strides", format_args!("{strides:?}"))?;
        next(f, "storage offset", self.storage_offset)?;
        next(f, "dtype", self.dtype)?;
        next(f, "device", self.device)?;
        next(f, "kind", self.kind)?;
        next(f, "order", self.order())?;
        let overlap = match self.internal_overlap {
            Overlap::No => "no",
            Overlap::Yes => "yes",
            Overlap::TooHard => "not known",
        };
        next(f, "internal overlap", overlap)?;
        next(f, "element", ByteSize(bytes(self.itemsize)))?;
        next(f, "tensor", ByteCount(self.tensor_bytes))?;
        let outside = if self.within_storage { "" } else { ": elements are outside" };
        next(f, "storage", format_args!("{}{outside}", ByteCount(self.storage_bytes)))?;
        next(
            f,
            "capacity",
            self.capacity
                .map_or(ReportValue::Unknown, |capacity| ReportValue::ByteCount(ByteCount(capacity))),
        )?;
        next(f, "address", self.address.map_or(ReportValue::Unknown, ReportValue::Address))?;
        next(f, "tensor uses", self.tensor_use_count)?;
        next(f, "storage uses", self.storage_use_count)?;
        next(f, "version", self.version)?;
        let flags = [
            (self.copy_on_write, "copy on write"),
            (self.resizable, "resizable"),
            (self.read_only, "read-only"),
            (self.unbound, "unbound"),
            (self.foreign_process, "another process's"),
        ];
        next(f, "flags", CommaList(|| flags.iter().filter(|(set, _)| *set).map(|(_, name)| name)))?;
        if let Some(reason) = &self.unreadable {
            next(f, "unreadable", reason)?;
        }
        match &self.block {
            Some(block) => block.fmt(f),
            None => next(f, "block", ReportValue::Unknown),
        }
    }
}

impl Diagnosis {
    fn order(&self) -> &'static str {
        match self {
            Self { contiguous: true, .. } => "contiguous",
            Self { channels_last: true, .. } => "channels last",
            Self { channels_last_3d: true, .. } => "channels last 3d",
            Self { dense: true, .. } => "dense",
            _ => "strided",
        }
    }
}

impl BlockDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requested, granted) = (ByteCount(self.requested), ByteCount(self.granted));
        next(f, "block", format_args!("{requested}, {granted} granted"))?;
        next(f, "block address", ReportValue::Address(self.address))?;
        next(f, "alignment", self.align)?;
        let access = match self.access {
            Access::Host => "host",
            Access::Device => "device",
            Access::None => "none",
        };
        next(f, "access", access)?;
        match self.tag {
            Tag::NONE => next(f, "tag", "none")?,
            tag => next(f, "tag", tag)?,
        }
        match self.id {
            AllocationId::NONE => next(f, "allocation", "none")?,
            id => next(f, "allocation", id)?,
        }
        let allocator = match &self.allocator {
            Some(name) => name,
            None if self.has_allocator => "an allocator without handles",
            None => "no allocator: foreign memory",
        };
        next(f, "returns to", allocator)?;
        next(f, "owners", self.owners)?;
        next(f, "stream", self.stream)?;
        next(f, "stream uses", CommaList(|| self.stream_uses.iter()))
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    write!(f, "{name:<18}{value}")
}

fn next(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    f.write_str("\n")?;
    row(f, name, value)
}

/// A value, or `unknown` while a write is in progress.
enum ReportValue {
    ByteCount(ByteCount),
    Address(usize),
    Unknown,
}

impl fmt::Display for ReportValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByteCount(bytes) => bytes.fmt(f),
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// A byte count, exactly and with a unit.
struct ByteCount(usize);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = ByteSize(bytes(self.0));
        if self.0 < 1024 { size.fmt(f) } else { write!(f, "{size} ({})", self.0) }
    }
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Items separated by commas, or `none`.
struct CommaList<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: fmt::Display>> fmt::Display for CommaList<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut things = (self.0)();
        let Some(first) = things.next() else { return f.write_str("none") };
        first.fmt(f)?;
        things.try_for_each(|thing| write!(f, ", {thing}"))
    }
}
