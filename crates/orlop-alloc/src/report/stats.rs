//! The figures of one allocator, and the table that shows them (P17).

use crate::{OutOfMemory, Refusal, Usage};
use orlop_core::{ByteSize, MemoryKind};
use orlop_sync::{Account, Totals};
use std::fmt;

/// What an allocator handed out, and what it holds for that.
///
/// *Live* bytes are in blocks not yet returned, as granted; *requested* are the same as users asked for
/// them; *reserved* is held from the backing; *cached* is reserved and not live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks and bytes, in all and by kind.
    pub totals: Totals,
    /// What the engine holds.
    pub usage: Usage,
    /// Frees that were refused as foreign or double.
    pub refused_frees: u64,
    /// Whether blocks of kind [`HostPinned`](MemoryKind::HostPinned) were handed out whose pages are not locked for DMA: see
    /// [`Semantics::pinned`](crate::Semantics::pinned).
    pub has_unpinned: bool,
}

impl Stats {
    /// Bytes in live blocks.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.totals.all.live_bytes
    }

    /// Bytes held and not live.
    #[must_use]
    pub fn cached(&self) -> u64 {
        self.usage.reserved.saturating_sub(self.live() + self.usage.deferred)
    }

    /// The account of one kind.
    #[must_use]
    pub fn kind(&self, kind: MemoryKind) -> &Account {
        &self.totals.kinds[kind.index()]
    }
}

/// The `memory_summary` table.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, account: &Account| {
            writeln!(
                f,
                "{name:<14} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}",
                ByteSize(account.live_bytes).to_string(),
                ByteSize(account.requested_bytes).to_string(),
                ByteSize(account.peak_bytes).to_string(),
                ByteSize(account.allocated_bytes).to_string(),
                ByteSize(account.freed_bytes).to_string(),
                account.live_blocks(),
            )
        };
        writeln!(
            f,
            "{:<14} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}",
            "kind", "live", "requested", "peak", "allocated", "freed", "blocks"
        )?;
        for kind in MemoryKind::ALL {
            let account = self.kind(kind);
            if account.allocations > 0 {
                row(f, kind.name(), account)?;
            }
        }
        row(f, "all", &self.totals.all)?;
        write!(
            f,
            "reserved {} in {} regions (peak {}), cached {}, deferred {}",
            ByteSize(self.usage.reserved),
            self.usage.regions,
            ByteSize(self.usage.peak_reserved),
            ByteSize(self.cached()),
            ByteSize(self.usage.deferred),
        )?;
        if self.totals.uncounted {
            f.write_str("\nbyte statistics are off: bytes and peaks are missing above")?;
        }
        if self.has_unpinned {
            write!(f, "\n{} memory is not pinned: its pages are not locked for DMA", MemoryKind::HostPinned)?;
        }
        Ok(())
    }
}

impl OutOfMemory {
    /// Adds who holds what.
    pub(crate) fn fill(&mut self, totals: &Totals) {
        // A budget's refusal has the context's figures, whichever allocators hand it on.
        if self.refusal != Refusal::Budget {
            self.live = totals.all.live_bytes;
            self.set_kinds(MemoryKind::ALL.map(|kind| (kind, totals.kinds[kind.index()].live_bytes)));
        }
    }
}
