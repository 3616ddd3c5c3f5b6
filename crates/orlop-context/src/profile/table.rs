//! Text tables with columns as wide as their widest cell.

use std::fmt;

/// Rows of cells below a row of names.
pub(super) struct Table<const COLUMNS: usize> {
    left: &'static [usize],
    rows: Vec<[String; COLUMNS]>,
    hidden: Option<usize>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// Creates a table with these column names. The columns in `left` are aligned left, the others right.
    pub(super) fn new(left: &'static [usize], names: [&str; COLUMNS]) -> Self {
        Self { left, rows: vec![names.map(str::to_owned)], hidden: None }
    }

    /// Leaves a column out.
    pub(super) fn hide(&mut self, column: usize) {
        self.hidden = Some(column);
    }

    pub(super) fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            let cells = row.iter().zip(&widths).enumerate();
            for (column, (cell, &width)) in cells.filter(|(column, _)| Some(*column) != self.hidden) {
                let gap = if column > 0 { "  " } else { "" };
                line += &match self.left.contains(&column) {
                    true => format!("{gap}{cell:<width$}"),
                    false => format!("{gap}{cell:>width$}"),
                };
            }
            let end = if index > 0 { "\n" } else { "" };
            write!(f, "{end}{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn columns_end_where_they_should() {
        let mut table = Table::new(&[0], ["name", "size"]);
        table.row(["a".into(), "1 B".into()]);
        table.row(["· längst".into(), "12 KiB".into()]);
        table.row(["b".into(), String::new()]);
        assert_eq!(table.to_string(), "name        size\na            1 B\n· längst  12 KiB\nb");
    }
}
