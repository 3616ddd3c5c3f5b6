//! Reading histories and profiles.

use crate::inputs::{self, DASH};
use crate::task_progress::TaskProgress;
use crate::{output, table};
use orlop::lab::compare::Profile;
use orlop::lab::what_if::{UnreliableReplay, check_recording};
use orlop::trace::formats::{DeviceLabel, numbered_device};
use orlop::trace::history::{DeviceHistory, EventAction, History, HistoryEvent, HistoryWarning};
use orlop::trace::{Recording, Recordings, TraceError};
use orlop::types::Device;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

/// The number of bytes in which the mark of a profile is searched: it is the first field.
const HEAD: u64 = 256;

/// The first field of a profile, which no other format has.
const MARK: &str = "\"orlop_profile\"";

/// The maximum number of warnings that are printed for a file.
const MAX_WARNINGS: usize = 3;

/// Reads a history and prints its warnings.
pub(crate) fn read(path: &Path) -> Result<History, String> {
    let history = read_silently(path)?;
    report_warnings(path, &history.warnings);
    Ok(history)
}

/// Reads a complete history and prints its warnings.
pub(crate) fn read_whole(path: &Path) -> Result<History, String> {
    let history = read_silently(path)?;
    require_complete(path, &history.warnings)?;
    report_warnings(path, &history.warnings);
    Ok(history)
}

/// Reads a history without printing its warnings.
pub(crate) fn read_silently(path: &Path) -> Result<History, String> {
    recordings(path).and_then(|recordings| only(path, recordings))
}

/// Reads the only recording of a path without printing its warnings.
pub(crate) fn only(path: &Path, recordings: Recordings) -> Result<History, String> {
    let _progress = reading(path);
    recordings.only().map_err(|error| error.in_file(path).to_string()).and_then(used)
}

/// Finds the recordings of a file, an archive or a folder, or in the standard input. Files that are not
/// recordings are counted on the standard error.
pub(crate) fn recordings(path: &Path) -> Result<Recordings, String> {
    let recordings = match path == Path::new(DASH) {
        true => Recordings::from_reader(DASH, io::stdin()),
        false => Recordings::open(path),
    };
    let recordings = recordings.map_err(|error| error.to_string())?;
    let is_named =
        |error: &&TraceError| !matches!(cause(error), TraceError::UnknownFormat | TraceError::Empty);
    for error in recordings.skipped().iter().filter(is_named).take(MAX_WARNINGS) {
        output::report(&format!("left out: {error}"));
    }
    Ok(recordings)
}

/// Shows that a file is being read.
pub(crate) fn reading(path: &Path) -> TaskProgress {
    TaskProgress::start(format!("reading {}", path.display()))
}

/// Returns the error without the paths of files.
fn cause(error: &TraceError) -> &TraceError {
    match error {
        TraceError::InFile { error, .. } => cause(error),
        error => error,
    }
}

/// Returns the history of a recording, unless it has no devices.
pub(crate) fn used(recording: Recording) -> Result<History, String> {
    let Recording { path, history, .. } = recording;
    require_used(&path, history.map_err(|error| error.to_string())?)
}

/// Prints the warnings of a file.
pub(crate) fn report_warnings(path: &Path, warnings: &[HistoryWarning]) {
    let file = path.display();
    let shown =
        warnings.iter().filter(|warning| !matches!(warning, HistoryWarning::More { .. })).take(MAX_WARNINGS);
    let mut more = HistoryWarning::count(warnings);
    for warning in shown {
        output::report(&format!("{file}: {warning}"));
        more = more.saturating_sub(1);
    }
    if more > 0 {
        output::report(&format!("{file}: and {more} more"));
    }
}

/// The recordings from which a profile may be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProfileSource {
    /// A complete recording of a run.
    Whole,
    /// Any recording.
    Any,
}

/// A profile with its source.
pub(crate) struct SourcedProfile {
    pub(crate) profile: Profile,
    /// Whether it is that of a recording, and not a baseline.
    pub(crate) is_recording: bool,
}

