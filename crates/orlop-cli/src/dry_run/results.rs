//! [`DryRunResult`]: what a dry run wrote, and the verdict on it.

use crate::histories;
use crate::table::{self, bytes};
use orlop::lab::analyze::{DeviceInfo, SiteNaming, SnapshotInfo};
use orlop::lab::verdict::{RunVerdict, most_urgent_first};
use orlop::trace::history::History;
use orlop_dryrun::injection::Injection;
use orlop_dryrun::settings::{DryRunSettings, WorkspaceRule};
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

const SNAPSHOT: &str = "snapshot";
const ANSWERS: &str = "answers";
const COUNTERS: &str = "counters";

/// The result of a dry run. It prints with the verdict first.
#[derive(Debug, Serialize)]
pub(super) struct DryRunResult {
    gpu: &'static str,
    memory: u64,
    /// What the driver and the context of a process take, in bytes.
    overhead: u64,
    /// Whether the program succeeded.
    has_succeeded: bool,
    /// A device of a process each.
    pub(super) runs: Vec<RunResult>,
    /// What was answered by assumption, for each process.
    answers: Vec<Value>,
    /// Where the workspaces of convolutions come from.
    workspaces: &'static str,
    late: bool,
}

/// The result of a device of a process.
#[derive(Debug, Serialize)]
pub(super) struct RunResult {
    snapshot: PathBuf,
    device: u32,
    peak_reserved: u64,
    /// Memory that the device has beyond the peak and the overhead, in bytes.
    spare: u64,
    /// The number of requests that failed for lack of memory.
    failed_requests: usize,
    /// The least memory that the failed request needed: live bytes, the request and the overhead.
    lacking: Option<u64>,
    verdict: RunVerdict,
}

impl RunResult {
    fn of(
        snapshot: &Path,
        history: &History,
        info: &DeviceInfo,
        settings: &DryRunSettings,
        is_quick: bool,
    ) -> Self {
        let file = snapshot.display().to_string();
        let verdict = match is_quick {
            true => RunVerdict::of(info, None, &file),
            false => RunVerdict::of_recorded(history, info, Some(settings.gpu.usable()), &file),
        };
        let peak_reserved = info.peak_reserved.unwrap_or(info.peak.live.bytes);
        let failed =
            info.out_of_memory.iter().map(|failed| failed.live.bytes.saturating_add(failed.requested));
        Self {
            snapshot: snapshot.to_owned(),
            device: info.device,
            peak_reserved,
            spare: settings.gpu.usable().saturating_sub(peak_reserved),
            failed_requests: info.out_of_memory.len(),
            lacking: failed.max().map(|bytes| bytes.saturating_add(settings.gpu.overhead)),
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
        let mut runs = Vec::new();
        for snapshot in snapshots {
            let history = histories::read_silently(&snapshot)?;
            let mut devices = SnapshotInfo::of(&history, SiteNaming::default()).devices;
            most_urgent_first(&mut devices);
            runs.extend(
                devices.iter().map(|info| RunResult::of(&snapshot, &history, info, settings, is_quick)),
            );
        }
        runs.sort_by_key(|run| (run.lacking.is_none(), run.spare));
        let answers = files(folder, ANSWERS, "json")?;
        Ok(Self {
            gpu: settings.gpu.name,
            memory: settings.gpu.memory,
            overhead: settings.gpu.overhead,
            has_succeeded,
            runs,
            answers: answers.iter().map(|path| read_json(path)).collect::<Result<_, _>>()?,
            workspaces: match settings.workspaces {
                WorkspaceRule::None => "no workspace: reserved bytes are too low",
                WorkspaceRule::Learned => "an estimated workspace; --workspaces none and most are the bounds",
                WorkspaceRule::Most => "more workspace than a GPU takes, as a bound",
            },
            late: settings.completion == orlop_dryrun::settings::Completion::Latest,
        })
    }

    /// Returns `true` if the program had enough memory: no request failed, or it succeeded all the same.
    pub(super) fn fits(&self) -> bool {
        self.has_succeeded || self.runs.iter().all(|run| run.lacking.is_none())
    }

    /// Returns the peak of reserved memory and what is to spare, in bytes,
    /// of the device with the least to spare.
    pub(super) fn peak_and_spare(&self) -> (u64, u64) {
        self.runs.first().map_or((0, 0), |run| (run.peak_reserved, run.spare))
    }

    fn sum_of(&self, field: &str) -> u64 {
        self.answers.iter().filter_map(|answers| answers.get(field)).map(total).sum()
    }
}

/// Returns a number, or the sum of an object's numbers.
fn total(value: &Value) -> u64 {
    match value {
        Value::Object(entries) => entries.values().filter_map(Value::as_u64).sum(),
        other => other.as_u64().unwrap_or(0),
    }
}

impl fmt::Display for DryRunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(run) = self.runs.first() else { return Ok(()) };
        let (gpu, memory) = (self.gpu, bytes(self.memory));
        match run.lacking {
            None if !self.has_succeeded => {
                writeln!(
                    f,
                    "undecided: the program failed, but not for lack of memory, on {gpu} ({memory})"
                )?;
            }
            None => {
                let (peak, spare) = (bytes(run.peak_reserved), bytes(run.spare));
                writeln!(f, "fits {gpu} ({memory}): {peak} reserved at the peak, {spare} to spare")?;
            }
            Some(_) if self.has_succeeded => {
                let failed: usize = self.runs.iter().map(|run| run.failed_requests).sum();
                let requests = if failed == 1 { "request" } else { "requests" };
                writeln!(
                    f,
                    "fits {gpu} ({memory}), after {failed} failed {requests} that the program handled"
                )?;
            }
            Some(least) => writeln!(
                f,
                "does not fit {gpu} ({memory}): the request that failed needs a GPU of {} or more",
                bytes(least)
            )?,
        }
        write!(f, "{}", table::wrapped(&run.verdict.to_string()))?;
        writeln!(f, "\nsnapshot       {}", run.snapshot.display())?;
        writeln!(f, "overhead       {} for the driver and the context, an estimate", bytes(self.overhead))?;
        let reads = ["reads_answered_zero", "reads_answered_true", "reads_answered_as_copied"];
        let [zero, one, kept] = reads.map(|field| self.sum_of(field));
        writeln!(f, "values read    {zero} as zero, {one} as true, {kept} as they were copied in")?;
        let estimated = self.sum_of("convolutions_estimated");
        if estimated > 0 {
            writeln!(f, "convolutions   {estimated} plans with {}", self.workspaces)?;
        }
        let refused = self.sum_of("refused_functions");
        if refused > 0 {
            writeln!(f, "not simulated  {refused} calls; answers.json beside the snapshot names them")?;
        }
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
