//! Tables of several recordings: a folder with a partition for each rank.

use crate::convert::{self, Converted};
use crate::output::Failures;
use crate::recording_format::RecordingFormat;
use crate::{histories, target};
use orlop::trace::Recordings;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Writes `rank=N/recording.EXTENSION` into `folder` for each recording, of which one is in memory at a time.
/// Returns the failures of single recordings.
pub(crate) fn write(
    sources: Vec<Recordings>,
    format: RecordingFormat,
    folder: &Path,
    converted: &mut Converted,
) -> Result<Vec<String>, Failures> {
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        let reason = "the folder is not empty, and its partitions would mix with these";
        return Err(format!("{}: {reason}", folder.display()).into());
    }
    let paths: Vec<&Path> = sources.iter().flat_map(Recordings::paths).collect();
    let ranks = rank_numbers(&paths);
    let mut failures = Vec::new();
    for (recording, rank) in sources.into_iter().flatten().zip(ranks) {
        let path = recording.path.clone();
        let partition = folder.join(format!("rank={rank}"));
        let written = histories::used(recording).and_then(|history| {
            histories::report_warnings(&path, &history.warnings);
            fs::create_dir_all(&partition)
                .map_err(|error| format!("{}: cannot be created: {error}", partition.display()))?;
            let file = partition.join(format!("recording.{}", format.name()));
            let bytes = target::put_named(&file, &path, |file| convert::write(&history, format, file))?;
            converted.add(&history, bytes);
            converted.add_partition(&path, rank);
            Ok(())
        });
        failures.extend(written.err());
    }
    Ok(failures)
}

/// Numbers recordings by their names, if each has a number of its own, and otherwise in their order.
fn rank_numbers(paths: &[&Path]) -> Vec<u64> {
    let count = paths.len() as u64;
    let numbers: Vec<Option<u64>> = paths.iter().map(|path| rank_number(path, count)).collect();
    let distinct: HashSet<u64> = numbers.iter().copied().flatten().collect();
    match distinct.len() == numbers.len() {
        true => numbers.into_iter().flatten().collect(),
        false => (0..count).collect(),
    }
}

/// Returns the number after the word rank in the innermost name that has it, or else the last number of the
/// file's name without extensions, if it is below twice the number of recordings: `torch.profiler` writes
/// `HOST_PID.TIME.pt.trace.json`, and a process id is not a rank.
fn rank_number(path: &Path, recordings: u64) -> Option<u64> {
    let names = || path.iter().rev().map(|name| name.to_string_lossy().to_ascii_lowercase());
    let after_rank = |name: String| {
        let (_, rest) = name.rsplit_once("rank")?;
        let rest = rest.trim_start_matches(['_', '-', '=', '.']);
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    };
    names().find_map(after_rank).or_else(|| {
        let name = names().next()?;
        let stem = name.split('.').next()?;
        let mut numbers = stem.rsplit(|letter: char| !letter.is_ascii_digit());
        let number = numbers.find(|digits| !digits.is_empty())?.parse().ok()?;
        (number < recordings.saturating_mul(2)).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_the_numbers_in_their_names() {
        for (names, ranks) in [
            (["a/rank2.json.gz", "a/rank10.json"], [2, 10]),
            (["rank_1/snapshot7.pickle", "rank_0/snapshot7.pickle"], [1, 0]),
            (["run3-rank-5-of-8.pickle", "run3-rank-6-of-8.pickle"], [5, 6]),
            (["gpu1.pickle", "gpu3.v2.pickle"], [1, 3]),
            (["gpu3.pickle", "gpu4.pickle"], [0, 1]),
            (["host_48211.17.csv", "host_48212.18.csv"], [0, 1]),
            (["rank_7/host_48211.17.csv", "rank_9/host_48212.18.csv"], [7, 9]),
            (["rank1/a.pickle", "rank1/b.pickle"], [0, 1]),
            (["one.pickle", "two.pickle"], [0, 1]),
        ] {
            assert_eq!(rank_numbers(&names.map(Path::new)), ranks, "{names:?}");
        }
    }
}
