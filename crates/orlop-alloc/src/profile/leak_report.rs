//! What a leak check found, and the table that names it.

use super::leaks::LiveBlock;
use super::shapes::{ShapeFigures, ShapeTotals};
use super::table::Table;
use crate::adaptor::TagTotal;
use crate::{AllocationId, Tag};
use orlop_core::{ByteSize, Device, MemoryKind};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// What is still alive: see [`LeakCheck`](super::LeakCheck). Prints as a table, largest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Leaks {
    blocks: Vec<LiveBlock>,
    refused_frees: u64,
    missed: u64,
}

/// What one tag holds of one kind on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeakGroup {
    /// Who asked.
    pub tag: Tag,
    /// What it is for.
    pub kind: MemoryKind,
    /// Where it is.
    pub device: Device,
    /// Granted bytes.
    pub granted: u64,
    /// Bytes as asked for.
    pub requested: u64,
    /// Which allocations, in order.
    pub ids: Vec<AllocationId>,
    /// The tensors they were for, as far as they were for any; by bytes, the largest first.
    pub shapes: Vec<ShapeFigures>,
}

impl Leaks {
    pub(super) fn new(blocks: Vec<LiveBlock>, refused_frees: u64, missed: u64) -> Self {
        Self { blocks, refused_frees, missed }
    }

    /// Whether nothing is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Everything alive, in the order in which it was allocated.
    #[must_use]
    pub fn blocks(&self) -> &[LiveBlock] {
        &self.blocks
    }

    /// Granted bytes alive.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.blocks.iter().map(|block| as_u64(block.granted)).sum()
    }

    /// The same as was asked for, before rounding.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.blocks.iter().map(|block| as_u64(block.requested)).sum()
    }

    /// Frees that were refused meanwhile. A block whose return was refused is not among those alive, but its memory is
    /// not to be had either.
    #[must_use]
    pub fn refused_frees(&self) -> u64 {
        self.refused_frees
    }

    /// Blocks that came or went unseen: see [`Observers::missed`](super::Observers::missed). If not zero, what was found
    /// may be wrong.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// What each tag holds, largest first.
    #[must_use]
    pub fn by_tag(&self) -> Vec<TagTotal> {
        let mut totals = BTreeMap::<Tag, TagTotal>::new();
        for block in &self.blocks {
            let total = totals.entry(block.tag).or_insert(TagTotal { tag: block.tag, ..TagTotal::default() });
            total.blocks += 1;
            total.granted += as_u64(block.granted);
            total.requested += as_u64(block.requested);
        }
        let mut totals: Vec<TagTotal> = totals.into_values().collect();
        totals.sort_by_key(|total| Reverse(total.granted));
        totals
    }

    /// Granted bytes of each kind that holds any, largest first.
    #[must_use]
    pub fn by_kind(&self) -> Vec<(MemoryKind, u64)> {
        let mut totals = BTreeMap::<MemoryKind, u64>::new();
        for block in &self.blocks {
            *totals.entry(block.kind).or_default() += as_u64(block.granted);
        }
        let mut totals: Vec<_> = totals.into_iter().collect();
        totals.sort_by_key(|&(_, granted)| Reverse(granted));
        totals
    }

    /// What each tag holds of each kind and device, largest first.
    #[must_use]
    pub fn groups(&self) -> Vec<LeakGroup> {
        let mut groups = BTreeMap::<(Tag, MemoryKind, Device), (LeakGroup, ShapeTotals)>::new();
        for &LiveBlock { tag, kind, device, granted, requested, id, ref shape, .. } in &self.blocks {
            let (group, shapes) = groups.entry((tag, kind, device)).or_insert_with(|| {
                let (ids, shapes) = (Vec::new(), Vec::new());
                let group = LeakGroup { tag, kind, device, granted: 0, requested: 0, ids, shapes };
                (group, ShapeTotals::default())
            });
            group.granted += as_u64(granted);
            group.requested += as_u64(requested);
            group.ids.push(id);
            if let Some(shape) = shape {
                shapes.add(shape.clone(), 1, as_u64(granted));
            }
        }
        let with_shapes =
            |(group, shapes): (LeakGroup, ShapeTotals)| LeakGroup { shapes: shapes.sorted(), ..group };
        let mut groups: Vec<LeakGroup> = groups.into_values().map(with_shapes).collect();
        groups.sort_by_key(|group| Reverse(group.granted));
        groups
    }
}

/// Ids and shapes that are printed of a group.
const SHOWN: usize = 4;

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.blocks.is_empty() {
            f.write_str("nothing that was allocated is still alive")?;
        } else {
            let mut table = Table::new(
                &[0, 1, 2, 6],
                ["tag", "kind", "device", "blocks", "live", "requested", "allocations"],
            );
            for group in self.groups() {
                table.row([
                    if group.tag == Tag::NONE { "(none)".into() } else { group.tag.to_string() },
                    group.kind.to_string(),
                    group.device.to_string(),
                    group.ids.len().to_string(),
                    ByteSize(group.granted).to_string(),
                    ByteSize(group.requested).to_string(),
                    names(&group.ids) + &shapes(&group.shapes),
                ]);
            }
            let (granted, requested) =
                (ByteSize(self.granted()).to_string(), ByteSize(self.requested()).to_string());
            let none = String::new;
            table.row([
                "all".into(),
                none(),
                none(),
                self.blocks.len().to_string(),
                granted,
                requested,
                none(),
            ]);
            table.fmt(f)?;
        }
        if self.refused_frees > 0 {
            write!(f, "\n{} frees were refused: their memory did not come back", self.refused_frees)?;
        }
        if self.missed > 0 {
            write!(
                f,
                "\n{} blocks came or went unseen, while somebody else observed: not all of this may be true",
                self.missed
            )?;
        }
        Ok(())
    }
}

fn names(ids: &[AllocationId]) -> String {
    let shown: Vec<String> = ids.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = if ids.len() > SHOWN { ", …" } else { "" };
    shown.join(", ") + more
}

fn shapes(shapes: &[ShapeFigures]) -> String {
    let name = |it: &ShapeFigures| match it.allocations {
        1 => it.shape.to_string(),
        times => format!("{} ×{times}", it.shape),
    };
    let shown: Vec<String> = shapes.iter().take(SHOWN).map(name).collect();
    let more = if shapes.len() > SHOWN { ", …" } else { "" };
    if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join(", ")) }
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
