//! `orlop fit`.

use crate::fit_arguments::FitArguments;
use crate::output::Failures;
use crate::table::{self, bytes, count, counted, percent, plain};
use crate::task_progress::TaskProgress;
use crate::{histories, output};
use orlop::lab::fit::{Fit, FitEstimate, FitPrediction, LargestSize};
use orlop::trace::formats::DeviceLabel;
use orlop::trace::history::History;
use serde::Serialize;
use std::fmt::Write as _;

/// A prediction, as it is printed.
#[derive(Serialize)]
struct FitEntry<'a> {
    /// What the size counts.
    name: &'a str,
    device: u32,
    /// The sizes of the recordings.
    recorded: &'a [u64],
    replay_error: f64,
    #[serde(flatten)]
    prediction: FitPrediction,
    largest: Option<LargestSize>,
}

pub(crate) fn run(arguments: &FitArguments) -> Result<(), Failures> {
    let sizes = sizes(arguments)?;
    let mut histories: Vec<History> = Vec::with_capacity(arguments.files.len());
    for file in &arguments.files {
        histories.push(histories::read_whole(file)?);
    }
    let recordings: Vec<(u64, &History)> = sizes.into_iter().zip(&histories).collect();
    let busiest = histories.first().and_then(History::busiest_device);
    let device = arguments.device.or(busiest).unwrap_or(0);
    let progress = TaskProgress::start(format!("predicting {}={}", arguments.at.name, arguments.at.size));
    let fit = Fit::new(&recordings, device).map_err(|error| error.to_string())?;
    let entry = FitEntry {
        name: &arguments.at.name,
        device,
        recorded: fit.sizes(),
        replay_error: fit.replay_error(),
        prediction: fit.predict(arguments.at.size),
        largest: arguments.memory.map(|memory| fit.largest(memory)),
    };
    drop(progress);
    if arguments.json { output::print_json(&entry) } else { output::print(&text(&entry)) }
}

/// Returns the size of each recording.
fn sizes(arguments: &FitArguments) -> Result<Vec<u64>, String> {
    let files = &arguments.files;
    if arguments.sizes.is_empty() {
        let size = |file: &std::path::PathBuf| {
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
            let found = arguments.at.size_in(&name);
            found.ok_or_else(|| {
                format!(
                    "{}: its name has no number after {}: give the sizes of all recordings with --sizes",
                    file.display(),
                    arguments.at.name
                )
            })
        };
        return files.iter().map(size).collect();
    }
    if arguments.sizes.len() == files.len() {
        return Ok(arguments.sizes.clone());
    }
    let (sizes, files) = (arguments.sizes.len() as u64, files.len() as u64);
    Err(format!("--sizes has {} for {}", counted(sizes, "size"), counted(files, "recording")))
}

/// Formats the verdict in three lines, and the call sites.
fn text(entry: &FitEntry<'_>) -> String {
    let FitEntry { name, prediction, .. } = entry;
    let mut text = format!(
        "{} at {name}={}: {} of live memory at the peak, {} reserved.\n",
        DeviceLabel(entry.device),
        prediction.size,
        estimate(prediction.live),
        estimate(prediction.reserved)
    );
    text += &match entry.largest {
        Some(LargestSize { memory, size: Some(size), safe, .. }) => {
            let safe = match safe {
                Some(safe) if safe == size => String::new(),
                Some(safe) => format!("; {name}={safe} fits at the upper bound"),
                None => "; at the upper bound none fits".to_owned(),
            };
            format!("{name}={size} is the largest that fits {}{safe}.\n", bytes(memory))
        }
        Some(LargestSize { memory, .. }) => {
            format!("Not even the smallest recorded one fits {}.\n", bytes(memory))
        }
        None => format!("Which {name} fits a device: add --memory.\n"),
    };
    let growing = prediction.sites.iter().max_by(|one, other| {
        let growth = |law: &orlop::lab::fit::SizeLaw| law.at(prediction.size as f64) - law.constant;
        growth(&one.law).total_cmp(&growth(&other.law))
    });
    text += &match growing {
        Some(site) => format!("What grows most with {name} is {}.\n", plain(&site.name)),
        None => "Nothing is live at the peak.\n".to_owned(),
    };
    let mut text = table::wrapped(&text);
    let recorded: Vec<String> = entry.recorded.iter().map(ToString::to_string).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nrecorded at {name} = {}; replays differ from the recordings by up to {}",
        recorded.join(", "),
        percent(entry.replay_error)
    );
    let mut table = table::new_with_text(
        ["at the peak", "blocks", &format!("x = {name}")],
        "call site",
        Some(table::WIDTH),
    );
    for site in &prediction.sites {
        let numbers = [bytes(site.bytes), count(site.blocks), site.law.to_string()];
        table.add_row(table::row_with_text(numbers, &plain(&site.name)));
    }
    let _ = write!(text, "\n{}\n", table.trim_fmt());
    text
}

/// Formats a number of bytes with its bounds, if they differ in what is shown.
fn estimate(FitEstimate { bytes: value, min, max, .. }: FitEstimate) -> String {
    let [value, min, max] = [value, min, max].map(bytes);
    if min == max { value } else { format!("{value} ({min} to {max})") }
}
