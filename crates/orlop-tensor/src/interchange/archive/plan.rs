//! The plan of an archive: which bytes of which storages are written, each once.
//!
//! Tensors over one storage share one in the archive. It is written completely, whatever their views leave
//! out, because they may be resized or restrided later; PyTorch does the same. If the tensors cover only
//! [parts](Storage::slice) of a storage, as in a pool, only these parts are written, and overlapping parts
//! stay together. So an archive of one tensor from a pool does not contain the pool.

use super::ArchiveError;
use super::format::{ALIGN, TensorRecord, ViewRecord};
use crate::error::Result;
use crate::storage::{ReadGuard, StorageCell};
use crate::{Storage, Tensor};
use orlop_core::bytes::checked_add;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

/// The contents of an archive. The storages cannot be written or resized while it exists.
#[derive(Debug)]
pub(super) struct ArchivePlan<'a> {
    pub(super) runs: Vec<PartRun<'a>>,
    pub(super) tensors: Vec<TensorRecord>,
    _guards: Vec<ReadGuard<'a>>,
}

/// A range of bytes that becomes one storage: overlapping parts of one storage, in the order of their start.
#[derive(Debug)]
pub(super) struct PartRun<'a> {
    parts: Vec<StoragePart<'a>>,
    range: Range<usize>,
    /// Zeros before the bytes, which keep the alignment of parts with different starts. A single part starts
    /// its storage and is aligned better than before.
    lead: usize,
}

/// The bytes of a storage that one tensor covers.
#[derive(Debug, Clone)]
struct StoragePart<'a> {
    /// The index of the tensor.
    tensor: usize,
    storage: &'a Storage,
    /// The index of the storage's cell, in the order of first use.
    cell: usize,
    /// The range in the cell.
    range: Range<usize>,
    /// The address in memory.
    address: usize,
}

impl<'a> ArchivePlan<'a> {
    pub(super) fn new(tensors: &[(&str, &'a Tensor)]) -> Result<Self> {
        let (mut parts, guards) = parts(tensors)?;
        parts.sort_by_key(|part| (part.cell, part.range.start, Reverse(part.range.end)));
        let mut runs: Vec<PartRun<'a>> = Vec::new();
        for part in parts {
            match runs.last_mut() {
                Some(run) if run.reaches(&part) => run.add(part),
                _ => runs.push(PartRun { range: part.range.clone(), lead: 0, parts: vec![part] }),
            }
        }
        // Tensors without a storage have no view.
        let named = |(name, _): &(&str, &Tensor)| TensorRecord { name: (*name).to_owned(), view: None };
        let mut records: Vec<TensorRecord> = tensors.iter().map(named).collect();
        for (index, run) in runs.iter().enumerate() {
            for part in &run.parts {
                if let (Some(&(name, tensor)), Some(record)) =
                    (tensors.get(part.tensor), records.get_mut(part.tensor))
                {
                    record.view = Some(run.view(index, part, name, tensor)?);
                }
            }
        }
        Ok(Self { runs, tensors: records, _guards: guards })
    }
}

/// Returns the part that each tensor covers, and a guard for each cell.
fn parts<'a>(tensors: &[(&str, &'a Tensor)]) -> Result<(Vec<StoragePart<'a>>, Vec<ReadGuard<'a>>)> {
    let (mut parts, mut guards, mut cells) = (Vec::new(), Vec::<ReadGuard<'a>>::new(), HashMap::new());
    for (index, (_, tensor)) in tensors.iter().enumerate() {
        let Ok(storage) = tensor.storage() else { continue };
        let next = guards.len();
        let cell = *cells.entry(std::ptr::from_ref::<StorageCell>(storage.cell())).or_insert(next);
        if cell == next {
            guards.push(storage.cell().read()?);
        }
        // The guard keeps this size constant.
        let range = storage.start()..checked_add(storage.start(), storage.nbytes())?;
        let base = guards.get(cell).map_or(0, |guard| guard.block().address());
        let address = base.wrapping_add(range.start);
        parts.push(StoragePart { tensor: index, storage, cell, range, address });
    }
    Ok((parts, guards))
}

impl<'a> PartRun<'a> {
    /// Returns `true` if a part that follows in order overlaps this run.
    fn reaches(&self, part: &StoragePart<'_>) -> bool {
        let same_cell = self.parts.first().is_some_and(|first| first.cell == part.cell);
        same_cell && (part.range.start < self.range.end || part.range.start == self.range.start)
    }

    fn add(&mut self, part: StoragePart<'a>) {
        self.range.end = self.range.end.max(part.range.end);
        if part.range.start != self.range.start {
            self.lead = self.parts.first().map_or(0, |first| first.address % ALIGN);
        }
        self.parts.push(part);
    }

    /// Returns the storage of any of the tensors: all are of one device and kind.
    pub(super) fn storage(&self) -> Option<&'a Storage> {
        self.parts.first().map(|part| part.storage)
    }

    /// Returns the size of the storage.
    pub(super) fn bytes(&self) -> usize {
        // Less than the span of the block in memory.
        self.lead.saturating_add(self.range.len())
    }

    fn view(
        &self,
        storage: usize,
        part: &StoragePart<'_>,
        name: &str,
        tensor: &Tensor,
    ) -> Result<ViewRecord> {
        let (layout, dtype) = (tensor.layout(), tensor.dtype());
        // Views may be outside a storage that shrank.
        let is_inside = layout.check_within(part.range.len(), dtype.size());
        is_inside.map_err(|source| ArchiveError::View { name: name.into(), source })?;
        let start = checked_add(self.lead, part.range.start - self.range.start)?;
        let end = checked_add(start, part.range.len())?;
        Ok(ViewRecord {
            storage,
            part: Some((start, end)).filter(|&part| part != (0, self.bytes())),
            dtype,
            sizes: layout.shape().to_vec(),
            strides: layout.strides().to_vec(),
            offset: layout.offset(),
        })
    }

    /// Returns the bytes in pieces: zeros, and ranges of storages.
    pub(super) fn pieces(&self) -> impl Iterator<Item = RunPiece<'a>> + '_ {
        let mut end = self.range.start;
        let pieces = self.parts.iter().filter_map(move |part| {
            let from = end.max(part.range.start);
            end = end.max(part.range.end);
            let range = from.checked_sub(part.range.start)?..end.checked_sub(part.range.start)?;
            (!range.is_empty()).then_some(RunPiece::Of(part.storage, range))
        });
        std::iter::once(RunPiece::Zeros(self.lead)).chain(pieces)
    }
}

