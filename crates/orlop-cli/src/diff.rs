//! `orlop diff`.

use crate::arguments::NamingArguments;
use crate::histories::{self, ProfileSource};
use crate::output::{self, Failures};
use crate::table::{self, bytes, count, counted, more, plain};
use clap::Args;
use orlop::lab::compare::{DeviceDiff, Diff, MetricChange, SiteDiff, SiteMatching};
use orlop::lab::verdict::RunVerdict;
use orlop::trace::formats::DeviceLabel;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// The first run: a snapshot, another recording, or a baseline that `orlop gate` wrote
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// The second run: any of these
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    #[command(flatten)]
    pub(crate) naming: NamingArguments,

    /// Counts two lines of one function as two call sites, to compare runs of the same version of a program
    #[arg(long)]
    pub(crate) lines: bool,

    /// Does not wrap call sites to fit 80 characters
    #[arg(long)]
    pub(crate) wide: bool,

    /// Prints JSON, an object, instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Serialize)]
struct DiffEntry {
    before: String,
    after: String,
    verdict: RunVerdict,
    #[serde(flatten)]
    diff: Diff,
}

pub(crate) fn run(arguments: &DiffArguments) -> Result<(), Failures> {
    let depth = arguments.naming.depth.get();
    let [before, after] = [&arguments.before, &arguments.after]
        .map(|file| histories::read_profile(file, depth, ProfileSource::Any));
    let (before, after) = Failures::join(before, after)?;
    let matching = if arguments.lines { SiteMatching::Line } else { SiteMatching::Function };
    let mut diff = Diff::of(&before.profile, &after.profile, matching);
    let names = [&arguments.before, &arguments.after].map(|file| file.display().to_string());
    let verdict = diff.verdict(&names[0], &names[1], after.is_recording);
    let hidden: Vec<usize> =
        diff.devices.iter_mut().map(|device| truncate_sites(device, arguments.naming.top.get())).collect();
    if arguments.json {
        let [before, after] = names;
        return output::print_json(&DiffEntry { before, after, verdict, diff });
    }
    let width = (!arguments.wide).then_some(table::WIDTH);
    let mut all = table::wrapped(&verdict.to_string());
    for (device, hidden) in diff.devices.iter().zip(hidden) {
        all = all + "\n" + &text(device, hidden, width);
    }
    output::print(&all)
}

/// Keeps the sites with the most growth and the most shrinkage. Returns the number of omitted sites.
fn truncate_sites(device: &mut DeviceDiff, top: usize) -> usize {
    let differs =
        |site: &SiteDiff| site.peak.growth() != 0 || site.end.growth() != 0 || site.allocations.growth() != 0;
    device.sites.retain(differs);
    let sites = device.sites.len();
    let grown = device.sites.iter().filter(|site| site.peak.growth() >= 0).count();
    let shrunk = sites - grown;
    // Half each; what one list does not need, the other gets.
    let up = grown.min(top.div_ceil(2).max(top.saturating_sub(shrunk)));
    let down = shrunk.min(top - up);
    device.sites.drain(up..sites - down);
    sites - up - down
}

fn text(device: &DeviceDiff, hidden: usize, width: Option<u16>) -> String {
    let mut text = format!("{}\n", DeviceLabel(device.device));
    let mut table = table::new([""], ["before", "after", "growth", ""]);
    let rows = [
        ("peak live", Some(device.peak_live), bytes as fn(u64) -> String),
        ("peak reserved", device.peak_reserved, bytes),
        ("live at end", Some(device.end_live), bytes),
        ("allocations", Some(device.allocations), count),
    ];
    for (what, change, unit) in rows {
        if let Some(change) = change {
            table.add_row(table::row([what], changes(change, unit)));
        }
    }
    text.push_str(&table::indented(&table));
    text.push('\n');
    if device.sites.is_empty() {
        text.push_str("  no call site differs\n");
        return text;
    }
    text.push_str(&sites(&device.sites, width));
    if hidden > 0 {
        // Writing to a String cannot fail.
        let sites = counted(hidden as u64, "call site");
        let _ = writeln!(text, "  and {sites} with smaller differences");
    }
    text
}

/// Formats before, after, growth and growth in percent.
pub(crate) fn changes(change: MetricChange, unit: fn(u64) -> String) -> [String; 4] {
    let growth = change.growth();
    let percent = match change.before {
        0 => String::new(),
        _ if growth == 0 => String::new(),
        before => format!("{:+.1}%", growth as f64 / before as f64 * 100.0),
    };
    [unit(change.before), unit(change.after), more(growth, unit), percent]
}

/// Formats the differences by call site.
pub(crate) fn sites(sites: &[SiteDiff], width: Option<u16>) -> String {
    let mut table = table::new_with_text(
        ["peak", "growth", "end", "growth", "allocations", ""],
        "call site",
        table::inner(width),
    );
    for site in sites {
        let numbers = [
            bytes(site.peak.after),
            more(site.peak.growth(), bytes),
            bytes(site.end.after),
            more(site.end.growth(), bytes),
            more(site.allocations.growth(), count),
            if site.is_new {
                "new".to_owned()
            } else if site.is_gone {
                "gone".to_owned()
            } else {
                String::new()
            },
        ];
        table.add_row(table::row_with_text(numbers, &name(site)));
    }
    table::indented(&table)
}

/// Formats the name of a call site with the number of other lines that are included.
pub(crate) fn name(site: &SiteDiff) -> String {
    let name = plain(&site.name);
    match site.other_lines {
        0 => name,
        lines => format!("{name} (and {})", counted(lines as u64, "more line")),
    }
}
