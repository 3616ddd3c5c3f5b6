//! The questions: each function returns its answer as JSON, except for the page.

use crate::error::AnswerError;
use crate::recording::{self, Completeness, Contents, Source, name_in_commands, name_in_errors};
use crate::task::{self, Stage, TaskProgress};
use orlop_lab::analyze::{DeviceInfo, SiteNaming, SnapshotInfo};
use orlop_lab::compare::{Diff, Gate, SiteMatching, Tolerance};
use orlop_lab::fit::{Fit, FitPrediction, LargestSize};
use orlop_lab::oom_message::OutOfMemoryMessage;
use orlop_lab::verdict::{RunVerdict, most_urgent_first};
use orlop_lab::what_if::{WhatIf, WhatIfReport};
use orlop_trace::history::{DeviceHistory, History, Workload};
use pyo3::prelude::*;
use serde::Serialize;
use std::borrow::Cow;

/// The name of a recording, and its contents.
type NamedContents = (Option<String>, Contents);

/// An answer with the verdict on it: about a device, a message or a comparison.
#[derive(Serialize)]
struct JudgedAnswer<T> {
    verdict: RunVerdict,
    #[serde(flatten)]
    answer: T,
}

/// The description of a device.
#[derive(Serialize)]
struct Description<'a> {
    settings: Option<&'a str>,
    warnings: &'a [String],
    devices: Vec<JudgedAnswer<DeviceInfo>>,
}

/// The settings of a device.
#[derive(Serialize)]
struct Sweep {
    device: u32,
    #[serde(flatten)]
    report: WhatIfReport,
}

/// The options of a sweep over settings.
struct SweepOptions {
    memory: Option<u64>,
    torch: Option<String>,
    device: Option<u32>,
    is_quick: bool,
}

impl SweepOptions {
    fn run(&self, history: &History, device: &DeviceHistory) -> Result<WhatIfReport, AnswerError> {
        let work = Workload::of(device);
        let mut sweep =
            WhatIf::recorded(&work, history, device).smallest(!self.is_quick).plan(!self.is_quick);
        if self.memory.is_some() {
            sweep = sweep.memory(self.memory);
        }
        if let Some(version) = &self.torch {
            sweep = sweep.torch(option("torch", version)?);
        }
        Ok(sweep.run())
    }
}

#[pyfunction]
#[pyo3(signature = (name, contents, *, depth, top, progress = None))]
pub(crate) fn describe(
    py: Python<'_>,
    name: Option<String>,
    contents: Contents,
    depth: usize,
    top: usize,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    task::run(py, progress, move |progress| {
        let history =
            recording::history(Source { name: name.clone(), contents }, Completeness::Any, progress)?;
        let mut info = SnapshotInfo::of(&history, SiteNaming::default().depth(depth).top(top));
        most_urgent_first(&mut info.devices);
        progress.begin(Stage::Computing, info.devices.len() as u64);
        let mut devices = Vec::new();
        for device in info.devices {
            let verdict = RunVerdict::of_recorded(&history, &device, None, name_in_commands(name.as_deref()));
            devices.push(JudgedAnswer { verdict, answer: device });
            progress.advance(1)?;
        }
        let (settings, warnings) = (info.settings.as_deref(), info.warnings.as_slice());
        Ok(serde_json::to_string(&Description { settings, warnings, devices })?)
    })
}

#[pyfunction]
#[pyo3(signature = (name, contents, *, memory = None, torch = None, device = None, quick = false,
                    progress = None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn what_if(
    py: Python<'_>,
    name: Option<String>,
    contents: Contents,
    memory: Option<u64>,
    torch: Option<String>,
    device: Option<u32>,
    quick: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options = SweepOptions { memory, torch, device, is_quick: quick };
    task::run(py, progress, move |progress| {
        let history =
            recording::history(Source { name: name.clone(), contents }, Completeness::Any, progress)?;
        let answers: Vec<JudgedAnswer<Sweep>> = sweeps(name.as_deref(), &history, &options, progress)?
            .into_iter()
            .map(|(info, report)| {
                let verdict = RunVerdict::of(&info, Some(&report), name_in_commands(name.as_deref()));
                JudgedAnswer { verdict, answer: Sweep { device: info.device, report } }
            })
            .collect();
        Ok(serde_json::to_string(&answers)?)
    })
}

#[pyfunction]
#[pyo3(signature = (name, contents, *, title, device = None, progress = None))]
pub(crate) fn report(
    py: Python<'_>,
    name: Option<String>,
    contents: Contents,
    title: String,
    device: Option<u32>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Cow<'static, [u8]>> {
    task::run(py, progress, move |progress| {
        let history =
            recording::history(Source { name: name.clone(), contents }, Completeness::Any, progress)?;
        progress.begin(Stage::Computing, 1);
        let source = name_in_commands(name.as_deref());
        let page = orlop_cli::page(&history, &title, source, device)?;
        progress.advance(1)?;
        Ok(Cow::Owned(page.html))
    })
}

