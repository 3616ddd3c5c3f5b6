//! Which bytes of which storages are written, each once.
//!
//! Tensors of one storage share one in the archive: the whole of it, whatever their views leave out, for they
//! may come back to be resized or restrided. PyTorch does the same. Where tensors know only
//! [parts](Storage::slice) of a storage, as in a pool, these parts are what is written, and those that
//! overlap stay together. So an archive of one tensor from a pool does not hold the pool.

use super::ArchiveError;
use super::format::{ALIGN, TensorRecord, ViewRecord};
use crate::error::Result;
use crate::storage::{Cell, ReadGuard};
use crate::{Storage, Tensor};
use orlop_core::bytes::checked_add;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

/// What is written. Nobody writes or resizes the storages while it lives.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) runs: Vec<Run<'a>>,
    pub(super) tensors: Vec<TensorRecord>,
    _guards: Vec<ReadGuard<'a>>,
}

/// Bytes that become a storage: parts of one storage, each of which begins in one before it or where the
/// first does.
#[derive(Debug)]
pub(super) struct Run<'a> {
    parts: Vec<Part<'a>>,
    range: Range<usize>,
    /// Zeros before the bytes: parts that begin in different places are as aligned as they were. One part is
    /// at the start of its storage, and aligned better than it was.
    lead: usize,
}

/// The bytes of a storage that one tensor knows of.
#[derive(Debug, Clone)]
struct Part<'a> {
    /// Which tensor.
    tensor: usize,
    storage: &'a Storage,
    /// Which cell the storage is of, in the order of their first use.
    cell: usize,
    /// Where in the cell.
    range: Range<usize>,
    /// Where in memory.
    address: usize,
}

impl<'a> Plan<'a> {
    pub(super) fn new(tensors: &[(&str, &'a Tensor)]) -> Result<Self> {
        let (mut parts, guards) = parts(tensors)?;
        parts.sort_by_key(|part| (part.cell, part.range.start, Reverse(part.range.end)));
        let mut runs: Vec<Run<'a>> = Vec::new();
        for part in parts {
            match runs.last_mut() {
                Some(run) if run.reaches(&part) => run.add(part),
                _ => runs.push(Run { range: part.range.clone(), lead: 0, parts: vec![part] }),
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

/// The part that each tensor knows of, and a guard for each cell.
fn parts<'a>(tensors: &[(&str, &'a Tensor)]) -> Result<(Vec<Part<'a>>, Vec<ReadGuard<'a>>)> {
    let (mut parts, mut guards, mut cells) = (Vec::new(), Vec::<ReadGuard<'a>>::new(), HashMap::new());
    for (index, (_, tensor)) in tensors.iter().enumerate() {
        let Ok(storage) = tensor.storage() else { continue };
        let next = guards.len();
        let cell = *cells.entry(std::ptr::from_ref::<Cell>(storage.cell())).or_insert(next);
        if cell == next {
            guards.push(storage.cell().read()?);
        }
        // Under the guard, so this is how large it stays.
        let range = storage.start()..checked_add(storage.start(), storage.nbytes())?;
        let base = guards.get(cell).map_or(0, |guard| guard.block().address());
        let address = base.wrapping_add(range.start);
        parts.push(Part { tensor: index, storage, cell, range, address });
    }
    Ok((parts, guards))
}

impl<'a> Run<'a> {
    /// Whether a part that comes after the others in order begins among them.
    fn reaches(&self, part: &Part<'_>) -> bool {
        let same_cell = self.parts.first().is_some_and(|first| first.cell == part.cell);
        same_cell && (part.range.start < self.range.end || part.range.start == self.range.start)
    }

    fn add(&mut self, part: Part<'a>) {
        self.range.end = self.range.end.max(part.range.end);
        if part.range.start != self.range.start {
            self.lead = self.parts.first().map_or(0, |first| first.address % ALIGN);
        }
        self.parts.push(part);
    }

    /// Any of the tensors' storages: they are of one device and kind.
    pub(super) fn storage(&self) -> Option<&'a Storage> {
        self.parts.first().map(|part| part.storage)
    }

    /// How large the storage is.
    pub(super) fn bytes(&self) -> usize {
        // Less than the block reaches in memory.
        self.lead.saturating_add(self.range.len())
    }

    fn view(&self, storage: usize, part: &Part<'_>, name: &str, tensor: &Tensor) -> Result<ViewRecord> {
        let (layout, dtype) = (tensor.layout(), tensor.dtype());
        // Views may lie outside of a storage that shrank.
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

    /// The bytes, piece by piece: zeros, and ranges of storages.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Piece<'a>> + '_ {
        let mut end = self.range.start;
        let pieces = self.parts.iter().filter_map(move |part| {
            let from = end.max(part.range.start);
            end = end.max(part.range.end);
            let range = from.checked_sub(part.range.start)?..end.checked_sub(part.range.start)?;
            (!range.is_empty()).then_some(Piece::Of(part.storage, range))
        });
        std::iter::once(Piece::Zeros(self.lead)).chain(pieces)
    }
}

/// A piece of a run.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// So many zeros, less than [`ALIGN`].
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

    /// Where in its cell a piece is.
    fn place(piece: Piece<'_>) -> Option<Range<usize>> {
        let Piece::Of(storage, Range { start, end }) = piece else { return None };
        Some(storage.start() + start..storage.start() + end)
    }

    /// From and to, the zeros before, and the pieces that are written, of each run.
    fn runs(tensors: &[Tensor]) -> Vec<(Range<usize>, usize, Vec<Range<usize>>)> {
        let named: Vec<(&str, &Tensor)> = tensors.iter().map(|tensor| ("", tensor)).collect();
        let plan = Plan::new(&named).unwrap();
        let what = |run: &Run<'_>| (run.range.clone(), run.lead, run.pieces().filter_map(place).collect());
        plan.runs.iter().map(what).collect()
    }

    /// A run that is one piece.
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
    fn nobody_writes_meanwhile() {
        let tensor = of(&pool(), 0..10);
        let plan = Plan::new(&[("", &tensor)]).unwrap();
        assert!(tensor.fill_(1u8).is_err());
        drop(plan);
        tensor.fill_(1u8).unwrap();
        let _writing = tensor.as_mut_slice::<u8>().unwrap();
        assert!(Plan::new(&[("", &tensor)]).is_err());
    }
}
