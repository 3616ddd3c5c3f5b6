//! The out-of-memory report: what was requested, what is free, how much is lost to fragmentation, which kinds
//! and tags have the rest, what was tried, and what would have made the request fit.

use super::LadderStep;
use crate::engine_support::{EngineScope, guarded};
use crate::{AllocatorRef, DeviceMemory, Tag, TagUse};
use orlop_core::{Alignment, ByteSize, Device, MemoryKind};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It would exceed the engine's own limit.
    Limit,
    /// The backing (operating system, driver) has no memory left.
    Backing,
    /// The device has no addresses left to map memory at.
    Addresses {
        /// The bytes of addresses that the allocator has reserved.
        reserved: u64,
    },
    /// It would exceed a hard budget of the kind.
    Budget,
    /// The arena or fixed pool is full and may not grow.
    Full,
    /// A test injected this failure.
    Injected,
}

impl Refusal {
    /// Returns what refused the request: the device, a limit or a budget.
    #[must_use]
    pub const fn cause(self) -> RefusalCause {
        match self {
            Self::Backing | Self::Addresses { .. } | Self::Injected => RefusalCause::Device,
            Self::Limit | Self::Full => RefusalCause::Limit,
            Self::Budget => RefusalCause::Budget,
        }
    }
}

/// What refused a request, and so what would have to be larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCause {
    /// The backing has no memory left ([`Refusal::Backing`]), or a test says so ([`Refusal::Injected`]).
    Device,
    /// The allocator has a limit ([`Refusal::Limit`]) or a fixed size ([`Refusal::Full`]).
    Limit,
    /// The kind has a budget in the context.
    Budget,
}

impl RefusalCause {
    /// All causes.
    pub const ALL: [Self; 3] = [Self::Device, Self::Limit, Self::Budget];

    /// Returns the name: `device`, `limit` or `budget`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Limit => "limit",
            Self::Budget => "budget",
        }
    }
}

impl fmt::Display for RefusalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Free and used chunks of one bin, by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BinUse {
    /// The smallest size of the bin in bytes; its largest is below twice this.
    pub from_bytes: usize,
    /// Number of chunks in use.
    pub used_chunks: usize,
    /// Bytes in those chunks.
    pub used_bytes: usize,
    /// Bytes that users requested in the chunks in use.
    pub requested_bytes: usize,
    /// Number of free chunks.
    pub free_chunks: usize,
    /// Bytes in those chunks.
    pub free_bytes: usize,
}

/// An out-of-memory report. Figures that were not measured are zero or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The number of this refusal, unique in the process: [`Event::Settled`](crate::Event::Settled) says
    /// which refusals belong to one request, and whether it was served in the end.
    pub number: u64,
    /// The reason of the refusal.
    pub refusal: Refusal,
    /// The name of the allocator that refused the request or, for [`Refusal::Budget`], did not get it: the
    /// budget of `kind` refused it.
    pub allocator: Box<str>,
    /// The device of the request.
    pub device: Device,
    /// The kind of the request.
    pub kind: MemoryKind,
    /// The tag of the request.
    pub tag: Tag,
    /// Requested bytes.
    pub requested: usize,
    /// Requested bytes after the allocator's rounding.
    pub rounded: usize,
    /// True if the request was refused before the allocator got it: the rounding is then unknown, and
    /// `rounded` is the least that it can be.
    pub rounded_is_minimum: bool,
    /// Requested alignment.
    pub align: Alignment,
    /// Bytes in live blocks of the allocator or, for [`Refusal::Budget`], of this kind in the context.
    pub live: u64,
    /// Bytes reserved from the backing. Zero for [`Refusal::Budget`]: a budget bounds live bytes only.
    pub reserved: u64,
    /// The limit in force, if there is one. For [`Refusal::Budget`] with what is borrowed, and without what
    /// is lent.
    pub limit: Option<u64>,
    /// Bytes of the kind's budget that are lent to other kinds. Zero unless [`Refusal::Budget`].
    pub lent: u64,
    /// Bytes of the largest free chunk.
    pub largest_free: u64,
    /// Bytes in free chunks.
    pub free: u64,
    /// Live bytes by kind, largest first, without zeros: of the allocator or, for [`Refusal::Budget`], of the
    /// context.
    pub by_kind: Vec<(MemoryKind, u64)>,
    /// Live bytes by tag, largest first, if the engine knows them. For [`Refusal::Budget`], of blocks of this
    /// kind only.
    pub by_tag: Vec<(Tag, u64)>,
    /// Chunks by bin, if the engine has bins.
    pub bins: Vec<BinUse>,
    /// The reclaim steps that were tried, with the bytes that each one freed or, for [`LadderStep::Borrow`],
    /// was lent.
    pub tried: Vec<(LadderStep, u64)>,
    /// Bytes in free chunks of the allocators that share the device's memory, this one included, by name,
    /// without zeros; empty if the allocator does not know of others.
    pub caches: Vec<(Box<str>, u64)>,
    /// The device's memory when the request was refused, if the allocator can tell. `None` for
    /// [`Refusal::Budget`].
    pub device_memory: Option<DeviceMemory>,
}

