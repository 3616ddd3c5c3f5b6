//! The story an out-of-memory error tells (T16): what was asked, what is free, what fragmentation took, who
//! holds the rest, what was tried, and what would have made it fit.

use crate::context::LadderStep;
use crate::{Tag, TagUse};
use orlop_core::{Alignment, ByteSize, Device, MemoryKind};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::{self, Write};

/// Why the memory was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The engine's own limit would be passed.
    Limit,
    /// The backing (operating system, driver) gave nothing.
    Backing,
    /// A hard budget of the kind would be passed.
    Budget,
    /// The arena or fixed pool is full and may not grow.
    Full,
    /// A test asked for this failure.
    Injected,
}

/// Free and used chunks of one bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BinUse {
    /// Chunks of at least this many bytes, and less than twice as many.
    pub from_bytes: usize,
    /// Chunks in use.
    pub used_chunks: usize,
    /// Their bytes.
    pub used_bytes: usize,
    /// The bytes that users asked for in them.
    pub requested_bytes: usize,
    /// Free chunks.
    pub free_chunks: usize,
    /// Their bytes.
    pub free_bytes: usize,
}

/// An out-of-memory report. Figures that nobody measured are zero or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Why.
    pub refusal: Refusal,
    /// The allocator's name.
    pub allocator: Box<str>,
    /// Where the memory was to be.
    pub device: Device,
    /// What it was for.
    pub kind: MemoryKind,
    /// Who asked.
    pub tag: Tag,
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes the allocator would have had to find, after rounding.
    pub rounded: usize,
    /// Alignment asked for.
    pub align: Alignment,
    /// Bytes in live blocks: of the allocator or, where a budget refused, of this kind in the context.
    pub live: u64,
    /// Bytes held from the backing. Zero where a budget refused: it bounds live bytes only.
    pub reserved: u64,
    /// The limit in force, if there is one.
    pub limit: Option<u64>,
    /// The largest free chunk.
    pub largest_free: u64,
    /// Bytes in free chunks.
    pub free: u64,
    /// Live bytes by kind, largest first, zeros left out: of the allocator or, where a budget refused, of the context.
    pub by_kind: Vec<(MemoryKind, u64)>,
    /// Live bytes by tag, largest first, where the engine knows. Where a budget refused, of blocks of this kind only.
    pub by_tag: Vec<(Tag, u64)>,
    /// Chunks by bin, where the engine has bins.
    pub bins: Vec<BinUse>,
    /// What was tried before giving up, with the bytes each step brought.
    pub tried: Vec<(LadderStep, u64)>,
}

impl OutOfMemory {
    /// A report that knows the request and nothing else yet.
    #[must_use]
    pub fn new(refusal: Refusal, allocator: &str, device: Device, request: &crate::Request) -> Self {
        Self {
            refusal,
            allocator: allocator.into(),
            device,
            kind: request.kind,
            tag: request.tag,
            requested: request.bytes,
            rounded: request.bytes,
            align: request.align,
            live: 0,
            reserved: 0,
            limit: None,
            largest_free: 0,
            free: 0,
            by_kind: Vec::new(),
            by_tag: Vec::new(),
            bins: Vec::new(),
            tried: Vec::new(),
        }
    }

    /// Sets [`OutOfMemory::by_kind`]: in order, without zeros.
    pub(crate) fn set_kinds(&mut self, kinds: impl IntoIterator<Item = (MemoryKind, u64)>) {
        self.by_kind = kinds.into_iter().filter(|&(_, bytes)| bytes > 0).collect();
        self.by_kind.sort_by_key(|&(_, bytes)| Reverse(bytes));
    }

    /// Sets [`OutOfMemory::by_tag`]: summed over kinds, in order, without zeros.
    pub(crate) fn set_tags(&mut self, parts: impl IntoIterator<Item = TagUse>) {
        let mut tags: HashMap<Tag, u64> = HashMap::new();
        for part in parts.into_iter().filter(|part| part.bytes > 0) {
            *tags.entry(part.tag).or_default() += part.bytes;
        }
        self.by_tag = tags.into_iter().collect();
        self.by_tag.sort_by_key(|&(tag, bytes)| (Reverse(bytes), tag));
    }

