//! Tables for people.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use orlop::core::ByteSize;
use orlop::trace::{ReplayReport, Summary};

/// What stands where nothing is known.
const UNKNOWN: &str = "–";

/// The reports, a trace's together, and below them the means.
pub(crate) fn replay(reports: &[ReplayReport], means: &[Summary]) -> String {
    let mut table = new(
        ["trace", "allocator"],
        ["operations", "ns/op", "cold", "peak live", "peak reserved", "ratio", "page faults", "RSS"],
    );
    let mut last = None;
    for report in reports {
        // A trace's name stands in its first line only.
        let name = if last == Some(&report.trace) { "" } else { &report.trace };
        last = Some(&report.trace);
        table.add_row(row(
            [name, &report.allocator],
            [
                count(report.operations as u64),
                nanoseconds(report.ns_per_op),
                known(report.cold_ns_per_op.map(nanoseconds)),
                bytes(report.peak_live),
                bytes(report.peak_reserved),
                format!("{:.2}", report.ratio),
                known(report.page_faults.map(count)),
                known(report.rss.map(bytes)),
            ],
        ));
    }
    let mut title = "geometric mean";
    for mean in means {
        table.add_row(row(
            [title, &mean.allocator],
            [
                format!("{} traces", mean.traces),
                nanoseconds(mean.ns_per_op),
                String::new(),
                String::new(),
                String::new(),
                format!("{:.2}", mean.ratio),
                String::new(),
                String::new(),
            ],
        ));
        title = "";
    }
    format!("{}\n", table.trim_fmt())
}

/// A table of columns with these titles, and a line below them.
pub(crate) fn new<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    numbers: impl IntoIterator<Item = &'a str>,
) -> Table {
    const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
    let mut table = Table::new();
    table.load_style(STYLE).set_header(row(texts, numbers.into_iter().map(str::to_owned)));
    table
}

/// Texts to the left, then numbers to the right.
pub(crate) fn row<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    numbers: impl IntoIterator<Item = String>,
) -> Vec<Cell> {
    let texts = texts.into_iter().map(Cell::new);
    let numbers = numbers.into_iter().map(|number| Cell::new(number).set_alignment(CellAlignment::Right));
    texts.chain(numbers).collect()
}

pub(crate) fn bytes(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// With commas between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three digits.
fn nanoseconds(ns: f64) -> String {
    match ns {
        ns if ns < 10.0 => format!("{ns:.2}"),
        ns if ns < 100.0 => format!("{ns:.1}"),
        ns => format!("{ns:.0}"),
    }
}

fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| UNKNOWN.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(
            [0, 999, 1000, 51_354, 1_000_000].map(count),
            ["0", "999", "1,000", "51,354", "1,000,000"]
        );
        assert_eq!([1.234, 12.34, 1234.5].map(nanoseconds), ["1.23", "12.3", "1234"]);
        assert_eq!(known(None), "–");
    }
}