impl OutOfMemory {
    /// Creates a report with the fields of the request; all figures are zero or empty.
    #[must_use]
    pub fn new(refusal: Refusal, allocator: &str, device: Device, request: &crate::Request) -> Self {
        static REFUSALS: AtomicU64 = AtomicU64::new(1);
        Self {
            // Relaxed: the numbers only need to differ.
            number: REFUSALS.fetch_add(1, Ordering::Relaxed),
            refusal,
            allocator: allocator.into(),
            device,
            kind: request.kind,
            tag: request.tag,
            requested: request.bytes,
            rounded: request.bytes,
            rounded_is_minimum: false,
            align: request.align,
            live: 0,
            reserved: 0,
            limit: None,
            lent: 0,
            largest_free: 0,
            free: 0,
            by_kind: Vec::new(),
            by_tag: Vec::new(),
            bins: Vec::new(),
            tried: Vec::new(),
            caches: Vec::new(),
            device_memory: None,
        }
    }

    /// Sets [`OutOfMemory::by_kind`], sorted and without zeros.
    pub fn set_kinds(&mut self, kinds: impl IntoIterator<Item = (MemoryKind, u64)>) {
        self.by_kind = kinds.into_iter().filter(|&(_, bytes)| bytes > 0).collect();
        self.by_kind.sort_by_key(|&(_, bytes)| Reverse(bytes));
    }

    /// Sets [`OutOfMemory::by_tag`], summed over kinds, sorted and without zeros.
    pub fn set_tags(&mut self, parts: impl IntoIterator<Item = TagUse>) {
        let mut tags: HashMap<Tag, u64> = HashMap::new();
        for part in parts.into_iter().filter(|part| part.bytes > 0) {
            *tags.entry(part.tag).or_default() += part.bytes;
        }
        self.by_tag = tags.into_iter().collect();
        self.by_tag.sort_by_key(|&(tag, bytes)| (Reverse(bytes), tag));
    }

    /// Sets [`OutOfMemory::caches`] to what the `linked` allocators have cached. Those without statistics are
    /// left out. Inside an engine it does nothing: their locks are not waited for.
    pub fn set_caches(&mut self, linked: impl FnOnce() -> Vec<AllocatorRef>) {
        if EngineScope::is_inside() {
            return;
        }
        let cached = |allocator: AllocatorRef| {
            let stats = allocator.stats();
            (!stats.totals.uncounted).then(|| (allocator.name().into(), stats.cached()))
        };
        let linked = guarded(linked).unwrap_or_default().into_iter();
        // Each handle is dropped in the guard as well: it can be the last one.
        let caches = linked.filter_map(|allocator| guarded(|| cached(allocator)).flatten());
        self.caches = caches.filter(|&(_, bytes)| bytes > 0).collect();
    }

    /// Returns the share of free bytes that are not in the largest free chunk (0 to 1).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share to print")]
    pub fn fragmentation(&self) -> f64 {
        if self.free == 0 {
            0.0
        } else {
            (self.free - self.largest_free.min(self.free)) as f64 / self.free as f64
        }
    }

    /// Returns the bytes of the device that are in use and not reserved by this allocator: other processes',
    /// other allocators' and the driver's. `None` if the device's memory is not known.
    #[must_use]
    pub fn held_elsewhere(&self) -> Option<u64> {
        let memory = self.device_memory?;
        Some(memory.total.saturating_sub(memory.free).saturating_sub(self.reserved))
    }

    /// Returns one sentence on the cheapest change that would have let the request fit.
    #[must_use]
    pub fn hint(&self) -> String {
        let rounded = self.rounded as u64;
        if self.refusal == Refusal::Injected {
            return "the failure was injected: run without failure injection".into();
        }
        if let Refusal::Addresses { reserved } = self.refusal {
            return format!(
                "{} of addresses are reserved: fewer streams that allocate, or a policy whose ranges grow, \
                 would reserve less",
                ByteSize(reserved)
            );
        }
        if self.free >= rounded && self.largest_free < rounded {
            return format!(
                "{} are free but the largest chunk is {}, due to fragmentation: a memory plan, expandable \
                 regions or an empty cache would have made room",
                ByteSize(self.free),
                ByteSize(self.largest_free),
            );
        }
        let bound = match self.refusal {
            Refusal::Budget => Some(("budget", self.live)),
            // On top of all reserved bytes: a free chunk followed by a live block cannot grow.
            Refusal::Limit => Some(("limit", self.reserved)),
            _ => None,
        };
        if let (Some((bound, held)), Some(limit)) = (bound, self.limit) {
            // Lent bytes count as well: they are repaid only when the borrower frees memory.
            let needed = held.saturating_add(rounded).saturating_add(self.lent);
            let needed = ByteSize(needed).rounded_up();
            let limit = ByteSize(limit.saturating_add(self.lent));
            return if self.rounded_is_minimum {
                format!("a {bound} of at least {needed} instead of {limit} is needed")
            } else {
                format!("a {bound} of {needed} instead of {limit} would have fitted")
            };
        }
        let short = rounded.saturating_sub(self.largest_free);
        let elsewhere = self.held_elsewhere().filter(|&held| held > self.reserved && held >= short);
        if let Some(elsewhere) = elsewhere {
            return format!(
                "{} more are needed; {} of {} are held outside of this allocator, by other processes or \
                 allocators",
                ByteSize(short),
                ByteSize(elsewhere),
                self.device
            );
        }
        match self.by_kind.first() {
            Some((kind, bytes)) => {
                format!(
                    "{} more are needed; {kind} has the most live bytes: {}",
                    ByteSize(short),
                    ByteSize(*bytes)
                )
            }
            None => format!("{} more are needed", ByteSize(short)),
        }
    }

