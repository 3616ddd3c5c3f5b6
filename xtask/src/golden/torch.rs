//! Recorded programs of PyTorch's caching allocator: every address and every statistic.

use std::path::{Path, PathBuf};

use orlop_core::torch::TorchConf;
use orlop_testkit::golden::GoldenError;
use orlop_testkit::torch::TorchProgram;

use super::Tally;
use crate::error::{Error, Result};

/// Replays all programs. A program that does not run to its end counts as a difference.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a check")]
pub(super) fn allocator(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        if let Err(error) = program(path, &mut tally) {
            tally.count(false, || format!("{}: {error}", path.display()));
        }
    }
    Ok(tally)
}

fn program(path: &Path, tally: &mut Tally) -> std::result::Result<(), GoldenError> {
    let program = TorchProgram::read(path)?;
    let name = &program.name;
    let comparison = program.compare()?;
    let by_order = comparison.by_event_order.len();
    for _ in comparison.differences.len() + by_order..comparison.answers {
        tally.count(true, String::new);
    }
    for difference in comparison.differences {
        tally.count(false, || format!("{name}: {difference}"));
    }
    if by_order > 0 {
        tally.notes.push(format!(
            "{name}: not compared: {by_order} counts of splits, which depend on the order of events"
        ));
    }
    Ok(())
}

/// Parses settings that PyTorch took or refused.
pub(super) fn settings(files: &[PathBuf]) -> Result<Tally> {
    let mut tally = Tally::default();
    for path in files {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        for (answer, settings) in text.lines().filter_map(|line| line.split_once('\t')) {
            let parsed = settings.parse::<TorchConf>();
            tally.count(parsed.is_ok() == (answer == "ok"), || {
                let own = parsed.err().map_or_else(|| "taken".to_owned(), |error| error.to_string());
                format!("{settings}: {own}, recorded {answer}")
            });
        }
    }
    Ok(tally)
}
