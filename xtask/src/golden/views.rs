//! PyTorch's programs of views, run on tensors: sizes, strides, offsets, flags, sharing, values, errors.

use std::path::PathBuf;

use orlop_testkit::views::ViewProgram;

use super::{Tally, parse, text};
use crate::error::Result;

/// Compares every program, result by result.
pub(super) fn programs(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        for line in text(path)?.lines() {
            let program: ViewProgram = parse(path, line)?;
            let outcome = program.disagreement();
            tally.count(matches!(outcome, Ok(None)), || match outcome {
                Ok(difference) => difference.unwrap_or_default(),
                Err(error) => format!("{line}: {error}"),
            });
        }
    }
    Ok(tally)
}
