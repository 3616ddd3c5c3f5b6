//! `orlop report`.

use crate::arguments::ReportArguments;
use crate::table::bytes;
use crate::{histories, output};
use orlop::trace::history::{DeviceHistory, History, Workload};
use orlop::trace::report::{ReportData, WhatIfRow};
use orlop::trace::what_if::{Rules, WhatIf};
use serde::Serialize;
use std::fs;

pub(crate) fn run(arguments: &ReportArguments) -> Result<(), Vec<String>> {
    let history = histories::read(&arguments.file).map_err(|error| vec![error])?;
    let source = arguments.file.display().to_string();
    let name = arguments.file.file_name().unwrap_or(arguments.file.as_os_str()).to_string_lossy();
    let mut report =
        ReportData::new(&history).title(arguments.title.as_deref().unwrap_or(&name)).source(&source);
    let rows = rows(&history, arguments.device);
    report = report.what_if(&rows);
    if let Some(device) = arguments.device {
        report = report.device(device);
    }
    // A page that cannot be made leaves no file behind.
    let mut page = Vec::new();
    report.write(&mut page).map_err(|error| vec![format!("{source}: {error}")])?;
    let output = arguments.output.display();
    fs::write(&arguments.output, &page)
        .map_err(|error| vec![format!("{output}: cannot be written: {error}")])?;
    let size = u64::try_from(page.len()).unwrap_or(u64::MAX);
    if arguments.json {
        return output::print_json(&Written {
            output: output.to_string(),
            bytes: size,
            settings: rows.len(),
        });
    }
    output::print(&format!("{output}: {}, open it in a browser\n", bytes(size)))
}

/// What was written.
#[derive(Serialize)]
struct Written {
    output: String,
    bytes: u64,
    /// How many settings and allocators the page compares.
    settings: usize,
}

/// What the shown devices would have held under other settings.
fn rows(history: &History, device: Option<u32>) -> Vec<WhatIfRow> {
    let shown = || history.devices.iter().filter(|shown| device.is_none_or(|device| shown.device == device));
    let several = shown().count() > 1;
    let sweep = |shown: &DeviceHistory| {
        let work = Workload::of(shown);
        let baseline = Rules::Torch(history.torch_conf().0);
        let sweep = WhatIf::new(&work).memory(shown.memory).smallest(true).baseline(baseline);
        let mut rows = WhatIfRow::of(&sweep.run());
        for row in rows.iter_mut().filter(|_| several) {
            row.name = format!("device {}: {}", shown.device, row.name);
        }
        rows
    };
    shown().flat_map(sweep).collect()
}
