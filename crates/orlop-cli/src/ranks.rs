//! `orlop ranks`.

use crate::output::{self, Failures};
use crate::table::{self, bytes, count, counted, more, plain};
use clap::Args;
use orlop::lab::ranks::{RankComparison, RankReport, SiteSpread};
use orlop::lab::verdict::quoted;
use orlop::trace::Recordings;
use orlop::trace::formats::DeviceLabel;
use std::fmt::Write as _;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct RanksArguments {
    /// The recordings of a program's ranks: files, folders, or zip archives
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// Does not wrap call sites to fit 80 characters
    #[arg(long)]
    pub(crate) wide: bool,

    /// Prints JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &RanksArguments) -> Result<(), Failures> {
    let mut failures = Vec::new();
    let mut ranks = RankComparison::default();
    for path in &arguments.paths {
        let recordings = match Recordings::open(path) {
            Ok(recordings) => recordings,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        // One recording is in memory at a time.
        for recording in recordings {
            match recording.history {
                Ok(history) => ranks.add(&recording.path.display().to_string(), &history),
                Err(error) => failures.push(error.to_string()),
            }
        }
    }
    match ranks.report() {
        Some(report) if arguments.json => output::print_json(&report)?,
        Some(report) => output::print(&text(&report, (!arguments.wide).then_some(table::WIDTH)))?,
        None if failures.is_empty() => return Err("nothing was recorded".to_owned().into()),
        None => {}
    }
    Failures::check(failures)
}

/// Formats the verdict in three lines, the outliers, and the call sites that differ.
fn text(report: &RankReport, width: Option<u16>) -> String {
    let RankReport { worst, median_peak, .. } = report;
    let ranks = counted(report.ranks as u64, "rank");
    let name = plain(&worst.name);
    let peak = format!("a peak of {}, {} at the median", bytes(worst.peak()), bytes(*median_peak));
    let mut text = match report.failed {
        0 => format!("Of {ranks}, {name} needs most: {peak}.\n"),
        1 => format!("Of {ranks}, one ran out of memory, {name}: {peak}.\n"),
        failed => {
            format!("Of {ranks}, {} ran out of memory, at worst {name}: {peak}.\n", count(failed as u64))
        }
    };
    text += &match report.worst_sites.first() {
        Some(site) => format!(
            "What sets it apart is {}: {}, {} at the median.\n",
            plain(&site.name),
            bytes(site.worst),
            bytes(site.median)
        ),
        None => "At the peak its call sites hold what those of the median rank hold.\n".to_owned(),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "orlop info {} shows it in full.", quoted(&worst.name));
    let mut text = table::wrapped(&text);
    if !report.outliers.is_empty() {
        let mut table = table::new_with_text(["peak", "over median", "failed"], "outlier", width);
        for outlier in &report.outliers {
            let figures = &outlier.figures;
            let numbers =
                [bytes(figures.peak()), more(outlier.over_median.into(), bytes), count(figures.failed)];
            let label = format!("{}, {}", plain(&figures.name), DeviceLabel(figures.device));
            table.add_row(table::row_with_text(numbers, &label));
        }
        let _ = write!(text, "\n{}\n", table.trim_fmt());
        if report.more_outliers > 0 {
            let _ = writeln!(text, "and {}", counted(report.more_outliers as u64, "more outlier"));
        }
    }
    text + &sites(&report.sites, width)
}

fn sites(sites: &[SiteSpread], width: Option<u16>) -> String {
    if sites.is_empty() {
        return "\nThe call sites of all ranks hold the same at their peaks.\n".to_owned();
    }
    let mut table =
        table::new_with_text(["min", "median", "max"], "call site, at the peak of each rank", width);
    for site in sites {
        let label = format!("{} (max: {})", plain(&site.name), plain(&site.max_rank));
        table.add_row(table::row_with_text([site.min, site.median, site.max].map(bytes), &label));
    }
    format!("\n{}\n", table.trim_fmt())
}
