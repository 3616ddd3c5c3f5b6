//! The memory map: the memory of all devices at one time, by kind, source and allocator.

use super::Context;
use super::routes::DeviceRoutes;
use orlop_alloc::{Allocator as _, AllocatorRef, Stats};
use orlop_core::{ByteSize, Device, MemoryKind};
use std::fmt;

/// The source of the memory that a context counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Source {
    /// From an allocator that is or was registered, or was created for the CPU.
    Registered,
    /// From an allocator that was passed for a request, such as an arena.
    Explicit,
    /// External: a vector that became a tensor, another framework's memory.
    Foreign,
    /// External: a mapped file.
    Mapped,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Registered => "registered",
            Self::Explicit => "explicit",
            Self::Foreign => "foreign",
            Self::Mapped => "mapped",
        })
    }
}

/// The live blocks of one kind on one device from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindUse {
    /// The device.
    pub device: Device,
    /// The kind.
    pub kind: MemoryKind,
    /// The source.
    pub source: Source,
    /// Granted bytes of live blocks.
    pub live: u64,
    /// Requested bytes of live blocks.
    pub requested: u64,
    /// Live blocks.
    pub blocks: u64,
}

/// The memory of one allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocatorUse {
    /// The device.
    pub device: Device,
    /// The source.
    pub source: Source,
    /// The allocator's name.
    pub allocator: Box<str>,
    /// Granted bytes of live blocks.
    pub live: u64,
    /// Bytes held from the backing. For external memory: the live bytes.
    pub reserved: u64,
    /// Bytes held that are neither live nor deferred.
    pub cached: u64,
    /// Bytes of freed blocks that wait for a stream.
    pub deferred: u64,
}

/// The memory of a context, by device, kind and source, and by allocator. Prints as two tables.
///
/// ```
/// use orlop_alloc::engine::Arena;
/// use orlop_alloc::{Allocator, Request, backing::System};
/// use orlop_context::Context;
/// use orlop_core::{Device, MemoryKind};
///
/// let context = Context::new();
/// let weights = context.allocate(Device::CPU, &Request::new(3 << 20).kind(MemoryKind::Persistent))?;
/// let arena = Arena::new(System::new(), 1 << 20).into_ref().erase();
/// let scratch = context.allocate_from(&arena, &Request::new(1 << 18).kind(MemoryKind::Workspace))?;
///
/// let map = context.memory_map();
/// assert_eq!(map.requested(MemoryKind::Persistent), 3 << 20);
/// assert_eq!(map.live(MemoryKind::Workspace), 1 << 18);
/// assert_eq!(map.live(MemoryKind::KvCache), 0);
/// println!("{map}");
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
///
/// That prints:
///
/// ```text
/// device kind         source             live    requested   blocks
/// cpu    persistent   registered    3.00 MiB     3.00 MiB        1
/// cpu    workspace    explicit    256.00 KiB   256.00 KiB        1
/// all                               3.25 MiB     3.25 MiB        2
///
/// device allocator    source             live     reserved   cached
/// …
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryMap {
    /// By device, kind and source, without empty entries.
    pub kinds: Vec<KindUse>,
    /// By allocator, including those that hold nothing.
    pub allocators: Vec<AllocatorUse>,
}

impl MemoryMap {
    /// Returns the granted bytes of a kind's live blocks, on all devices and from all sources.
    #[must_use]
    pub fn live(&self, kind: MemoryKind) -> u64 {
        sum_bytes(self.of_kind(kind).map(|part| part.live))
    }

    /// Returns the requested bytes of a kind's live blocks.
    #[must_use]
    pub fn requested(&self, kind: MemoryKind) -> u64 {
        sum_bytes(self.of_kind(kind).map(|part| part.requested))
    }

    /// Returns the granted bytes of live blocks from one source.
    #[must_use]
    pub fn live_from(&self, source: Source) -> u64 {
        sum_bytes(self.kinds.iter().filter(|part| part.source == source).map(|part| part.live))
    }

    /// Returns the granted bytes of all live blocks.
    #[must_use]
    pub fn total(&self) -> u64 {
        sum_bytes(self.kinds.iter().map(|part| part.live))
    }

