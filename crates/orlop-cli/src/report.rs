//! `orlop report`.

use crate::arguments::ReportArguments;
use crate::output;
use crate::table::bytes;
use orlop::trace::history::History;
use orlop::trace::report::ReportData;
use std::fs;

pub(crate) fn run(arguments: &ReportArguments) -> Result<(), Vec<String>> {
    let history = History::read(&arguments.file).map_err(|error| vec![error.to_string()])?;
    let source = arguments.file.display().to_string();
    let name = arguments.file.file_name().unwrap_or(arguments.file.as_os_str()).to_string_lossy();
    let mut report =
        ReportData::new(&history).title(arguments.title.as_deref().unwrap_or(&name)).source(&source);
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
    output::print(&format!("{output}: {}, open it in a browser\n", bytes(size)))
}