    /// Returns the full report, on several lines.
    #[must_use]
    pub fn report(&self) -> String {
        format!("{self:#}\n")
    }

    fn write_report(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each line is preceded by its line break, so that the report does not end with one.
        let mut out = String::new();
        self.write_details(&mut out)?;
        write!(f, "\n  hint: {}", self.hint())?;
        out.lines().try_for_each(|line| write!(f, "\n{line}"))
    }

    fn write_details(&self, out: &mut String) -> fmt::Result {
        for (kind, bytes) in &self.by_kind {
            writeln!(out, "  live in kind {kind}: {}", ByteSize(*bytes))?;
        }
        for (tag, bytes) in self.by_tag.iter().take(10) {
            let name = if *tag == Tag::NONE { "(untagged)" } else { tag.name() };
            if self.refusal == Refusal::Budget {
                writeln!(out, "  live under tag {name} in {}: {}", self.kind, ByteSize(*bytes))?;
            } else {
                writeln!(out, "  live under tag {name}: {}", ByteSize(*bytes))?;
            }
        }
        for bin in self.bins.iter().filter(|bin| bin.used_chunks + bin.free_chunks > 0) {
            writeln!(
                out,
                "  bin {:>10}: {} used ({}, requested {}), {} free ({})",
                ByteSize(bin.from_bytes as u64).to_string(),
                bin.used_chunks,
                ByteSize(bin.used_bytes as u64),
                ByteSize(bin.requested_bytes as u64),
                bin.free_chunks,
                ByteSize(bin.free_bytes as u64),
            )?;
        }
        for (step, bytes) in &self.tried {
            writeln!(out, "  tried {step}: {} {}", ByteSize(*bytes), step.effect())?;
        }
        if let (Some(memory), Some(elsewhere)) = (self.device_memory, self.held_elsewhere()) {
            writeln!(out, "  device: {memory}; {} held outside of this allocator", ByteSize(elsewhere))?;
        }
        Ok(())
    }
}

/// Writes one line; with `{:#}` the full [`OutOfMemory::report`].
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory on {} ({}): {} requested for {}",
            self.device,
            self.allocator,
            ByteSize(self.requested as u64),
            self.kind
        )?;
        match self.refusal {
            Refusal::Limit => write!(f, ", which would exceed the limit")?,
            Refusal::Backing => write!(f, ", the backing has no memory left")?,
            Refusal::Addresses { reserved } => {
                write!(f, ", no addresses are left ({} are reserved)", ByteSize(reserved))?;
            }
            Refusal::Budget => write!(f, ", which would exceed the budget of this kind")?,
            Refusal::Full => write!(f, ", the fixed pool is full")?,
            Refusal::Injected => write!(f, ", by failure injection")?,
        }
        if self.refusal == Refusal::Budget {
            write!(f, "; {} in live {} blocks", ByteSize(self.live), self.kind)?;
        } else {
            write!(f, "; {} in live blocks, {} reserved", ByteSize(self.live), ByteSize(self.reserved))?;
        }
        if let Some(limit) = self.limit {
            let bound = if self.refusal == Refusal::Budget { "budget" } else { "limit" };
            write!(f, ", {bound} {}", ByteSize(limit))?;
        }
        if self.lent > 0 {
            write!(f, " beside {} that are lent to other kinds", ByteSize(self.lent))?;
        }
        if self.free > 0 {
            write!(
                f,
                "; {} free, largest chunk {} ({:.0}% fragmented)",
                ByteSize(self.free),
                ByteSize(self.largest_free),
                self.fragmentation() * 100.0
            )?;
        }
        for (index, (name, bytes)) in self.caches.iter().enumerate() {
            let before = if index == 0 { "; cached by" } else { "," };
            write!(f, "{before} {name}: {}", ByteSize(*bytes))?;
        }
        if f.alternate() { self.write_report(f) } else { Ok(()) }
    }
}
