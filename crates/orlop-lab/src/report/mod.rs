//! A page that displays a history: lifetimes of blocks, memory by call site, and gaps between blocks.
//!
//! The page is one self-contained file: no network, no fonts, no libraries. It contains columns of numbers
//! instead of images, so it zooms from a million events to one. The page itself computes everything about an
//! instant (stacks, gaps, totals); this module only provides the packed lifetimes of blocks and extents of
//! segments.
//!
//! ```
//! use orlop_trace::history::{DeviceHistory, History};
//! use orlop_lab::report::ReportData;
//!
//! let mut history = History::default();
//! history.devices.push(DeviceHistory::default());
//! let mut page = Vec::new();
//! ReportData::new(&history).title("A quiet run").write(&mut page)?;
//! assert!(page.starts_with(b"<!doctype html>"));
//! # Ok::<(), orlop_lab::LabError>(())
//! ```

mod annotations;
mod block_lifetimes;
mod columns;
mod device_page;
mod extents;
mod page;
mod refusal_marks;
mod stacks;
#[cfg(test)]
mod testing;
mod what_if_rows;

pub use self::page::ReportColumns;
use crate::verdict::RunVerdict;
use crate::{LabError, Result};
use orlop_trace::history::{DeviceHistory, History};
use serde::Serialize;
use std::io::Write;

/// The contents and options of a report.
#[derive(Debug, Clone)]
pub struct ReportData<'a> {
    history: &'a History,
    title: &'a str,
    source: &'a str,
    device: Option<u32>,
    verdicts: &'a [DeviceVerdict],
    what_if: &'a [ReportRow],
}

/// The verdict on a device, at the top of the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceVerdict {
    /// The number of the device.
    pub device: u32,
    /// What happened, which setting helps, and what to do next.
    #[serde(flatten)]
    pub verdict: RunVerdict,
}

/// The cost of another setting or allocator: a row of the page's table.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReportRow {
    /// The allocator or policy.
    pub name: String,
    /// Its settings as a user would write them (PyTorch: `PYTORCH_CUDA_ALLOC_CONF`); may be empty.
    pub settings: String,
    /// The peak of reserved bytes; `None` if it could not serve the history.
    pub peak_reserved: Option<u64>,
    /// The peak of reserved bytes over the peak of live bytes.
    pub ratio: Option<f64>,
    /// The memory in bytes in which it serves the history without releasing cached memory for a retry.
    pub without_retry: Option<u64>,
    /// The smallest memory in bytes in which it serves the history.
    pub smallest_memory: Option<u64>,
    /// How it compares with the recorded settings, or with the baseline.
    pub verdict: WhatIfVerdict,
    /// A remark; may be empty.
    pub note: String,
}

/// How a setting compares with the recorded one, or with the baseline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhatIfVerdict {
    /// It is the recorded setting.
    Recorded,
    /// It is the baseline of the comparison, because the recorded settings are unknown.
    Baseline,
    /// It reserves or needs less memory or has fewer retries, or fits while the recorded setting does not.
    Better,
    /// The difference is not significant.
    #[default]
    Same,
    /// It reserves or needs more memory, or has more retries.
    Worse,
    /// It does not fit.
    DoesNotFit,
    /// It cannot be compared: replays do not reproduce the recorded run.
    Unknown,
}

impl<'a> ReportData<'a> {
    /// Creates a report on all devices of a history.
    #[must_use]
    pub fn new(history: &'a History) -> Self {
        Self { history, title: "Memory report", source: "", device: None, verdicts: &[], what_if: &[] }
    }

    /// Sets the title of the page.
    #[must_use]
    pub fn title(mut self, title: &'a str) -> Self {
        self.title = title;
        self
    }

    /// Sets the source of the history: a file name.
    #[must_use]
    pub fn source(mut self, source: &'a str) -> Self {
        self.source = source;
        self
    }

    /// Restricts the report to one device.
    #[must_use]
    pub fn device(mut self, device: u32) -> Self {
        self.device = Some(device);
        self
    }

    /// Adds the verdicts on devices. The page opens on the first.
    #[must_use]
    pub fn verdicts(mut self, verdicts: &'a [DeviceVerdict]) -> Self {
        self.verdicts = verdicts;
        self
    }

    /// Adds the costs of other settings and allocators.
    #[must_use]
    pub fn what_if(mut self, rows: &'a [ReportRow]) -> Self {
        self.what_if = rows;
        self
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchDevice`] if the history does not have the device; [`LabError::Write`] if the writer
    /// fails.
    pub fn write(&self, writer: impl Write) -> Result<()> {
        self.write_with(&self.columns()?, writer)
    }

    /// Computes the columns of the page, which depend on the history and the device alone: verdicts and the
    /// costs of other settings can be found at the same time.
    ///
    /// # Errors
    ///
    /// [`LabError::NoSuchDevice`] if the history does not have the device.
    pub fn columns(&self) -> Result<ReportColumns<'a>> {
        Ok(ReportColumns::of(self.history, &self.devices()?))
    }

    /// Writes the page with these columns.
    ///
    /// # Errors
    ///
    /// [`LabError::Write`] if the writer fails.
    pub fn write_with(&self, columns: &ReportColumns<'_>, writer: impl Write) -> Result<()> {
        page::write(self, columns, writer).map_err(|error| LabError::Write { error })
    }

    fn devices(&self) -> Result<Vec<&'a DeviceHistory>> {
        let wanted = |history: &&DeviceHistory| self.device.is_none_or(|device| history.device == device);
        let devices: Vec<_> = self.history.devices.iter().filter(wanted).collect();
        match self.device {
            Some(device) if devices.is_empty() => Err(LabError::NoSuchDevice { device }),
            _ => Ok(devices),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_trace::history::{EventAction, HistoryEvent};

    fn two_devices() -> History {
        let mut history = History::default();
        for device in [0, 3] {
            let events = vec![HistoryEvent::new(EventAction::Allocate, 512, 100)];
            let mut quiet = DeviceHistory::from_events(events);
            quiet.device = device;
            history.devices.push(quiet);
        }
        history
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        let history = two_devices();
        assert_eq!(ReportData::new(&history).devices().unwrap().len(), 2);
        assert_eq!(ReportData::new(&history).device(3).devices().unwrap().len(), 1);
        let error = ReportData::new(&history).device(1).write(Vec::new()).unwrap_err();
        assert!(matches!(error, LabError::NoSuchDevice { device: 1 }));
    }

    #[test]
    fn a_page_is_self_contained_and_escapes_texts() {
        let mut history = two_devices();
        history.sites.text("</script><script>alert(1)</script>");
        history.settings = Some("</script>".to_owned());
        let mut page = Vec::new();
        ReportData::new(&history).title("a <b> & \"c\"").source("</title>").write(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"));
        assert_eq!(page.matches("</script>").count(), 2, "one of the data, one of the program");
        for outside in ["http://", "https://", "@import", "src=", "orlop:"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
