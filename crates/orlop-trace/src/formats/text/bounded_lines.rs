//! Reading lines of limited length from plain or compressed bytes.
//!
//! `BufRead::read_line` would store a line of any length; a few kilobytes of gzip can decompress to
//! gigabytes.

use super::MAX_LINE;
use std::io::{self, BufRead, ErrorKind};

/// The result of [`read_line`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// A line; its text was stored without the line end.
    Line,
    /// A comment; its text may not have been stored.
    Comment,
    /// A line of more than [`MAX_LINE`] bytes.
    TooLong,
    /// The end of the input.
    End,
}

/// Reads the next line into `text`.
pub(super) fn read_line(reader: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<LineKind> {
    text.clear();
    let mut begun = false;
    let mut comment = false;
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok(match (begun, comment) {
                (false, _) => LineKind::End,
                (true, true) => LineKind::Comment,
                (true, false) => LineKind::Line,
            });
        }
        if !begun {
            comment = buffer[0] == b'#';
        }
        begun = true;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let length = end.unwrap_or(buffer.len());
        if !comment {
            if text.len() + length > MAX_LINE {
                return Ok(LineKind::TooLong);
            }
            text.extend_from_slice(&buffer[..length]);
        }
        reader.consume(length + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(if comment { LineKind::Comment } else { LineKind::Line });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn lines(bytes: &[u8]) -> Vec<(LineKind, Vec<u8>)> {
        // One byte at a time: the worst case of a reader.
        let mut reader = BufReader::with_capacity(1, bytes);
        let mut found = Vec::new();
        loop {
            let mut text = Vec::new();
            match read_line(&mut reader, &mut text).unwrap() {
                LineKind::End => return found,
                LineKind::TooLong => {
                    found.push((LineKind::TooLong, Vec::new()));
                    return found;
                }
                kind => found.push((kind, text)),
            }
        }
    }

    #[test]
    fn lines_end_with_or_without_a_newline() {
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"a"), [(LineKind::Line, b"a".to_vec())]);
        assert_eq!(
            lines(b"a\n\nb"),
            [b"a".to_vec(), vec![], b"b".to_vec()].map(|text| (LineKind::Line, text))
        );
    }

    #[test]
    fn long_lines_are_refused_and_long_comments_are_not() {
        let long = vec![b'7'; MAX_LINE];
        assert_eq!(lines(&long), [(LineKind::Line, long.clone())]);
        assert_eq!(lines(&[&long[..], b"7"].concat()), [(LineKind::TooLong, vec![])]);
        assert_eq!(lines(&[b"#", &long[..], &long[..]].concat()), [(LineKind::Comment, vec![])]);
    }
}
