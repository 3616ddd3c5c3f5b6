//! Formatting tables and numbers.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};
use orlop::lab::cpu_bench::{ReplayReport, ReplaySummary};
use orlop::trace::formats::numbered_device;
use orlop::types::ByteSize;

/// Stands for an unknown value.
const UNKNOWN: &str = "–";

/// Formats reports, a table for each trace, and the means below them.
pub(crate) fn replay(reports: &[ReplayReport], means: &[ReplaySummary]) -> String {
    let mut text = String::new();
    for reports in reports.chunk_by(|one, next| one.trace == next.trace) {
        let mut table = new(
            ["allocator"],
            [
                "oper-\nations",
                "ns/op",
                "cold",
                "peak\nlive",
                "peak\nreserved",
                "ratio",
                "page\nfaults",
                "RSS",
            ],
        );
        fit(&mut table, 0, Some(WIDTH));
        for report in reports {
            table.add_row(row(
                [&*report.allocator],
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
        text += &titled(reports.first().map_or("", |report| &report.trace), &table);
    }
    let Some(first) = means.first() else { return text };
    let mut table = new(["allocator"], ["ns/op", "ratio"]);
    for mean in means {
        let numbers = [nanoseconds(mean.ns_per_op), format!("{:.2}", mean.ratio)];
        table.add_row(row([&*mean.allocator], numbers));
    }
    let title = format!("geometric mean of {}", counted(first.traces as u64, "trace"));
    text + &titled(&title, &table)
}

/// Formats a table with a title above it, and an empty line below.
fn titled(title: &str, table: &Table) -> String {
    format!("{title}\n{}\n\n", table.trim_fmt())
}

/// Creates a table with these column titles, and a line below them.
pub(crate) fn new<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    numbers: impl IntoIterator<Item = &'a str>,
) -> Table {
    with_header(row(texts, numbers.into_iter().map(str::to_owned)))
}

/// The width in characters that tables keep to, unless all is asked for.
pub(crate) const WIDTH: u16 = 80;

/// The number of spaces before an indented table.
pub(crate) const INDENTATION: u16 = 2;

/// Creates a table of numbers with these column titles, and a column of texts after them, which wraps where
/// the table would be wider than `width` characters.
pub(crate) fn new_with_text<'a>(
    numbers: impl IntoIterator<Item = &'a str>,
    text: &str,
    width: Option<u16>,
) -> Table {
    let mut table = with_header(row_with_text(numbers.into_iter().map(str::to_owned), text));
    let text = table.column_count().saturating_sub(1);
    fit(&mut table, text, width);
    table
}

/// Wraps the column `text` where the table would be wider than `width` characters.
pub(crate) fn fit(table: &mut Table, text: usize, width: Option<u16>) {
    let Some(width) = width else { return };
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != text {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// Returns the width that is left beside the indentation.
pub(crate) fn inner(width: Option<u16>) -> Option<u16> {
    width.map(|width| width.saturating_sub(INDENTATION))
}

fn with_header(header: Vec<Cell>) -> Table {
    const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
    let mut table = Table::new();
    table.load_style(STYLE).set_header(header);
    // Two spaces between columns, and none before the first.
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table
}

/// Creates a row of texts, aligned left, and numbers, aligned right.
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

/// Creates a row of numbers, aligned right, and a text that may be long.
pub(crate) fn row_with_text(numbers: impl IntoIterator<Item = String>, text: &str) -> Vec<Cell> {
    let mut cells = row([], numbers);
    cells.push(Cell::new(text));
    cells
}

/// Formats a table with indentation.
pub(crate) fn indented(table: &Table) -> String {
    table.trim_fmt().lines().map(|line| format!("  {line}\n")).collect()
}

/// Formats a difference with its sign; empty for no difference.
pub(crate) fn more(growth: i128, unit: fn(u64) -> String) -> String {
    let size = || unit(u64::try_from(growth.unsigned_abs()).unwrap_or(u64::MAX));
    match growth {
        0 => String::new(),
        growth if growth < 0 => format!("−{}", size()),
        _ => format!("+{}", size()),
    }
}

/// Formats a fraction from 0 to 1 in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Formats the time between two events.
pub(crate) fn duration(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns if ns < 120e9 => format!("{:.2} s", ns / 1e9),
        ns => format!("{:.1} min", ns / 60e9),
    }
}

/// Formats a device as `--device` takes it: GPUs by number, others by name.
pub(crate) fn device(number: u32) -> String {
    match numbered_device(number).filter(|device| !device.is_cuda()) {
        Some(device) => device.to_string(),
        None => number.to_string(),
    }
}

/// Replaces control characters in untrusted text, which a terminal would interpret.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// Wraps each line of sentences to [`WIDTH`] characters; what follows its first part is indented by two more.
/// Numbers stay with their units, the name of this program with its command, and what is in a shell's quotes
/// together. A word that is longer, such as a path, stays whole.
pub(crate) fn wrapped(sentences: &str) -> String {
    let mut text = String::new();
    for line in sentences.lines() {
        let sentence = line.trim_start_matches(' ');
        let indentation = line.len() - sentence.len();
        text += &" ".repeat(indentation);
        let mut width = indentation;
        let words: Vec<&str> = sentence.split(' ').collect();
        let mut rest = &words[..];
        while !rest.is_empty() {
            let (together, others) = rest.split_at(words_together(rest));
            rest = others;
            let part = together.join(" ");
            let length = part.chars().count();
            if width > indentation && width + 1 + length > usize::from(WIDTH) {
                width = indentation + usize::from(INDENTATION);
                text = text + "\n" + &" ".repeat(width);
            } else if width > indentation {
                text.push(' ');
                width += 1;
            }
            text += &part;
            width += length;
        }
        text.push('\n');
    }
    text
}

/// Returns the number of the first words that stay in one line. There is at least one.
fn words_together(words: &[&str]) -> usize {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches([',', ';', ':', '.', ')']));
    match words {
        ["orlop", _, rest @ ..] => {
            // A shell takes the command with its file in one line only.
            let with_file = 2 + argument_words(rest);
            let length: usize = words[..with_file].iter().map(|word| word.chars().count() + 1).sum();
            if length <= usize::from(WIDTH - INDENTATION) { with_file } else { 2 }
        }
        [_, next, ..] if is_unit(next) => 2,
        _ => argument_words(words).max(1),
    }
}

/// Returns the number of words of the argument that comes first: more than one only if it is in the quotes of
/// a shell.
fn argument_words(words: &[&str]) -> usize {
    match words {
        [first, ..] if first.starts_with('\'') => quoted_words(words).unwrap_or(1),
        _ => words.len().min(1),
    }
}

/// Returns the number of words until the quotes that the first begins with are closed, as a shell reads them.
fn quoted_words(words: &[&str]) -> Option<usize> {
    let (mut is_open, mut is_escaped) = (false, false);
    let closes = words.iter().position(|word| {
        for letter in word.chars() {
            match letter {
                _ if is_escaped => is_escaped = false,
                '\'' => is_open = !is_open,
                '\\' => is_escaped = !is_open,
                _ => {}
            }
        }
        !is_open
    });
    closes.map(|last| last + 1)
}

/// Formats a number with commas between thousands.
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

/// Formats a number of things: `1 block`, `2,048 blocks`. The plural ends with `s`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats nanoseconds with three digits.
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
    fn sentences_are_wrapped_between_words() {
        let path = "p".repeat(90);
        let sentence = format!("{} {} end", "a".repeat(40), "b".repeat(39));
        assert_eq!(wrapped(&format!("{sentence}\nshort\n")), format!("{}\n  end\nshort\n", &sentence[..80]));
        assert_eq!(
            wrapped(&format!("orlop report {path} shows")),
            format!("orlop report\n  {path}\n  shows\n")
        );
        let named = "orlop report 'a b'\\''s c.pickle' shows";
        let sentence = format!("{} {named}", "a".repeat(50));
        assert_eq!(
            wrapped(&sentence),
            format!("{}\n  orlop report 'a b'\\''s c.pickle' shows\n", "a".repeat(50))
        );
        assert_eq!(wrapped("'tis not closed"), "'tis not closed\n");
        let sentence = format!("  {} 4.94 GiB; orlop info a", "a".repeat(70));
        assert_eq!(wrapped(&sentence), format!("  {}\n    4.94 GiB; orlop info a\n", "a".repeat(70)));
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(
            [0, 999, 1000, 51_354, 1_000_000].map(count),
            ["0", "999", "1,000", "51,354", "1,000,000"]
        );
        assert_eq!(
            [0, 1, 2000].map(|blocks| counted(blocks, "block")),
            ["0 blocks", "1 block", "2,000 blocks"]
        );
        assert_eq!([1.234, 12.34, 1234.5].map(nanoseconds), ["1.23", "12.3", "1234"]);
        assert_eq!(known(None), "–");
        assert_eq!(
            [7, 1500, 2_500_000, 3 << 30, 1 << 40].map(duration),
            ["7 ns", "1.5 µs", "2.5 ms", "3.22 s", "18.3 min"]
        );
        assert_eq!([0, 7, 1 << 16].map(device), ["0", "7", "cpu"]);
        assert_eq!([-2048, 0, 512].map(|growth| more(growth, bytes)), ["−2.00 KiB", "", "+512 B"]);
        assert_eq!((percent(0.1234), plain("a\u{1b}b")), ("12.3%".to_owned(), "a?b".to_owned()));
    }
}
