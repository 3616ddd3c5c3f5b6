//! JSON with a limit on the length of strings and numbers.
//!
//! The parser holds a string as a whole, and a few kilobytes of gzip could expand to gigabytes of string.
//! This reader fails first. Numbers, names and blanks between them have the same limit.

use std::io::{self, Read};

/// The maximum length of a token in bytes. Traces with call stacks and configurations have texts of some
/// hundred kilobytes.
pub(super) const MAX_TOKEN: usize = 16 << 20;

/// A reader that measures the length of the tokens that pass through.
pub(super) struct BoundedJson<R> {
    reader: R,
    in_text: bool,
    after_backslash: bool,
    length: usize,
}

impl<R: Read> BoundedJson<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, in_text: false, after_backslash: false, length: 0 }
    }

    fn look(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            self.length += 1;
            if self.in_text {
                match byte {
                    _ if self.after_backslash => self.after_backslash = false,
                    b'\\' => self.after_backslash = true,
                    b'"' => (self.in_text, self.length) = (false, 0),
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => (self.in_text, self.length) = (true, 0),
                    b',' | b':' | b'[' | b']' | b'{' | b'}' => self.length = 0,
                    _ => {}
                }
            }
            if self.length > MAX_TOKEN {
                return false;
            }
        }
        true
    }
}

impl<R: Read> Read for BoundedJson<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(bytes)?;
        if self.look(bytes.get(..count).unwrap_or_default()) {
            Ok(count)
        } else {
            Err(io::Error::from(io::ErrorKind::FileTooLarge))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(json: impl Read) -> bool {
        io::copy(&mut BoundedJson::new(json), &mut io::sink()).is_ok()
    }

    #[test]
    fn long_tokens_are_refused() {
        let long = MAX_TOKEN as u64;
        assert!(passes(&b"[\"a\\\"b\", 1.5]"[..]));
        let text = |length| passes(b"\"".chain(io::repeat(b'x').take(length)).chain(&b"\""[..]));
        assert!(text(long) && !text(long + 1));
        // The text does not end in here: each quote is escaped, and each backslash has its quote.
        let quotes = b"\\\"".repeat(MAX_TOKEN / 2 + 1);
        assert!(!passes(b"\"".chain(&quotes[..])));
        assert!(!passes(b"[".chain(io::repeat(b'1').take(long + 1))));
        assert!(passes(io::repeat(b'[').take(2 * long)));
    }
}
