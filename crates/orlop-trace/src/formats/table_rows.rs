//! Rows of comma-separated values, one at a time and of limited length.

use super::{EventField, Format};
use crate::{Result, TraceError, input};
use csv_core::{ReadRecordResult, Reader};
use std::io::{BufRead, Read};

/// The maximum length of a row in bytes: a call site of some hundred frames.
pub(super) const MAX_ROW: usize = 256 << 10;

/// The maximum number of columns.
const MAX_CELLS: usize = 64;

pub(super) struct Rows<'a> {
    format: Format,
    input: Box<dyn BufRead + 'a>,
    parser: Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// The cells of a row and its line.
#[derive(Clone, Copy)]
pub(super) struct TableRow<'a> {
    text: &'a [u8],
    ends: &'a [usize],
    pub(super) line: u64,
}

impl<'a> Rows<'a> {
    /// Opens a reader, with decompression if the input is gzip.
    pub(super) fn open(reader: impl Read + 'a, format: Format) -> Result<Self> {
        let input = input::open(reader).map_err(TraceError::read(format))?;
        Ok(Self::new(input, format))
    }

    fn new(input: Box<dyn BufRead + 'a>, format: Format) -> Self {
        Self { format, input, parser: Reader::new(), text: vec![0; 4096], ends: vec![0; MAX_CELLS] }
    }

    /// Returns the next row; `None` at the end. Blank lines are skipped.
    pub(super) fn next(&mut self) -> Result<Option<TableRow<'_>>> {
        let (mut written, mut cells) = (0, 0);
        loop {
            let input = self.input.fill_buf().map_err(TraceError::read(self.format))?;
            let (text, ends) = (&mut self.text[written..], &mut self.ends[cells..]);
            let (result, read, wrote, ended) = self.parser.read_record(input, text, ends);
            let past_line = read.checked_sub(1).is_some_and(|last| input[last] == b'\n');
            self.input.consume(read);
            (written, cells) = (written + wrote, cells + ended);
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.text.len() < MAX_ROW => {
                    let longer = (self.text.len() * 2).min(MAX_ROW);
                    self.text.resize(longer, 0);
                }
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    return Err(TraceError::LineTooLong { line: self.parser.line(), limit: MAX_ROW });
                }
                ReadRecordResult::Record => {
                    let line = self.parser.line() - u64::from(past_line);
                    let row = TableRow { text: &self.text[..written], ends: &self.ends[..cells], line };
                    return Ok(Some(row));
                }
                ReadRecordResult::End => return Ok(None),
            }
        }
    }
}

impl<'a> TableRow<'a> {
    /// Returns a cell without surrounding blanks.
    pub(super) fn cell(self, index: usize) -> Option<&'a [u8]> {
        let end = *self.ends.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(self.text.get(begin..end)?.trim_ascii())
    }

    /// Returns all cells.
    pub(super) fn cells(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.ends.len()).map_while(move |index| self.cell(index))
    }

    /// Returns a cell that must not be empty.
    pub(super) fn need(self, index: usize, field: EventField) -> Result<&'a [u8]> {
        self.cell(index).filter(|cell| !cell.is_empty()).ok_or(TraceError::Missing { line: self.line, field })
    }

    /// Parses a cell as a number of this base, or hexadecimal after `0x`.
    pub(super) fn number(self, index: usize, field: EventField, base: u32) -> Result<u64> {
        let cell = self.need(index, field)?;
        number(cell, base).ok_or_else(|| self.unexpected(field, cell))
    }

    pub(super) fn unexpected(self, field: EventField, cell: &[u8]) -> TraceError {
        TraceError::unexpected(self.line, field, cell)
    }
}

/// Parses an unsigned number of this base, or hexadecimal after `0x`.
pub(super) fn number(text: &[u8], base: u32) -> Option<u64> {
    match text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")) {
        Some(digits) => parse_digits(digits, 16),
        None => parse_digits(text, base),
    }
}

/// Parses a number that consists of at least one digit and nothing else.
pub(super) fn parse_digits(digits: &[u8], base: u32) -> Option<u64> {
    let number = digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = char::from(byte).to_digit(base)?;
        number.checked_mul(base.into())?.checked_add(digit.into())
    });
    number.filter(|_| !digits.is_empty())
}

/// Returns the cells of the first line of a file, without a parser for quotes.
pub(super) fn first_cells(head: &[u8]) -> Vec<&[u8]> {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of a row, and its cells.
    type Found = (u64, Vec<Vec<u8>>);

    fn rows(text: &[u8]) -> Result<Vec<Found>> {
        // One byte at a time: the worst case of a reader.
        let mut rows = Rows::new(Box::new(std::io::BufReader::with_capacity(1, text)), Format::Csv);
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push((row.line, row.cells().map(<[u8]>::to_vec).collect()));
        }
        Ok(found)
    }

    #[test]
    fn cells_are_split_and_lines_counted() {
        let found = rows(b"a, b ,\n\n\"c,\"\"d\",e\r\nf").unwrap();
        let cells = |cells: &[&str]| cells.iter().map(|cell| cell.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(found[0], (1, cells(&["a", "b", ""])));
        assert_eq!(found[1].1, cells(&["c,\"d", "e"]));
        assert_eq!(found[2].1, cells(&["f"]));
        assert_eq!(rows(b"").unwrap(), []);
    }

    #[test]
    fn long_rows_are_refused() {
        let long = vec![b'x'; MAX_ROW - 1];
        assert_eq!(rows(&long).unwrap().len(), 1);
        let error = rows(&[&long[..], b"xx\n"].concat()).unwrap_err();
        assert!(matches!(error, TraceError::LineTooLong { line: 1, limit: MAX_ROW }), "{error}");
        assert!(rows(&b",".repeat(MAX_CELLS)).is_err());
    }

    #[test]
    fn numbers_have_digits_only() {
        assert_eq!(number(b"0x10", 10), Some(16));
        assert_eq!(number(b"ff", 16), Some(255));
        assert_eq!(number(b"18446744073709551615", 10), Some(u64::MAX));
        for none in ["", "0x", "+1", "-1", "1.5", "18446744073709551616", "ff"] {
            assert_eq!(number(none.as_bytes(), 10), None, "{none}");
        }
    }
}
