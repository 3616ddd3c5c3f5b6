//! Parsing of one line.

use super::Operation;
use crate::formats::EventField;
use crate::formats::table_rows::parse_digits;
use crate::{Result, TraceError};
use orlop_core::StreamId;

/// Parses the operation on a line; `None` if the line is blank or a comment.
pub(super) fn parse(text: &[u8], line: u64) -> Result<Option<Operation>> {
    let text = text.trim_ascii();
    if text.is_empty() || text[0] == b'#' {
        return Ok(None);
    }
    let mut fields = LineFields { rest: Some(text), line };
    let kind = fields.text(EventField::Operation)?;
    let operation = match kind {
        b"a" => {
            let id = fields.number(EventField::Id)?;
            let bytes = fields.number(EventField::Bytes)?;
            let stream = if fields.rest.is_some() { fields.number(EventField::Stream)? } else { 0 };
            Operation::Allocate { id, bytes, stream: StreamId::from_raw(stream) }
        }
        b"f" => Operation::Free { id: fields.number(EventField::Id)? },
        _ => return Err(TraceError::unexpected(line, EventField::Operation, kind)),
    };
    match fields.rest {
        Some(rest) => Err(TraceError::unexpected(line, EventField::End, rest)),
        None => Ok(Some(operation)),
    }
}

struct LineFields<'a> {
    /// The bytes after the last comma; `None` after the last field.
    rest: Option<&'a [u8]>,
    line: u64,
}

impl<'a> LineFields<'a> {
    fn text(&mut self, field: EventField) -> Result<&'a [u8]> {
        let rest = self.rest.take().ok_or(TraceError::Missing { line: self.line, field })?;
        let text = match rest.iter().position(|&byte| byte == b',') {
            Some(comma) => {
                self.rest = Some(&rest[comma + 1..]);
                &rest[..comma]
            }
            None => rest,
        };
        let text = text.trim_ascii();
        if text.is_empty() { Err(TraceError::Missing { line: self.line, field }) } else { Ok(text) }
    }

    fn number(&mut self, field: EventField) -> Result<u64> {
        let text = self.text(field)?;
        parse_digits(text, 10).ok_or_else(|| TraceError::unexpected(self.line, field, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(id: u64, bytes: u64, stream: u64) -> Operation {
        Operation::Allocate { id, bytes, stream: StreamId::from_raw(stream) }
    }

    #[test]
    fn operations_round_trip() {
        for (text, operation) in [
            ("a,0,64", allocate(0, 64, 0)),
            ("a,3,0,18446744073709551615", allocate(3, 0, u64::MAX)),
            ("f,12", Operation::Free { id: 12 }),
        ] {
            assert_eq!(parse(text.as_bytes(), 1).unwrap(), Some(operation));
            assert_eq!(operation.to_string(), text);
        }
        assert_eq!(parse(b" a , 1 , 2 \r", 1).unwrap(), Some(allocate(1, 2, 0)));
        for nothing in ["", " \t\r", "# a,0,1", "  #"] {
            assert_eq!(parse(nothing.as_bytes(), 1).unwrap(), None);
        }
    }

    #[test]
    fn a_wrong_field_is_named_with_its_line_and_what_was_expected() {
        for (text, message) in [
            ("b,0,64", "the operation cannot be \"b\", expected `a` (allocate) or `f` (free)"),
            (",0,64", "the operation is missing, expected `a` (allocate) or `f` (free)"),
            ("a", "the id is missing, expected a whole number below 2^64"),
            ("a,,64", "the id is missing, expected a whole number below 2^64"),
            ("a,0", "the size is missing, expected a whole number below 2^64"),
            ("a,0,-1", "the size cannot be \"-1\", expected a whole number below 2^64"),
            ("a,0,+1", "the size cannot be \"+1\", expected a whole number below 2^64"),
            ("a,0,1.5", "the size cannot be \"1.5\", expected a whole number below 2^64"),
            (
                "a,0,18446744073709551616",
                "the size cannot be \"18446744073709551616\", expected a whole number below 2^64",
            ),
            ("a,0,1,", "the stream is missing, expected a whole number below 2^64"),
            ("a,0,1,x", "the stream cannot be \"x\", expected a whole number below 2^64"),
            ("a,0,1,2,3", "the rest cannot be \"3\", expected the end of the line"),
            ("f,0,64", "the rest cannot be \"64\", expected the end of the line"),
            ("f,\u{ff}", "the id cannot be \"\u{ff}\", expected a whole number below 2^64"),
        ] {
            let error = parse(text.as_bytes(), 9).unwrap_err();
            assert_eq!(error.to_string(), format!("line 9: {message}"));
        }
    }
}
