//! `orlop diff`.

use crate::arguments::DiffArguments;
use crate::histories::{self, ProfileSource};
use crate::output;
use crate::table::{self, bytes, count, more, plain};
use orlop::lab::compare::{MetricChange, DeviceDiff, Diff, SiteMatching, SiteDiff};
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Serialize)]
struct DiffEntry {
    before: String,
    after: String,
    #[serde(flatten)]
    diff: Diff,
}

pub(crate) fn run(arguments: &DiffArguments) -> Result<(), Vec<String>> {
    let depth = arguments.naming.depth.get();
    let [before, after] = [&arguments.before, &arguments.after]
        .map(|file| histories::profile_of_either(file, depth, ProfileSource::Any));
    let (before, after) = match (before, after) {
        (Ok(before), Ok(after)) => (before, after),
        (before, after) => return Err([before.err(), after.err()].into_iter().flatten().collect()),
    };
    let matching = if arguments.lines { SiteMatching::Line } else { SiteMatching::Function };
    let mut diff = Diff::of(&before, &after, matching);
    let hidden: Vec<usize> =
        diff.devices.iter_mut().map(|device| cut(device, arguments.naming.top.get())).collect();
    if arguments.json {
        let [before, after] = [&arguments.before, &arguments.after].map(|file| file.display().to_string());
        return output::print_json(&DiffEntry { before, after, diff });
    }
    let texts: Vec<String> =
        diff.devices.iter().zip(hidden).map(|(device, hidden)| text(device, hidden)).collect();
    let nothing = "no device was used\n".to_owned();
    output::print(&if texts.is_empty() { nothing } else { texts.join("\n") })
}

/// Leaves what grew most and what shrank most; says how many sites are left out.
fn cut(device: &mut DeviceDiff, top: usize) -> usize {
    let differs =
        |site: &SiteDiff| site.peak.growth() != 0 || site.end.growth() != 0 || site.allocations.growth() != 0;
    device.sites.retain(differs);
    let sites = device.sites.len();
    let grown = device.sites.iter().filter(|site| site.peak.growth() >= 0).count();
    let shrunk = sites - grown;
    // Half each, and what one does not need the other has.
    let up = grown.min(top.div_ceil(2).max(top.saturating_sub(shrunk)));
    let down = shrunk.min(top - up);
    device.sites.drain(up..sites - down);
    sites - up - down
}

fn text(device: &DeviceDiff, hidden: usize) -> String {
    let mut text = format!("device {}\n", table::device(device.device));
    let mut table = table::new([""], ["before", "after", "growth", ""]);
    let rows = [
        ("peak live", Some(device.peak_live), bytes as fn(u64) -> String),
        ("peak reserved", device.peak_reserved, bytes),
        ("live at end", Some(device.end_live), bytes),
        ("allocations", Some(device.allocations), count),
    ];
    for (what, amount, unit) in rows {
        if let Some(amount) = amount {
            table.add_row(table::row([what], amounts(amount, unit)));
        }
    }
    text.push_str(&table::indented(&table));
    text.push('\n');
    if device.sites.is_empty() {
        text.push_str("  no call site differs\n");
        return text;
    }
    text.push_str(&sites(&device.sites));
    if hidden > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  and {} call sites that differ less", count(hidden as u64));
    }
    text
}

/// Before, after, and how much more, also in percent.
pub(crate) fn amounts(amount: MetricChange, unit: fn(u64) -> String) -> [String; 4] {
    let growth = amount.growth();
    let percent = match amount.before {
        0 => String::new(),
        _ if growth == 0 => String::new(),
        before => format!("{:+.1}%", growth as f64 / before as f64 * 100.0),
    };
    [unit(amount.before), unit(amount.after), more(growth, unit), percent]
}

/// What differs by call site.
pub(crate) fn sites(sites: &[SiteDiff]) -> String {
    let mut table = table::new_with_text(["peak", "growth", "end", "growth", "allocations", ""], "call site");
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

/// A call site's name, with how many other lines are counted with it.
pub(crate) fn name(site: &SiteDiff) -> String {
    let name = plain(&site.name);
    match site.other_lines {
        0 => name,
        1 => format!("{name} (and 1 line more)"),
        lines => format!("{name} (and {lines} lines more)"),
    }
}
