//! A parser for the Python literals in headers.
//!
//! A header is the text of a Python dictionary. NumPy lets Python evaluate it; this parser accepts only the
//! literals that can occur: strings without escapes, `True` and `False`, and tuples of non-negative integers.

use super::NpyError;

/// A position in a header.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiteralParser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> LiteralParser<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next byte that is not a space.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r' | b'\x0c') = self.here() {
            self.at += 1;
        }
        self.here()
    }

    fn here(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn expected(&self, expected: &'static str) -> NpyError {
        NpyError::Header { at: self.at, expected }
    }

    /// Skips this byte and the spaces before it, if it is next. Returns whether it was.
    pub(super) fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Skips this byte and the spaces before it, or fails.
    pub(super) fn pass(&mut self, byte: u8, expected: &'static str) -> Result<(), NpyError> {
        if self.skip(byte) { Ok(()) } else { Err(self.expected(expected)) }
    }

    /// Checks that only spaces are left.
    pub(super) fn end(&mut self) -> Result<(), NpyError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// Parses a string in single or double quotes.
    pub(super) fn string(&mut self) -> Result<&'a [u8], NpyError> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else { return Err(self.expected("a string")) };
        self.at += 1;
        let ends = |&byte: &u8| byte == quote || byte == b'\\' || byte == b'\n';
        let length = self.rest().iter().position(ends).unwrap_or(self.rest().len());
        let string = self.rest().get(..length).unwrap_or_default();
        self.at += length;
        if self.here() != Some(quote) {
            return Err(self.expected("the end of a string, without escapes"));
        }
        self.at += 1;
        Ok(string)
    }

    /// Parses `True` or `False`.
    pub(super) fn boolean(&mut self) -> Result<bool, NpyError> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if self.rest().starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("True or False"))
    }

    /// Parses a tuple of non-negative integers.
    pub(super) fn tuple(&mut self) -> Result<Vec<usize>, NpyError> {
        self.pass(b'(', "a tuple")?;
        let mut numbers = Vec::new();
        while !self.skip(b')') {
            numbers.push(self.integer()?);
            let comma = self.skip(b',');
            // A single number in parentheses without a comma is not a tuple.
            if !comma && (numbers.len() == 1 || self.peek() != Some(b')')) {
                return Err(self.expected("a comma"));
            }
        }
        Ok(numbers)
    }

    /// Parses digits, with the `L` that Python 2 appends to long integers.
    fn integer(&mut self) -> Result<usize, NpyError> {
        self.peek();
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit());
        let start = *self;
        let mut value = Some(0_usize);
        for digit in digits {
            self.at += 1;
            value = value.and_then(|value| value.checked_mul(10)?.checked_add(usize::from(digit - b'0')));
        }
        match value {
            _ if self.at == start.at => Err(self.expected("a size")),
            None => Err(start.expected("a size that fits in memory")),
            Some(value) => {
                self.at += usize::from(self.here() == Some(b'L'));
                Ok(value)
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn tuple(text: &str) -> Result<Vec<usize>, NpyError> {
        let mut cursor = LiteralParser::new(text.as_bytes());
        let numbers = cursor.tuple()?;
        cursor.end().map(|()| numbers)
    }

    #[test]
    fn tuples() {
        assert!(tuple("()").unwrap().is_empty());
        assert_eq!(tuple(" ( 3 , )\n").unwrap(), [3]);
        assert_eq!(tuple("(3, 4)").unwrap(), [3, 4]);
        assert_eq!(tuple("(3L,4L,)").unwrap(), [3, 4]);
        assert_eq!(
            tuple("(18446744073709551615,)").ok(),
            usize::try_from(u64::MAX).ok().map(|size| vec![size])
        );
    }

    #[test]
    fn what_is_no_tuple() {
        for (text, at) in [
            ("", 0),
            ("3", 0),
            ("(3)", 2),
            ("(3 4)", 3),
            ("(,)", 1),
            ("(-1,)", 1),
            ("(1.5,)", 2),
            ("(3, 4", 5),
            ("(18446744073709551616,)", 1),
            ("() x", 3),
        ] {
            let error = tuple(text).unwrap_err();
            assert!(matches!(error, NpyError::Header { at: found, .. } if found == at), "{text:?}: {error}");
        }
    }

    #[test]
    fn strings_and_booleans() {
        let mut cursor = LiteralParser::new(b" 'a\" ' \"b'\" True False 'c\\n'");
        assert_eq!(cursor.string().unwrap(), b"a\" ");
        assert_eq!(cursor.string().unwrap(), b"b'");
        assert!(cursor.boolean().unwrap() && !cursor.boolean().unwrap());
        assert!(cursor.string().is_err());
        assert!(LiteralParser::new(b"'open").string().is_err());
        assert!(LiteralParser::new(b"true").boolean().is_err());
    }
}
