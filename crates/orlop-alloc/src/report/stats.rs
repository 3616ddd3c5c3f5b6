//! The statistics of one allocator, and the table that shows them.

use crate::{OutOfMemory, Refusal, Usage};
use orlop_core::{ByteSize, MemoryKind};
use orlop_sync::{Account, Totals};
use std::fmt;

/// Statistics of an allocator: the blocks it handed out and the memory it reserved.
///
/// *Live* bytes are in blocks that have not been returned, after rounding; *requested* bytes are the same
/// before rounding; *reserved* bytes are held from the backing; *cached* bytes are reserved and neither live
/// nor deferred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks and bytes, in total and by kind.
    pub totals: Totals,
    /// Memory of the engine.
    pub usage: Usage,
    /// Number of frees refused because the pointer was foreign or already freed.
    pub refused_frees: u64,
    /// True if blocks of kind [`HostPinned`](MemoryKind::HostPinned) were handed out whose pages are not
    /// locked for DMA: see [`Semantics::pinned`](crate::Semantics::pinned).
    pub has_unpinned: bool,
}

impl Stats {
    /// Returns the bytes in live blocks.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.totals.all.live_bytes
    }

    /// Returns the reserved bytes that are neither live nor deferred.
    #[must_use]
    pub fn cached(&self) -> u64 {
        self.usage.reserved.saturating_sub(self.live() + self.usage.deferred)
    }

    /// Returns the account of one kind.
    #[must_use]
    pub fn kind(&self, kind: MemoryKind) -> &Account {
        &self.totals.kinds[kind.index()]
    }
}

/// Writes a table in the style of PyTorch's `memory_summary`.
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
            "reserved {} in {} region{} (peak {}), cached {}, deferred {}",
            ByteSize(self.usage.reserved),
            self.usage.regions,
            if self.usage.regions == 1 { "" } else { "s" },
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
    /// Sets the live bytes, in total and by kind.
    pub(crate) fn fill(&mut self, totals: &Totals) {
        // A report of a refused budget already has the context's figures, which allocators that pass it on
        // must keep.
        if self.refusal != Refusal::Budget {
            self.live = totals.all.live_bytes;
            self.set_kinds(MemoryKind::ALL.map(|kind| (kind, totals.kinds[kind.index()].live_bytes)));
        }
    }
}
