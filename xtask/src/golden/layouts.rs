//! PyTorch's flags of layouts, and its strides of new tensors like existing ones.

use std::path::PathBuf;

use orlop_core::{Layout, MemoryFormat, Shape, Strides};
use serde::Deserialize;

use super::{Tally, json, parse, text};
use crate::error::Result;

#[derive(Deserialize)]
struct LayoutProgram {
    ops: Vec<LayoutOp>,
}

#[derive(Deserialize)]
struct LayoutOp {
    out: Option<RecordedView>,
}

#[derive(Deserialize)]
struct RecordedView {
    #[serde(flatten)]
    layout: RawLayout,
    contiguous: bool,
    channels_last: bool,
    channels_last_3d: bool,
    dense: bool,
}

#[derive(Debug, Deserialize)]
struct RawLayout {
    sizes: Vec<i64>,
    strides: Vec<i64>,
    offset: usize,
}

impl RawLayout {
    fn layout(&self) -> orlop_core::Result<Layout> {
        Layout::new(Shape::new(&self.sizes)?, Strides::new(&self.strides)?, self.offset)
    }
}

/// Compares whether each view is contiguous, in each format, and dense.
pub(super) fn flags(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        for line in text(path)?.lines() {
            let program: LayoutProgram = parse(path, line)?;
            for view in program.ops.into_iter().filter_map(|op| op.out) {
                view.compare(&mut tally);
            }
        }
    }
    Ok(tally)
}

impl RecordedView {
    fn compare(&self, tally: &mut Tally) {
        let layout = match self.layout.layout() {
            Ok(layout) => layout,
            Err(error) => return tally.count(false, || format!("{:?}: {error}", self.layout)),
        };
        let flags = [
            ("contiguous", layout.is_contiguous(), self.contiguous),
            ("channels_last", layout.is_contiguous_in(MemoryFormat::ChannelsLast), self.channels_last),
            (
                "channels_last_3d",
                layout.is_contiguous_in(MemoryFormat::ChannelsLast3d),
                self.channels_last_3d,
            ),
            ("dense", layout.is_non_overlapping_and_dense(), self.dense),
        ];
        for (name, ours, recorded) in flags {
            tally.equal(&ours, &recorded, || format!("{:?}: {name}", self.layout));
        }
    }
}

#[derive(Deserialize)]
struct CopyStrides {
    #[serde(flatten)]
    layout: RawLayout,
    empty_like: Vec<usize>,
    clone: Vec<usize>,
    contiguous: Vec<usize>,
}

/// Compares the strides of `empty_like`, `clone` and `contiguous`.
pub(super) fn preserve(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        let cases: Vec<CopyStrides> = json(path)?;
        for case in cases {
            case.compare(&mut tally);
        }
    }
    Ok(tally)
}

impl CopyStrides {
    fn compare(&self, tally: &mut Tally) {
        let layout = match self.layout.layout() {
            Ok(layout) => layout,
            Err(error) => return tally.count(false, || format!("{:?}: {error}", self.layout)),
        };
        let preserved = layout.preserved_strides();
        // A contiguous tensor is not copied and keeps its strides.
        let contiguous = if layout.is_contiguous() {
            layout.strides().clone()
        } else {
            Strides::contiguous(layout.shape())
        };
        let answers = [
            ("empty_like", &preserved, &self.empty_like),
            ("clone", &preserved, &self.clone),
            ("contiguous", &contiguous, &self.contiguous),
        ];
        for (name, ours, recorded) in answers {
            tally.equal(&ours.as_slice(), &recorded.as_slice(), || format!("{:?}: {name}", self.layout));
        }
    }
}
