//! The page around the data: template, style and scripts, which are separate files here and one file in the
//! output.

use super::columns::ColumnPayload;
use super::device_page::DevicePage;
use super::stacks::{StackTable, Stacks};
use super::{DeviceVerdict, ReportData, ReportRow};
use crate::category::Category;
use crate::html::PageTemplate;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use orlop_core::MemoryKind;
use orlop_trace::history::{DeviceHistory, History, HistoryWarning};
use serde::Serialize;
use std::io::{self, Write};

const PAGE: PageTemplate = PageTemplate {
    html: include_str!("page/index.html"),
    styles: &[include_str!("page/style.css")],
    scripts: &[
        include_str!("page/format.js"),
        include_str!("page/data.js"),
        include_str!("page/model.js"),
        include_str!("page/groups.js"),
        include_str!("page/view.js"),
        include_str!("page/raster.js"),
        include_str!("page/refusals.js"),
        include_str!("page/segments.js"),
        include_str!("page/timeline.js"),
        include_str!("page/pointer.js"),
        include_str!("page/regions.js"),
        include_str!("page/panels.js"),
        include_str!("page/bench.js"),
        include_str!("page/drop.js"),
        include_str!("page/main.js"),
    ],
};

#[derive(Serialize)]
struct Meta<'a> {
    title: &'a str,
    source: &'a str,
    settings: Option<&'a str>,
    warnings: Vec<String>,
    /// The number of warnings, including those that are only counted.
    warning_count: u64,
    verdicts: &'a [DeviceVerdict],
    what_if: &'a [ReportRow],
    kinds: [&'static str; MemoryKind::COUNT],
    categories: [&'static str; Category::ALL.len()],
    devices: &'a [DevicePage],
    stacks: &'a StackTable<'a>,
}

/// The columns of a page, which have most of its bytes.
#[derive(Debug)]
pub struct ReportColumns<'a> {
    devices: Vec<DevicePage>,
    stacks: StackTable<'a>,
    payload: ColumnPayload,
}

impl<'a> ReportColumns<'a> {
    pub(super) fn of(history: &'a History, devices: &[&DeviceHistory]) -> Self {
        let mut payload = ColumnPayload::default();
        let mut stacks = Stacks::new(&history.sites);
        let devices =
            devices.iter().map(|device| DevicePage::of(device, history, &mut stacks, &mut payload)).collect();
        Self { devices, stacks: stacks.finish(&mut payload), payload }
    }
}

pub(super) fn write(report: &ReportData<'_>, columns: &ReportColumns<'_>, out: impl Write) -> io::Result<()> {
    PAGE.write(report.title, out, |out| data(report, columns, out))
}

/// Writes the length of the description, the description, and the columns: deflated, in base64.
fn data(report: &ReportData<'_>, columns: &ReportColumns<'_>, out: &mut impl Write) -> io::Result<()> {
    let history = report.history;
    let ReportColumns { devices, stacks, payload } = columns;
    let meta = Meta {
        title: report.title,
        source: report.source,
        settings: history.settings.as_deref(),
        warnings: history.warnings.iter().map(ToString::to_string).collect(),
        warning_count: HistoryWarning::count(&history.warnings),
        verdicts: report.verdicts,
        what_if: report.what_if,
        categories: Category::ALL.map(Category::name),
        kinds: MemoryKind::ALL.map(MemoryKind::name),
        devices,
        stacks,
    };
    let meta = serde_json::to_vec(&meta)?;
    let length = u32::try_from(meta.len()).map_err(io::Error::other)?;
    let mut encoder = ZlibEncoder::new(EncoderWriter::new(out, &STANDARD), Compression::default());
    encoder.write_all(&length.to_le_bytes())?;
    encoder.write_all(&meta)?;
    encoder.write_all(payload.bytes())?;
    encoder.finish()?.finish().map(drop)
}
