//! The histories and profiles that were named.

use crate::inputs::cannot_open;
use crate::{output, table};
use orlop::lab::compare::Profile;
use orlop::lab::what_if::{UnreliableReplay, check_recording};
use orlop::trace::formats::numbered_device;
use orlop::trace::history::{DeviceHistory, History, HistoryWarning};
use orlop::types::Device;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// How far into a file the mark of a profile is looked for: it is its first field.
const HEAD: u64 = 256;

/// The first field of a profile, which no other file has.
const MARK: &str = "\"orlop_profile\"";

/// Warnings of a file that are told.
const WARNINGS: usize = 3;

/// Reads a history, and tells what does not fit together in it.
pub(crate) fn read(path: &Path) -> Result<History, String> {
    let history = read_quietly(path)?;
    tell(path, &history.warnings);
    Ok(history)
}

/// The same, of a file that has its end.
pub(crate) fn read_whole(path: &Path) -> Result<History, String> {
    let history = read_quietly(path)?;
    to_the_end(path, &history.warnings)?;
    tell(path, &history.warnings);
    Ok(history)
}

/// Reads a history whose warnings are part of what is said of it.
pub(crate) fn read_quietly(path: &Path) -> Result<History, String> {
    open(path).and_then(|file| parse(path, file))
}

/// Says what does not fit together in a file: it was read, and it may be less than was hoped.
pub(crate) fn tell(path: &Path, warnings: &[HistoryWarning]) {
    let file = path.display();
    let told =
        warnings.iter().filter(|warning| !matches!(warning, HistoryWarning::More { .. })).take(WARNINGS);
    let mut more = HistoryWarning::count(warnings);
    for warning in told {
        output::complain(&format!("{file}: {warning}"));
        more = more.saturating_sub(1);
    }
    if more > 0 {
        output::complain(&format!("{file}: and {more} more"));
    }
}

/// The recordings that a profile may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProfileSource {
    /// Of a run up to its end.
    Whole,
    /// Of as much as there is.
    Any,
}

/// A profile that was written, or that of a history, with names of so many lines. It may come through a pipe:
/// it is opened once.
pub(crate) fn profile_of_either(path: &Path, depth: usize, source: ProfileSource) -> Result<Profile, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut file = open(path)?;
    let mut head = Vec::new();
    file.by_ref()
        .take(HEAD)
        .read_to_end(&mut head)
        .map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let is_profile = String::from_utf8_lossy(&head).contains(MARK);
    let whole = Cursor::new(head).chain(file);
    if !is_profile {
        let history = parse(path, whole)?;
        if source == ProfileSource::Whole {
            to_the_end(path, &history.warnings)?;
            of_a_run(path, &history)?;
        }
        tell(path, &history.warnings);
        return Ok(Profile::of(&history, depth));
    }
    let profile: Profile = serde_json::from_reader(BufReader::new(whole))
        .map_err(|error| wrong(&format!("is no baseline: {error}")))?;
    if !profile.is_known() {
        return Err(wrong(&"was written by another version of orlop"));
    }
    if source == ProfileSource::Whole && profile.devices.iter().all(|device| device.allocations == 0) {
        return Err(wrong(&UnreliableReplay::NoHistory));
    }
    Ok(profile)
}

/// That a run was recorded: a gate would pass what was not.
pub(crate) fn of_a_run(path: &Path, history: &History) -> Result<(), String> {
    check_recording(history).map_or(Ok(()), |doubt| Err(format!("{}: {doubt}", path.display())))
}

fn open(path: &Path) -> Result<File, String> {
    if path.is_dir() {
        return Err(format!("{}: this is a directory, not a recording", path.display()));
    }
    File::open(path).map_err(|error| cannot_open(path, error))
}

fn parse(path: &Path, file: impl Read) -> Result<History, String> {
    let history = History::parse(file).map_err(|error| error.in_file(path).to_string())?;
    if history.devices.is_empty() {
        to_the_end(path, &history.warnings)?;
    }
    Ok(history)
}

/// That a file has its end: what comes before that can be used, but does not stand for the whole run.
pub(crate) fn to_the_end(path: &Path, warnings: &[HistoryWarning]) -> Result<(), String> {
    let part = |warning: &&HistoryWarning| {
        matches!(warning, HistoryWarning::CutOff { .. } | HistoryWarning::Damaged { .. })
    };
    let told = warnings.iter().find(part);
    told.map_or(Ok(()), |warning| Err(format!("{}: {warning}", path.display())))
}

/// The device with this number, or all; the host's memory only if there is no other, for no settings of
/// PyTorch's are about it.
pub(crate) fn devices(history: &History, only: Option<u32>) -> impl Iterator<Item = &DeviceHistory> {
    let others = history.devices.iter().any(|device| !is_host(device));
    history.devices.iter().filter(move |device| match only {
        Some(only) => only == device.device,
        None => !(others && is_host(device)),
    })
}

fn is_host(device: &DeviceHistory) -> bool {
    numbered_device(device.device).is_some_and(Device::is_cpu)
}

/// Says that the host's memory is left out.
pub(crate) fn tell_left_out(path: &Path, history: &History, only: Option<u32>) {
    let shown = |device: &DeviceHistory| devices(history, only).any(|shown| shown.device == device.device);
    for device in history.devices.iter().filter(|device| only.is_none() && !shown(device)) {
        output::complain(&format!(
            "{}: device {} is left out, as no settings of PyTorch's are about it: --device {} shows it",
            path.display(),
            table::device(device.device),
            device.device
        ));
    }
}