/// Reads a profile, or creates that of a history with names of `depth` lines. The file is opened once,
/// because it may be a pipe.
pub(crate) fn read_profile(
    path: &Path,
    depth: usize,
    source: ProfileSource,
) -> Result<SourcedProfile, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    if !is_stream(path) {
        let history = read_silently(path)?;
        return profile_of(path, &history, depth, source);
    }
    let mut file = inputs::open(path)?;
    let mut head = Vec::new();
    file.by_ref()
        .take(HEAD)
        .read_to_end(&mut head)
        .map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let is_profile = String::from_utf8_lossy(&head).contains(MARK);
    let whole = Cursor::new(head).chain(file);
    if !is_profile {
        return profile_of(path, &parse(path, whole)?, depth, source);
    }
    let profile: Profile = serde_json::from_reader(BufReader::new(whole))
        .map_err(|error| wrong(&format!("not a baseline: {error}")))?;
    if !profile.is_known() {
        return Err(wrong(&"was written by another version of orlop"));
    }
    if source == ProfileSource::Whole && profile.devices.iter().all(|device| device.allocations == 0) {
        return Err(wrong(&UnreliableReplay::NoHistory));
    }
    Ok(SourcedProfile { profile, is_recording: false })
}

/// Returns an error if no run was recorded, which a gate would pass.
pub(crate) fn require_run(path: &Path, history: &History) -> Result<(), String> {
    check_recording(history).map_or(Ok(()), |reason| Err(format!("{}: {reason}", path.display())))
}

/// Returns an error if a recording has no memory at all: neither blocks nor segments nor requests.
pub(crate) fn require_memory(path: &Path, history: &History) -> Result<(), String> {
    let has_memory = |device: &DeviceHistory| {
        let is_known = !(device.start.is_empty() && device.end.is_empty() && device.unplaced.is_empty());
        let is_mark =
            |event: &HistoryEvent| matches!(event.action, EventAction::Snapshot | EventAction::Annotation);
        is_known || !device.events.iter().all(is_mark)
    };
    if history.devices.iter().any(has_memory) {
        return Ok(());
    }
    Err(format!("{}: {}", path.display(), UnreliableReplay::NoHistory))
}

/// Returns `true` for files and the standard input, and `false` for folders and members of archives.
pub(crate) fn is_stream(path: &Path) -> bool {
    path == Path::new(DASH) || path.exists() && !path.is_dir()
}

fn profile_of(
    path: &Path,
    history: &History,
    depth: usize,
    source: ProfileSource,
) -> Result<SourcedProfile, String> {
    if source == ProfileSource::Whole {
        require_complete(path, &history.warnings)?;
        require_run(path, history)?;
    }
    report_warnings(path, &history.warnings);
    let _progress = TaskProgress::start(format!("describing {}", path.display()));
    Ok(SourcedProfile { profile: Profile::of(history, depth), is_recording: true })
}

/// Reads a history from an open file.
pub(crate) fn parse(path: &Path, file: impl Read) -> Result<History, String> {
    let progress = reading(path);
    let history = History::parse(file).map_err(|error| error.in_file(path).to_string())?;
    drop(progress);
    require_used(path, history)
}

fn require_used(path: &Path, history: History) -> Result<History, String> {
    if history.devices.is_empty() {
        require_complete(path, &history.warnings)?;
        return Err(format!("{}: nothing was recorded", path.display()));
    }
    Ok(history)
}

/// Returns an error if a file is cut off or damaged: its beginning does not represent the whole run.
pub(crate) fn require_complete(path: &Path, warnings: &[HistoryWarning]) -> Result<(), String> {
    let is_incomplete = |warning: &&HistoryWarning| {
        matches!(warning, HistoryWarning::CutOff { .. } | HistoryWarning::Damaged { .. })
    };
    let warning = warnings.iter().find(is_incomplete);
    warning.map_or(Ok(()), |warning| Err(format!("{}: {warning}", path.display())))
}

/// Returns the device with this number, or all; the host's memory only if there is no other device, because
/// settings of PyTorch do not apply to it.
pub fn devices(history: &History, only: Option<u32>) -> impl Iterator<Item = &DeviceHistory> {
    let others = history.devices.iter().any(|device| !is_host(device));
    history.devices.iter().filter(move |device| match only {
        Some(only) => only == device.device,
        None => !(others && is_host(device)),
    })
}

fn is_host(device: &DeviceHistory) -> bool {
    numbered_device(device.device).is_some_and(Device::is_cpu)
}

/// Prints that the host's memory is omitted.
pub(crate) fn report_omitted(path: &Path, history: &History, only: Option<u32>) {
    let shown = |device: &DeviceHistory| devices(history, only).any(|shown| shown.device == device.device);
    for device in history.devices.iter().filter(|device| only.is_none() && !shown(device)) {
        output::report(&format!(
            "{}: {} is omitted, because settings of PyTorch do not apply to it: --device {} shows it",
            path.display(),
            DeviceLabel(device.device),
            table::device(device.device)
        ));
    }
}
