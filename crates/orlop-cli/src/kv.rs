//! `orlop kv`.

use crate::arguments::bytes;
use crate::inputs::DASH;
use crate::output::{self, Failures};
use crate::table::{self, count, percent};
use clap::Args;
use orlop::lab::kv::{KvModel, KvReport, Occupancy, RequestTrace, Reuse};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct KvArguments {
    /// The requests: JSON lines as in Mooncake's traces, or a table with a header and the columns arrival_ms,
    /// input_tokens and output_tokens (or those of Azure's traces), plain or gzip; - for the standard input
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,

    /// The model: a name, the config.json of a model, or a JSON file with its layer groups; an unknown name
    /// lists the known ones
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) model: String,

    /// The bytes of the pool
    #[arg(long, value_name = "BYTES", default_value = "80GiB", value_parser = bytes)]
    pub(crate) pool: u64,

    /// Shows all columns: causes of misses, refused requests
    #[arg(long)]
    pub(crate) wide: bool,

    /// Prints JSON, an object, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs `orlop kv`.
pub(crate) fn run(arguments: &KvArguments) -> Result<(), Failures> {
    let file = arguments.trace.display();
    let trace = match arguments.trace == Path::new(DASH) {
        true => RequestTrace::read_from(io::stdin()),
        false => RequestTrace::read(&arguments.trace),
    };
    let trace = trace.map_err(|error| format!("{file}: {error}"))?;
    let model = KvModel::find(&arguments.model).map_err(|error| error.to_string())?;
    let report =
        KvReport::of(&trace, &model, arguments.pool).map_err(|error| format!("{}: {error}", model.name))?;
    if arguments.json { output::print_json(&report) } else { output::print(&text(arguments, &report)) }
}

fn text(arguments: &KvArguments, report: &KvReport) -> String {
    let mut out = table::wrapped(&report.verdict().join("\n"));
    // Writing to a string cannot fail.
    let _ = write_load(&mut out, arguments, report);
    if !report.rows.is_empty() {
        let _ = write!(out, "\n{}\n", reuse_table(arguments.wide, report).trim_fmt());
    }
    out
}

fn write_load(out: &mut String, arguments: &KvArguments, report: &KvReport) -> std::fmt::Result {
    let Occupancy { peak_held, peak_needed, peak_tokens, max_delay_ms, .. } = report.occupancy;
    let trace = arguments.trace.display();
    writeln!(out, "\n{trace}, {}", report.model)?;
    let (input, output) = (count(report.prompt_tokens), count(report.output_tokens));
    let requests = table::counted(report.requests, "request");
    writeln!(out, "  {requests}: {input} tokens in, {output} out")?;
    let large = table::bytes(report.large_page_bytes);
    writeln!(out, "  pool                 {} in large pages of {large}", table::bytes(report.pool_bytes))?;
    writeln!(out, "  at the peak          {} tokens of running requests", count(peak_tokens))?;
    writeln!(out, "  longest wait         {}", table::duration(max_delay_ms.saturating_mul(1_000_000)))?;
    writeln!(out, "\npeak of bytes, without reuse, for the same running requests")?;
    let ratio = |bytes: u64| bytes as f64 / peak_needed.max(1) as f64;
    let mut row = |name: &str, bytes: u64| {
        writeln!(out, "  {name:<20} {:>10}  {:.3} of need", table::bytes(bytes), ratio(bytes))
    };
    row("needed", peak_needed)?;
    row("orlop-kv", peak_held)?;
    report.occupancy.schemes.iter().try_for_each(|scheme| row(scheme.scheme, scheme.bytes))
}

fn reuse_table(is_wide: bool, report: &KvReport) -> comfy_table::Table {
    let narrow = ["reused", "new", "evicted", "no checkpoint"];
    let wide = ["excluded", "refused", "requests refused"];
    let titles = narrow.into_iter().chain(wide.into_iter().filter(|_| is_wide));
    let mut table = table::new(["prompt tokens, one request at a time"], titles);
    for row in &report.rows {
        let reuse: &Reuse = &row.reuse;
        let Reuse { reused, new, evicted, no_checkpoint, excluded, refused, .. } = *reuse;
        let shares = [reused, new, evicted, no_checkpoint].map(|tokens| percent(reuse.share(tokens)));
        let others = [excluded, refused].map(|tokens| percent(reuse.share(tokens)));
        let others = others.into_iter().chain([count(reuse.refused_requests)]);
        table.add_row(table::row([&*row.name], shares.into_iter().chain(others.filter(|_| is_wide))));
    }
    table
}
