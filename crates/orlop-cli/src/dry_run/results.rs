//! [`DryRunResult`]: what a dry run wrote, and the verdict on it.

use super::doubts::{self, Doubts};
use crate::histories;
use crate::table::{self, bytes};
use orlop::lab::analyze::{DeviceInfo, SiteNaming, SnapshotInfo};
use orlop::lab::verdict::{RunVerdict, most_urgent_first};
use orlop::trace::history::History;
use orlop_dryrun::injection::Injection;
use orlop_dryrun::settings::DryRunSettings;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

const SNAPSHOT: &str = "snapshot";
const ANSWERS: &str = "answers";
const COUNTERS: &str = "counters";

/// Whether a program fits a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Fits,
    DoesNotFit,
    /// The program failed, but not for lack of memory.
    Undecided,
}

/// The result of a dry run. It prints with the verdict first.
#[derive(Debug, Serialize)]
pub(super) struct DryRunResult {
    outcome: Outcome,
    /// The outcome with its figures, a line.
    headline: String,
    /// The run with which it was compared, if both fit.
    baseline: Option<Baseline>,
    /// The peak of reserved bytes beyond that of the baseline.
    growth: Option<i64>,
    gpu: &'static str,
    memory: u64,
    /// What the driver and the context of a process take, in bytes.
    overhead: u64,
    /// Whether the program succeeded.
    has_succeeded: bool,
    /// A device of a process each.
    pub(super) runs: Vec<RunResult>,
    #[serde(flatten)]
    doubts: Doubts,
    /// What was answered by assumption, for each process.
    answers: Vec<Value>,
    late: bool,
}

/// An earlier dry run, read from its JSON.
#[derive(Debug, Serialize)]
pub(super) struct Baseline {
    file: PathBuf,
    /// Of the device with the least to spare, in bytes.
    peak_reserved: u64,
}

impl Baseline {
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let earlier = read_json(file)?;
        let peak_reserved = earlier["runs"][0]["peak_reserved"].as_u64();
        match peak_reserved.filter(|_| earlier["outcome"] == "fits") {
            Some(peak_reserved) => Ok(Self { file: file.to_owned(), peak_reserved }),
            None => Err(format!("{}: not the JSON of a dry run that fits", file.display())),
        }
    }
}

/// The result of a device of a process.
#[derive(Debug, Serialize)]
pub(super) struct RunResult {
    snapshot: PathBuf,
    device: u32,
    peak_reserved: u64,
    /// Memory that the device has beyond the peak, the overhead and NCCL's communicators, in bytes.
    spare: u64,
    /// The number of requests that failed for lack of memory.
    failed_requests: usize,
    /// The least memory that the failed request needed: live bytes, the request, the overhead and NCCL's
    /// communicators.
    lacking: Option<u64>,
    verdict: RunVerdict,
}

impl RunResult {
    fn of(
        snapshot: &Path,
        history: &History,
        info: &DeviceInfo,
        settings: &DryRunSettings,
        nccl_bytes: u64,
        is_quick: bool,
    ) -> Self {
        let usable = settings.gpu.usable().saturating_sub(nccl_bytes);
        let file = snapshot.display().to_string();
        let verdict = match is_quick {
            true => RunVerdict::of(info, None, &file),
            false => RunVerdict::of_recorded(history, info, Some(usable), &file),
        };
        let peak_reserved = info.peak_reserved.unwrap_or(info.peak.live.bytes);
        let failed =
            info.out_of_memory.iter().map(|failed| failed.live.bytes.saturating_add(failed.requested));
        Self {
            snapshot: snapshot.to_owned(),
            device: info.device,
            peak_reserved,
            spare: usable.saturating_sub(peak_reserved),
            failed_requests: info.out_of_memory.len(),
            lacking: failed
                .max()
                .map(|bytes| bytes.saturating_add(settings.gpu.memory.saturating_sub(usable))),
            verdict,
        }
    }
}

impl DryRunResult {
    /// Reads what the run wrote into the folder.
    pub(super) fn read(
        folder: &Path,
        settings: &DryRunSettings,
        has_succeeded: bool,
        is_quick: bool,
    ) -> Result<Self, String> {
        let snapshots = files(folder, SNAPSHOT, "pickle")?;
        if snapshots.is_empty() {
            return Err("the program ended without using a CUDA device, or was killed: there is nothing to \
                        analyze"
                .to_owned());
        }
        let answers = files(folder, ANSWERS, "json")?;
        let answers = answers.iter().map(|path| read_json(path)).collect::<Result<Vec<_>, _>>()?;
        let nccl_bytes = doubts::nccl_bytes(&answers);
        let mut runs = Vec::new();
        for snapshot in snapshots {
            let history = histories::read_silently(&snapshot)?;
            let mut devices = SnapshotInfo::of(&history, SiteNaming::default()).devices;
            most_urgent_first(&mut devices);
            runs.extend(
                devices
                    .iter()
                    .map(|info| RunResult::of(&snapshot, &history, info, settings, nccl_bytes, is_quick)),
            );
        }
        runs.sort_by_key(|run| (run.lacking.is_none(), run.spare));
        let outcome = match has_succeeded {
            true => Outcome::Fits,
            false if runs.iter().any(|run| run.lacking.is_some()) => Outcome::DoesNotFit,
            false => Outcome::Undecided,
        };
        Ok(Self {
            outcome,
            headline: headline(outcome, &runs, settings),
            baseline: None,
            growth: None,
            gpu: settings.gpu.name,
            memory: settings.gpu.memory,
            overhead: settings.gpu.overhead,
            has_succeeded,
            runs,
            doubts: Doubts::of(&answers, settings),
            answers,
            late: settings.completion == orlop_dryrun::settings::Completion::Latest,
        })
    }