    /// Returns the bytes that allocators hold, and the live bytes of external memory.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        sum_bytes(self.allocators.iter().map(|one| one.reserved))
    }

    /// Returns the bytes that allocators hold and that are neither live nor deferred.
    #[must_use]
    pub fn cached(&self) -> u64 {
        sum_bytes(self.allocators.iter().map(|one| one.cached))
    }

    fn of_kind(&self, kind: MemoryKind) -> impl Iterator<Item = &KindUse> + '_ {
        self.kinds.iter().filter(move |part| part.kind == kind)
    }

    fn add(&mut self, device: Device, source: Source, allocator: Box<str>, stats: &Stats) {
        for kind in MemoryKind::ALL {
            let account = stats.kind(kind);
            if account.live_blocks() == 0 {
                continue;
            }
            let is_same_part =
                |part: &&mut KindUse| (part.device, part.kind, part.source) == (device, kind, source);
            let (live, requested, blocks) =
                (account.live_bytes, account.requested_bytes, account.live_blocks());
            match self.kinds.iter_mut().find(is_same_part) {
                Some(part) => {
                    part.live = part.live.saturating_add(live);
                    part.requested = part.requested.saturating_add(requested);
                    part.blocks = part.blocks.saturating_add(blocks);
                }
                None => self.kinds.push(KindUse { device, kind, source, live, requested, blocks }),
            }
        }
        self.allocators.push(AllocatorUse {
            device,
            source,
            allocator,
            live: stats.live(),
            reserved: stats.usage.reserved,
            cached: stats.cached(),
            deferred: stats.usage.deferred,
        });
    }
}

/// Returns a sum of figures of several allocators: address space without memory reaches the end of the
/// numbers.
pub(crate) fn sum_bytes(figures: impl IntoIterator<Item = u64>) -> u64 {
    figures.into_iter().fold(0, u64::saturating_add)
}

impl fmt::Display for MemoryMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: u64| ByteSize(bytes).to_string();
        let device = |device: Device| device.to_string();
        writeln!(
            f,
            "{:<8} {:<16} {:<10} {:>12} {:>12} {:>10}",
            "device", "kind", "source", "live", "requested", "blocks"
        )?;
        for part in &self.kinds {
            let (live, requested) = (size(part.live), size(part.requested));
            let (device, kind) = (device(part.device), part.kind.name());
            writeln!(
                f,
                "{device:<8} {kind:<16} {:<10} {live:>12} {requested:>12} {:>10}",
                part.source, part.blocks
            )?;
        }
        let requested = size(sum_bytes(self.kinds.iter().map(|part| part.requested)));
        let blocks: u64 = sum_bytes(self.kinds.iter().map(|part| part.blocks));
        writeln!(f, "{:<36} {:>12} {requested:>12} {blocks:>10}", "all", size(self.total()))?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<8} {:<16} {:<10} {:>12} {:>12} {:>10}",
            "device", "allocator", "source", "live", "reserved", "cached"
        )?;
        for one in &self.allocators {
            let (live, reserved, cached) = (size(one.live), size(one.reserved), size(one.cached));
            let (device, name) = (device(one.device), &*one.allocator);
            writeln!(f, "{device:<8} {name:<16} {:<10} {live:>12} {reserved:>12} {cached:>10}", one.source)?;
        }
        let (live, reserved, cached) = (size(self.total()), size(self.reserved()), size(self.cached()));
        write!(f, "{:<36} {live:>12} {reserved:>12} {cached:>10}", "all")
    }
}

/// Returns the statistics of a device by source and allocator, each allocator once.
pub(super) fn stats_by_source(routes: &DeviceRoutes) -> Vec<(Source, Box<str>, Stats)> {
    let registered = routes.counted();
    let explicit = routes.explicit.all();
    // An adaptor over a counted allocator hands out that one's blocks: they count once, there.
    let is_under = |over: &dyn Fn(&AllocatorRef) -> bool| registered.iter().any(|&other| over(other));
    let mut stats = Vec::new();
    for &allocator in &registered {
        if !is_under(&|other| !other.same_as(allocator) && allocator.wraps(other)) {
            stats.push((Source::Registered, allocator.name().into(), allocator.stats()));
        }
    }
    for weak in &explicit {
        let over_explicit = || {
            let others = explicit.iter().filter_map(|other| other.upgrade());
            others.into_iter().any(|other| !weak.refers_to(&other) && weak.wraps(&other))
        };
        if !is_under(&|other| weak.refers_to(other) || weak.wraps(other)) && !over_explicit() {
            stats.extend(weak.stats().map(|(name, stats)| (Source::Explicit, name, stats)));
        }
    }
    let external = [(Source::Foreign, &routes.external.foreign), (Source::Mapped, &routes.external.mapped)];
    for (source, account) in external {
        stats.extend(account.get().map(|account| (source, account.name().into(), account.stats())));
    }
    stats
}

impl Context {
    /// Returns the memory that this context counts, on all devices. Exact if no thread allocates or frees
    /// meanwhile.
    #[must_use]
    pub fn memory_map(&self) -> MemoryMap {
        let mut map = MemoryMap::default();
        for device in self.devices() {
            let Some(routes) = self.inner.routes.get(device) else { continue };
            for (source, name, stats) in stats_by_source(&routes) {
                map.add(device, source, name, &stats);
            }
        }
        map.kinds.sort_by_key(|part| (part.device.to_string(), part.kind.index(), part.source));
        map
    }
}
