//! Rows of comma-separated values, one at a time and of bounded length.

use super::{EventColumn, Format, FormatError};
use csv_core::{ReadRecordResult, Reader};
use std::io::BufRead;

/// The longest row that is read, in bytes: a call site of some hundred frames.
pub(super) const MAX_ROW: usize = 256 << 10;

/// The most columns that are looked at.
const MAX_CELLS: usize = 64;

/// How much of a wrong cell an error repeats, in characters.
const SHOWN: usize = 32;

pub(super) struct Rows<'a> {
    format: Format,
    input: Box<dyn BufRead + 'a>,
    parser: Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// A row: its cells, and where it is.
#[derive(Clone, Copy)]
pub(super) struct TableRow<'a> {
    text: &'a [u8],
    ends: &'a [usize],
    pub(super) line: u64,
}

impl<'a> Rows<'a> {
    pub(super) fn new(format: Format, input: Box<dyn BufRead + 'a>) -> Self {
        Self { format, input, parser: Reader::new(), text: vec![0; 4096], ends: vec![0; MAX_CELLS] }
    }

    /// The next row; `None` at the end. Blank lines are left out.
    pub(super) fn next(&mut self) -> Result<Option<TableRow<'_>>, FormatError> {
        let (mut written, mut cells) = (0, 0);
        loop {
            let input = self.input.fill_buf().map_err(FormatError::read(self.format))?;
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
                    return Err(FormatError::LineTooLong { line: self.parser.line(), limit: MAX_ROW });
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
    /// A cell, without space around it.
    pub(super) fn cell(self, place: usize) -> Option<&'a [u8]> {
        let end = *self.ends.get(place)?;
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(self.text.get(begin..end)?.trim_ascii())
    }

    /// A cell that has something in it.
    pub(super) fn need(self, place: usize, column: EventColumn) -> Result<&'a [u8], FormatError> {
        self.cell(place)
            .filter(|cell| !cell.is_empty())
            .ok_or(FormatError::Missing { line: self.line, column })
    }

    /// A cell as a number of the base that it says, or of the given one.
    pub(super) fn number(self, place: usize, column: EventColumn, base: u32) -> Result<u64, FormatError> {
        let cell = self.need(place, column)?;
        number(cell, base).ok_or_else(|| self.unexpected(column, cell))
    }

    #[cold]
    pub(super) fn unexpected(self, column: EventColumn, cell: &[u8]) -> FormatError {
        let found: String = String::from_utf8_lossy(cell).chars().take(SHOWN).collect();
        FormatError::Unexpected { line: self.line, column, found: found.into() }
    }
}

/// A number without a sign; `0x` before it makes it hexadecimal.
pub(super) fn number(text: &[u8], base: u32) -> Option<u64> {
    let (digits, base) = match text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")) {
        Some(digits) => (digits, 16),
        None => (text, base),
    };
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = char::from(byte).to_digit(base)?;
        number.checked_mul(base.into())?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of a row, and its cells.
    type Found = (u64, Vec<Vec<u8>>);

    fn rows(text: &[u8]) -> Result<Vec<Found>, FormatError> {
        // One byte at a time: the worst a reader may do.
        let mut rows = Rows::new(Format::Csv, Box::new(std::io::BufReader::with_capacity(1, text)));
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push((row.line, (0..).map_while(|place| row.cell(place)).map(<[u8]>::to_vec).collect()));
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
        assert!(matches!(error, FormatError::LineTooLong { line: 1, limit: MAX_ROW }), "{error}");
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