    /// Compares the peak with that of an earlier run. That of a run that failed says nothing.
    pub(super) fn compare(&mut self, baseline: Baseline) {
        if self.outcome == Outcome::Fits {
            let (peak, before) = (self.peak_and_spare().0, baseline.peak_reserved);
            self.growth = i64::try_from(i128::from(peak) - i128::from(before)).ok();
            self.baseline = Some(baseline);
        }
    }

    /// Returns `true` unless the program failed for lack of memory.
    pub(super) fn fits(&self) -> bool {
        self.outcome != Outcome::DoesNotFit
    }

    /// Returns the peak of reserved memory and what is to spare, in bytes,
    /// of the device with the least to spare.
    pub(super) fn peak_and_spare(&self) -> (u64, u64) {
        self.runs.first().map_or((0, 0), |run| (run.peak_reserved, run.spare))
    }
}

/// Returns the outcome with its figures.
fn headline(outcome: Outcome, runs: &[RunResult], settings: &DryRunSettings) -> String {
    let Some(run) = runs.first() else { return String::new() };
    let gpu = format!("{} ({})", settings.gpu.name, bytes(settings.gpu.memory));
    let failed: usize = runs.iter().map(|run| run.failed_requests).sum();
    match outcome {
        Outcome::Undecided => {
            format!("undecided: the program failed, but not for lack of memory, on {gpu}")
        }
        Outcome::DoesNotFit => {
            let least = bytes(run.lacking.unwrap_or_default());
            format!("does not fit {gpu}: the request that failed needs a GPU of {least} or more")
        }
        Outcome::Fits if failed > 0 => {
            let requests = if failed == 1 { "request" } else { "requests" };
            format!("fits {gpu}, after {failed} failed {requests} that the program handled")
        }
        Outcome::Fits => {
            let (peak, spare) = (bytes(run.peak_reserved), bytes(run.spare));
            format!("fits {gpu}: {peak} reserved at the peak, {spare} to spare")
        }
    }
}

impl fmt::Display for DryRunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(run) = self.runs.first() else { return Ok(()) };
        writeln!(f, "{}", self.headline)?;
        if let (Some(Baseline { file, peak_reserved }), Some(growth)) = (&self.baseline, self.growth) {
            let change = bytes(growth.unsigned_abs());
            let direction = if growth < 0 { "less" } else { "more" };
            let (file, before) = (file.display(), bytes(*peak_reserved));
            writeln!(f, "needs {change} {direction} than {file}, which has {before} reserved at the peak")?;
        }
        write!(f, "{}", table::wrapped(&run.verdict.to_string()))?;
        writeln!(f, "\nsnapshot       {}", run.snapshot.display())?;
        writeln!(f, "overhead       {} for the driver and the context, an estimate", bytes(self.overhead))?;
        let reads = ["reads_answered_zero", "reads_answered_true", "reads_answered_as_copied"];
        let [zero, one, kept] = reads.map(|field| doubts::sum_of(&self.answers, field));
        writeln!(f, "values read    {zero} as zero, {one} as true, {kept} as they were copied in")?;
        write!(f, "{}", self.doubts)?;
        for other in &self.runs[1..] {
            let peak = bytes(other.peak_reserved);
            writeln!(
                f,
                "also           {}: device {}, {peak} reserved",
                other.snapshot.display(),
                other.device
            )?;
        }
        Ok(())
    }
}

/// Returns the files that an earlier run wrote into the folder. The folder can be missing.
///
/// # Errors
///
/// Files of these names in a folder that no earlier run prepared: they are not ours to remove.
pub(super) fn earlier(folder: &Path) -> Result<Vec<PathBuf>, String> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (stem, extension) in [(SNAPSHOT, "pickle"), (ANSWERS, "json"), (COUNTERS, "json")] {
        found.extend(files(folder, stem, extension)?);
    }
    let libraries = folder.join("libraries");
    match found.first().or_else(|| libraries.exists().then_some(&libraries)) {
        Some(first) if !Injection::is_prepared(folder) => Err(format!(
            "{}: this folder is not from a dry run, and would lose {}; name another with --output",
            folder.display(),
            first.display()
        )),
        _ => Ok(found),
    }
}

/// Removes files.
pub(super) fn remove(files: &[PathBuf]) -> Result<(), String> {
    let removed = |path: &PathBuf| {
        fs::remove_file(path).map_err(|error| format!("{}: cannot be removed: {error}", path.display()))
    };
    files.iter().try_for_each(removed)
}

/// Returns the files of this name, with or without the number of a process in it.
fn files(folder: &Path, stem: &str, extension: &str) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("{}: cannot be read: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let middle = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(extension));
        if middle.is_some_and(is_of_process) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns `true` for what is between the stem and the extension: a dot, or the number of a process in dots.
fn is_of_process(middle: &str) -> bool {
    let number = middle.strip_prefix('.').and_then(|rest| rest.strip_suffix('.'));
    middle == "." || number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn read_json(path: &Path) -> Result<Value, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_program_keeps_its_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(earlier(folder.path()).unwrap().is_empty());
        for name in ["libraries", "snapshot.pickle"] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            assert!(earlier(folder.path()).unwrap_err().contains(name));
            fs::remove_dir(&path).unwrap();
        }
    }
}