    /// Free bytes that no request of this size can use, as a share of all free bytes (0 to 1).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share to print")]
    pub fn fragmentation(&self) -> f64 {
        if self.free == 0 {
            0.0
        } else {
            (self.free - self.largest_free.min(self.free)) as f64 / self.free as f64
        }
    }

    /// The cheapest change after which the request would have fitted, in one sentence.
    #[must_use]
    pub fn hint(&self) -> String {
        let rounded = self.rounded as u64;
        if self.refusal == Refusal::Injected {
            return "the failure was injected: run without failure injection".into();
        }
        if self.free >= rounded && self.largest_free < rounded {
            return format!(
                "{} are free but the largest piece is {}: fragmentation took the rest; a plan, expandable \
                 regions or an empty cache would have made room",
                ByteSize(self.free),
                ByteSize(self.largest_free),
            );
        }
        let bound = match self.refusal {
            Refusal::Budget => Some(("budget", self.live)),
            // On top of all reserved bytes: a free chunk with a block behind it cannot grow.
            Refusal::Limit => Some(("limit", self.reserved)),
            _ => None,
        };
        if let (Some((bound, held)), Some(limit)) = (bound, self.limit) {
            let needed = ByteSize(held.saturating_add(rounded));
            return format!("a {bound} of {needed} instead of {} would have fitted", ByteSize(limit));
        }
        let short = rounded.saturating_sub(self.largest_free);
        match self.by_kind.first() {
            Some((kind, bytes)) => {
                format!("{} more are needed; {kind} holds most: {}", ByteSize(short), ByteSize(*bytes))
            }
            None => format!("{} more are needed", ByteSize(short)),
        }
    }

    /// The whole story over several lines.
    #[must_use]
    pub fn report(&self) -> String {
        format!("{self:#}\n")
    }

    fn write_report(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each line begins with what ends the one before.
        let mut out = String::new();
        self.write_holders(&mut out)?;
        write!(f, "\n  hint: {}", self.hint())?;
        out.lines().try_for_each(|line| write!(f, "\n{line}"))
    }

    fn write_holders(&self, out: &mut String) -> fmt::Result {
        for (kind, bytes) in &self.by_kind {
            writeln!(out, "  held by kind {kind}: {}", ByteSize(*bytes))?;
        }
        for (tag, bytes) in self.by_tag.iter().take(10) {
            let name = if *tag == Tag::NONE { "(untagged)" } else { tag.name() };
            if self.refusal == Refusal::Budget {
                writeln!(out, "  held by tag {name} in {}: {}", self.kind, ByteSize(*bytes))?;
            } else {
                writeln!(out, "  held by tag {name}: {}", ByteSize(*bytes))?;
            }
        }
        for bin in self.bins.iter().filter(|bin| bin.used_chunks + bin.free_chunks > 0) {
            writeln!(
                out,
                "  bin {:>10}: {} used ({}, asked {}), {} free ({})",
                ByteSize(bin.from_bytes as u64).to_string(),
                bin.used_chunks,
                ByteSize(bin.used_bytes as u64),
                ByteSize(bin.requested_bytes as u64),
                bin.free_chunks,
                ByteSize(bin.free_bytes as u64),
            )?;
        }
        for (step, bytes) in &self.tried {
            writeln!(out, "  tried {step}: {} came back", ByteSize(*bytes))?;
        }
        Ok(())
    }
}

/// One line; as `{:#}` all of [`OutOfMemory::report`].
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory on {} ({}): {} asked for {}",
            self.device,
            self.allocator,
            ByteSize(self.requested as u64),
            self.kind
        )?;
        match self.refusal {
            Refusal::Limit => write!(f, ", the limit would be passed")?,
            Refusal::Backing => write!(f, ", the backing has no more")?,
            Refusal::Budget => write!(f, ", the budget of this kind would be passed")?,
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
        if self.free > 0 {
            write!(
                f,
                "; {} free, largest piece {} ({:.0}% fragmented)",
                ByteSize(self.free),
                ByteSize(self.largest_free),
                self.fragmentation() * 100.0
            )?;
        }
        if f.alternate() { self.write_report(f) } else { Ok(()) }
    }
}
