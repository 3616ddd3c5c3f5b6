//! The result of a leak check, and the table that it prints.

use super::shapes::{ShapeStats, ShapeTotals, TensorShape};
use super::table::Table;
use crate::context::sum_bytes;
use orlop_alloc::{AllocationId, Tag};
use orlop_core::{ByteSize, Device, MemoryKind};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// A block that was allocated and not freed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveBlock {
    /// The index of the allocation since the check began, from zero.
    pub order: u64,
    /// Its allocation id.
    pub id: AllocationId,
    /// The address of its first byte.
    pub address: usize,
    /// The device of its memory.
    pub device: Device,
    /// Requested bytes.
    pub requested: usize,
    /// Granted bytes.
    pub granted: usize,
    /// The memory kind.
    pub kind: MemoryKind,
    /// The tag of the request.
    pub tag: Tag,
    /// The shape of the tensor it was allocated for, if it was for one.
    pub shape: Option<TensorShape>,
}

/// The live blocks that a [`LeakCheck`](super::LeakCheck) found. Prints as a table, largest first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Leaks {
    blocks: Vec<LiveBlock>,
    refused_frees: u64,
}

/// The live blocks of one tag and kind on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeakGroup {
    /// The tag.
    pub tag: Tag,
    /// The memory kind.
    pub kind: MemoryKind,
    /// The device.
    pub device: Device,
    /// Granted bytes.
    pub granted: u64,
    /// Requested bytes.
    pub requested: u64,
    /// The ids of the allocations, in order.
    pub ids: Vec<AllocationId>,
    /// The shapes of the tensors they were for, as far as known; by bytes, the largest first.
    pub shapes: Vec<ShapeStats>,
}

impl Leaks {
    pub(super) fn new(blocks: Vec<LiveBlock>, refused_frees: u64) -> Self {
        Self { blocks, refused_frees }
    }

    /// Returns `true` if no block is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the live blocks, in the order of their allocation.
    #[must_use]
    pub fn blocks(&self) -> &[LiveBlock] {
        &self.blocks
    }

    /// Returns the granted bytes of all live blocks.
    #[must_use]
    pub fn granted(&self) -> u64 {
        sum_bytes(self.blocks.iter().map(|block| block.granted as u64))
    }

    /// Returns the requested bytes of all live blocks.
    #[must_use]
    pub fn requested(&self) -> u64 {
        sum_bytes(self.blocks.iter().map(|block| block.requested as u64))
    }

    /// Returns the number of refused frees. A block whose free was refused is not listed as live, but its
    /// memory stays unavailable.
    #[must_use]
    pub fn refused_frees(&self) -> u64 {
        self.refused_frees
    }

    /// Returns the live blocks by tag, kind and device, largest first.
    #[must_use]
    pub fn groups(&self) -> Vec<LeakGroup> {
        let mut groups = BTreeMap::<(Tag, MemoryKind, Device), (LeakGroup, ShapeTotals)>::new();
        for &LiveBlock { tag, kind, device, granted, requested, id, ref shape, .. } in &self.blocks {
            let (group, shapes) = groups.entry((tag, kind, device)).or_insert_with(|| {
                let (ids, shapes) = (Vec::new(), Vec::new());
                let group = LeakGroup { tag, kind, device, granted: 0, requested: 0, ids, shapes };
                (group, ShapeTotals::default())
            });
            group.granted = group.granted.saturating_add(granted as u64);
            group.requested = group.requested.saturating_add(requested as u64);
            group.ids.push(id);
            if let Some(shape) = shape {
                shapes.add(shape.clone(), 1, granted as u64);
            }
        }
        let with_shapes =
            |(group, shapes): (LeakGroup, ShapeTotals)| LeakGroup { shapes: shapes.sorted(), ..group };
        let mut groups: Vec<LeakGroup> = groups.into_values().map(with_shapes).collect();
        groups.sort_by_key(|group| Reverse(group.granted));
        groups
    }
}

/// The maximum of ids and of shapes printed for a group.
const SHOWN: usize = 4;

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.blocks.is_empty() {
            f.write_str("all blocks that were allocated since the check began were freed")?;
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
            let (frees, their) = match self.refused_frees {
                1 => ("1 free was".to_owned(), "its"),
                more => (format!("{more} frees were"), "their"),
            };
            write!(f, "\n{frees} refused: {their} memory stays unavailable")?;
        }
        Ok(())
    }
}

fn names(ids: &[AllocationId]) -> String {
    let shown: Vec<String> = ids.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = if ids.len() > SHOWN { ", …" } else { "" };
    shown.join(", ") + more
}

fn shapes(shapes: &[ShapeStats]) -> String {
    let name = |it: &ShapeStats| match it.allocations {
        1 => it.shape.to_string(),
        times => format!("{} ×{times}", it.shape),
    };
    let shown: Vec<String> = shapes.iter().take(SHOWN).map(name).collect();
    let more = if shapes.len() > SHOWN { ", …" } else { "" };
    if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join(", ")) }
}