/// A piece of a run.
#[derive(Debug)]
pub(super) enum RunPiece<'a> {
    /// Zeros, less than [`ALIGN`].
    Zeros(usize),
    /// A range of a storage.
    Of(&'a Storage, Range<usize>),
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![expect(
        clippy::unwrap_used,
        reason = "clippy.toml allows it in test functions, but not in what they call"
    )]

    use super::*;
    use crate::TensorOptions;
    use orlop_core::DType;

    fn pool() -> Storage {
        Storage::new(1024, &TensorOptions::new()).unwrap()
    }

    fn of(pool: &Storage, range: Range<usize>) -> Tensor {
        Tensor::bind(&pool.slice(range.clone()).unwrap(), 0, [range.len()], DType::U8).unwrap()
    }

    /// Returns the range of a piece in its cell.
    fn place(piece: RunPiece<'_>) -> Option<Range<usize>> {
        let RunPiece::Of(storage, Range { start, end }) = piece else { return None };
        Some(storage.start() + start..storage.start() + end)
    }

    /// Returns of each run: its range, the zeros before it, and its pieces.
    fn runs(tensors: &[Tensor]) -> Vec<(Range<usize>, usize, Vec<Range<usize>>)> {
        let named: Vec<(&str, &Tensor)> = tensors.iter().map(|tensor| ("", tensor)).collect();
        let plan = ArchivePlan::new(&named).unwrap();
        let what =
            |run: &PartRun<'_>| (run.range.clone(), run.lead, run.pieces().filter_map(place).collect());
        plan.runs.iter().map(what).collect()
    }

    /// Returns a run of a single piece.
    fn one(range: Range<usize>) -> (Range<usize>, usize, Vec<Range<usize>>) {
        (range.clone(), 0, Vec::from([range]))
    }

    #[test]
    fn parts_that_overlap_stay_together() {
        let pool = pool();
        let tensors = [of(&pool, 40..100), of(&pool, 200..300), of(&pool, 90..120), of(&pool, 50..60)];
        assert_eq!(runs(&tensors), [(40..120, 40, vec![40..100, 100..120]), one(200..300)]);
    }

    #[test]
    fn parts_that_touch_are_apart() {
        let pool = pool();
        let tensors = [of(&pool, 10..20), of(&pool, 20..20), of(&pool, 20..30), of(&pool, 30..30)];
        assert_eq!(runs(&tensors), [one(10..20), one(20..30), (30..30, 0, vec![])]);
    }

    #[test]
    fn storages_come_in_the_order_of_their_first_use() {
        let (first, second) = (pool(), pool());
        let tensors = [of(&second, 7..8), of(&first, 3..4), of(&second, 0..1)];
        assert_eq!(runs(&tensors).into_iter().map(|run| run.0).collect::<Vec<_>>(), [0..1, 7..8, 3..4]);
    }

    #[test]
    fn writes_are_refused_meanwhile() {
        let tensor = of(&pool(), 0..10);
        let plan = ArchivePlan::new(&[("", &tensor)]).unwrap();
        assert!(tensor.fill_(1u8).is_err());
        drop(plan);
        tensor.fill_(1u8).unwrap();
        let _writing = tensor.as_mut_slice::<u8>().unwrap();
        assert!(ArchivePlan::new(&[("", &tensor)]).is_err());
    }
}