/// Tries other settings on the devices, the most urgent first.
fn sweeps(
    name: Option<&str>,
    history: &History,
    options: &SweepOptions,
    progress: &TaskProgress,
) -> Result<Vec<(DeviceInfo, WhatIfReport)>, AnswerError> {
    let mut infos = SnapshotInfo::of(history, SiteNaming::default()).devices;
    infos.retain(|info| orlop_cli::devices(history, options.device).any(|shown| shown.device == info.device));
    if infos.is_empty() {
        let reason = "nothing was recorded on this device".to_owned();
        return Err(AnswerError::NoAnswer { name: name_in_errors(name.map(str::to_owned)), reason });
    }
    most_urgent_first(&mut infos);
    progress.begin(Stage::Computing, infos.len() as u64);
    let mut sweeps = Vec::new();
    for info in infos {
        let recorded = history.devices.iter().find(|recorded| recorded.device == info.device);
        if let Some(recorded) = recorded {
            sweeps.push((info, options.run(history, recorded)?));
        }
        progress.advance(1)?;
    }
    Ok(sweeps)
}

#[pyfunction]
#[pyo3(signature = (before, after, *, depth, lines, progress = None))]
pub(crate) fn diff(
    py: Python<'_>,
    before: NamedContents,
    after: NamedContents,
    depth: usize,
    lines: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let matching = if lines { SiteMatching::Line } else { SiteMatching::Function };
    task::run(py, progress, move |progress| {
        let names = [&before, &after].map(|(name, _)| name_in_commands(name.as_deref()).to_owned());
        let profile = |(name, contents)| {
            recording::profile(Source { name, contents }, depth, Completeness::Any, progress)
        };
        let (before, after) = (profile(before)?, profile(after)?);
        let answer = Diff::of(&before.profile, &after.profile, matching);
        let verdict = answer.verdict(&names[0], &names[1], after.is_recording);
        Ok(serde_json::to_string(&JudgedAnswer { verdict, answer })?)
    })
}

/// Compares a run with its baseline.
#[pyfunction]
#[pyo3(signature = (run, baseline, *, tolerance, progress = None))]
pub(crate) fn gate(
    py: Python<'_>,
    run: NamedContents,
    baseline: NamedContents,
    tolerance: String,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    task::run(py, progress, move |progress| {
        let tolerance: Tolerance = option("tolerance", &tolerance)?;
        let names = [&run, &baseline].map(|(name, _)| name_in_commands(name.as_deref()).to_owned());
        let profile = |(name, contents), depth| {
            recording::profile(Source { name, contents }, depth, Completeness::Whole, progress)
        };
        let baseline = profile(baseline, 1)?.profile;
        // Names are compared, so they must have the same depth.
        let run = profile(run, baseline.depth)?.profile;
        let answer = Gate::check(&run, &baseline, tolerance);
        let verdict = answer.verdict(&names[0], &names[1]);
        Ok(serde_json::to_string(&JudgedAnswer { verdict, answer })?)
    })
}

/// A prediction, and what it rests on.
#[derive(Serialize)]
struct Predicted<'a> {
    device: u32,
    recorded: &'a [u64],
    replay_error: f64,
    #[serde(flatten)]
    prediction: FitPrediction,
    largest: Option<LargestSize>,
}

/// Predicts a run of another size from recordings at two or more.
#[pyfunction]
#[pyo3(signature = (recordings, *, at, memory = None, device = None, progress = None))]
pub(crate) fn fit(
    py: Python<'_>,
    recordings: Vec<(u64, NamedContents)>,
    at: u64,
    memory: Option<u64>,
    device: Option<u32>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    task::run(py, progress, move |progress| {
        let mut histories = Vec::new();
        for (size, (name, contents)) in recordings {
            let source = Source { name, contents };
            histories.push((size, recording::history(source, Completeness::Whole, progress)?));
        }
        let busiest = histories.first().and_then(|(_, history)| history.busiest_device());
        let device = device.or(busiest).unwrap_or(0);
        progress.begin(Stage::Computing, 1);
        let recordings: Vec<(u64, &History)> =
            histories.iter().map(|(size, history)| (*size, history)).collect();
        let fit = Fit::new(&recordings, device)?;
        let predicted = Predicted {
            device,
            recorded: fit.sizes(),
            replay_error: fit.replay_error(),
            prediction: fit.predict(at),
            largest: memory.map(|memory| fit.largest(memory)),
        };
        progress.advance(1)?;
        Ok(serde_json::to_string(&predicted)?)
    })
}

/// Makes the baseline of a run.
#[pyfunction]
#[pyo3(signature = (name, contents, *, depth, progress = None))]
pub(crate) fn profile(
    py: Python<'_>,
    name: Option<String>,
    contents: Contents,
    depth: usize,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    task::run(py, progress, move |progress| {
        let source = Source { name, contents };
        let profile = recording::profile(source, depth, Completeness::Whole, progress)?.profile;
        Ok(serde_json::to_string_pretty(&profile)? + "\n")
    })
}

#[pyfunction]
pub(crate) fn why_oom(py: Python<'_>, text: String) -> PyResult<String> {
    task::run(py, None, move |_| {
        let messages = OutOfMemoryMessage::find_all(&text);
        if messages.is_empty() {
            return Err(AnswerError::NoMessage);
        }
        let answer = |answer| JudgedAnswer { verdict: OutOfMemoryMessage::verdict(answer), answer };
        Ok(serde_json::to_string(&messages.iter().map(answer).collect::<Vec<_>>())?)
    })
}

fn option<T: std::str::FromStr<Err: std::fmt::Display>>(
    name: &'static str,
    text: &str,
) -> Result<T, AnswerError> {
    text.parse().map_err(|error: T::Err| AnswerError::Option { option: name, reason: error.to_string() })
}
