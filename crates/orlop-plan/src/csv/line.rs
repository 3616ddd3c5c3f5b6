//! Lines of bounded length, and the fields of a line.

use crate::CsvError;
use std::borrow::Cow;
use std::io::{BufRead, Read as _};

/// The maximum length of a line in a problem's file, in bytes.
pub const MAX_LINE: usize = 1 << 16;

/// A reader of lines.
pub(super) struct Lines<R> {
    reader: R,
    bytes: Vec<u8>,
    /// The number of the last line, from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, bytes: Vec::new(), number: 0 }
    }

    /// Returns the next line that is not blank, and its number. Invalid UTF-8 is replaced: only names can
    /// contain it.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Cow<'_, str>)>, CsvError> {
        const MARK: &[u8] = "\u{feff}".as_bytes();
        loop {
            self.bytes.clear();
            self.number += 1;
            let line = self.number;
            // One byte more than the maximum, and the end of the line.
            let mut bounded = self.reader.by_ref().take(MAX_LINE as u64 + 2);
            let read = bounded.read_until(b'\n', &mut self.bytes);
            if read.map_err(|error| CsvError::Read { line, error })? == 0 {
                return Ok(None);
            }
            if self.bytes.last() == Some(&b'\n') {
                self.bytes.pop();
            }
            if self.bytes.len() > MAX_LINE {
                return Err(CsvError::LineTooLong { line, limit: MAX_LINE });
            }
            if line == 1 && self.bytes.starts_with(MARK) {
                self.bytes.drain(..MARK.len());
            }
            if !self.bytes.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(Some((self.number, String::from_utf8_lossy(&self.bytes))))
    }
}

/// Returns the fields of a line, trimmed; `None` if a quote is misplaced.
pub(super) fn fields(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let (mut fields, mut rest) = (Vec::new(), line);
    loop {
        rest = rest.trim_start();
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, behind) = rest.split_at_checked(end)?;
                (Cow::Borrowed(field.trim_end()), behind)
            }
        };
        fields.push(field);
        let behind = behind.trim_start();
        match behind.strip_prefix(',') {
            Some(next) => rest = next,
            None if behind.is_empty() => return Some(fields),
            None => return None,
        }
    }
}

/// Returns the text up to the closing quote, and the text after it.
fn unquote(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut field = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let (piece, behind) = rest.split_once('"')?;
        if field.is_empty() {
            field = Cow::Borrowed(piece);
        } else {
            field.to_mut().push_str(piece);
        }
        match behind.strip_prefix('"') {
            Some(more) => {
                field.to_mut().push('"');
                rest = more;
            }
            None => return Some((field, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_split_and_trimmed() {
        let split = |line| fields(line).map(|found| found.join("|"));
        let cases = [
            ("a,b", Some("a|b")),
            ("", Some("")),
            (" a b , ,c\r", Some("a b||c")),
            (",", Some("|")),
            (r#""a,b" ,c"#, Some("a,b|c")),
            (r#""say ""hi""",c"#, Some(r#"say "hi"|c"#)),
            (r#""""""""#, Some(r#""""#)),
            (r#""" a",c"#, None),
            (r#"""" a",c"#, Some(r#"" a|c"#)),
            (r#"a"b,c"#, Some(r#"a"b|c"#)),
            (r#""a"b,c"#, None),
            (r#""a,b"#, None),
        ];
        for (line, expected) in cases {
            assert_eq!(split(line).as_deref(), expected, "{line:?}");
        }
    }

    #[test]
    fn too_long_lines_are_refused_without_reading_their_end() {
        let mut lines = Lines::new(std::io::BufReader::new(std::io::repeat(b'7')));
        assert!(matches!(lines.next(), Err(CsvError::LineTooLong { line: 1, .. })));
        let longest = format!("{}\n\n \r\nx", "7".repeat(MAX_LINE));
        let mut lines = Lines::new(longest.as_bytes());
        assert_eq!(lines.next().unwrap().unwrap().1.len(), MAX_LINE);
        assert_eq!(lines.next().unwrap(), Some((4, "x".into())));
        assert!(lines.next().unwrap().is_none());
    }
}
