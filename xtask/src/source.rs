//! Rust source text with comments and literals blanked out.
//!
//! The checks look for words, not for syntax. They only have to distinguish code, comments and literals; a
//! small scanner does that without a parser, and keeps every byte at its position so that line numbers stay
//! right.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A source text in three forms of the same length.
#[derive(Debug)]
pub(crate) struct SourceText {
    /// The original text.
    pub(crate) text: String,
    /// Without comments.
    pub(crate) uncommented: String,
    /// Without comments and without the insides of string and character literals.
    pub(crate) code: String,
}

impl SourceText {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        fs::read_to_string(path).map(Self::new).map_err(Error::io(path))
    }

    /// Scans a text.
    pub(crate) fn new(text: String) -> Self {
        let mut uncommented = text.clone().into_bytes();
        let mut code = uncommented.clone();
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let (end, kind) = token(&text, at);
            match kind {
                SourceToken::Code => {}
                SourceToken::Comment => {
                    blank(&mut uncommented[at..end]);
                    blank(&mut code[at..end]);
                }
                SourceToken::Literal => {
                    let closed = end > at + 1 && matches!(bytes[end - 1], b'"' | b'\'' | b'#');
                    blank(&mut code[at + 1..end - usize::from(closed)]);
                }
            }
            at = end;
        }
        let readable = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { uncommented: readable(uncommented), code: readable(code), text }
    }

    /// Returns the number, from 1, of the line that contains this byte.
    pub(crate) fn line(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
    }

    /// Returns the positions of a whole word in code.
    pub(crate) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.code.match_indices(word).map(|(at, _)| at).filter(move |at| {
            let before = self.code[..*at].chars().next_back();
            let after = self.code[at + word.len()..].chars().next();
            let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !joins(before) && (!word.ends_with(is_word) || !joins(after))
        })
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns all files below a folder for which `keep` returns `true`, sorted; folders for which `enter`
/// returns `false` are skipped.
pub(crate) fn files(
    folder: &Path,
    enter: &dyn Fn(&Path) -> bool,
    keep: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let path = entry.map_err(Error::io(&folder))?.path();
            if path.is_dir() {
                if enter(&path) {
                    folders.push(path);
                }
            } else if keep(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the paths of all tests of a package, such as `mutex::tests::it_locks`, from its source: enough to
/// check that a part of a name selects some.
#[cfg(test)]
pub(crate) fn test_names(package: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(package);
    let mut names = Vec::new();
    for path in ["src", "tests"].iter().flat_map(|part| rust_files(&folder.join(part)).unwrap_or_default()) {
        let text = fs::read_to_string(&path).unwrap();
        let relative = path.strip_prefix(&folder).unwrap().with_extension("");
        let words = relative.iter().skip(1).map(|word| word.to_string_lossy());
        let module = words.filter(|word| word != "mod" && word != "it").collect::<Vec<_>>().join("::");
        for (at, _) in text.match_indices("#[test]") {
            let function = text[at..].split_once("fn ").map_or("", |(_, rest)| rest);
            let end = function.find('(').unwrap_or(0);
            names.push(format!("{module}::{}", &function[..end]));
        }
    }
    names
}

/// Returns all Rust files below a folder.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    files(folder, &|_| true, &|path| path.extension().is_some_and(|extension| extension == "rs"))
}

#[derive(Debug, PartialEq, Eq)]
enum SourceToken {
    Code,
    Comment,
    /// A literal with one delimiter byte at each end (for raw strings: what is between the outermost quotes
    /// and hashes).
    Literal,
}

/// Returns the end and the kind of the token that starts at a byte.
fn token(text: &str, at: usize) -> (usize, SourceToken) {
    let rest = &text.as_bytes()[at..];
    match rest {
        [b'/', b'/', ..] => (at + until(rest, b'\n'), SourceToken::Comment),
        [b'/', b'*', ..] => (at + block_comment(rest), SourceToken::Comment),
        [b'"', ..] => (at + quoted(rest, b'"'), SourceToken::Literal),
        [b'\'', ..] => match character(&text[at..]) {
            Some(length) => (at + length, SourceToken::Literal),
            None => (at + 1, SourceToken::Code), // A lifetime or a label.
        },
        [first, ..] if first.is_ascii_alphanumeric() || *first == b'_' || !first.is_ascii() => {
            let word = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_' || !b.is_ascii());
            let length = word.count();
            match (&rest[..length], raw_string(&rest[length..])) {
                (b"r" | b"br" | b"cr", Some(literal)) => (at + length + literal, SourceToken::Literal),
                _ => (at + length, SourceToken::Code),
            }
        }
        _ => (at + 1, SourceToken::Code),
    }
}

fn until(bytes: &[u8], end: u8) -> usize {
    bytes.iter().position(|byte| *byte == end).unwrap_or(bytes.len())
}

/// Returns the length of a block comment, which may be nested.
fn block_comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the length of a literal in quotes, including both quotes.
fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the length of a character literal, or `None` if the quote begins a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut rest = text[1..].chars();
    match (rest.next()?, rest.next()) {
        ('\\', _) => Some(quoted(text.as_bytes(), b'\'')),
        (one, Some('\'')) => Some(one.len_utf8() + 2),
        _ => None,
    }
}

/// Returns the length of `#"…"#` after the `r`, for any number of hashes, or `None` if this is not a raw
/// string.
fn raw_string(bytes: &[u8]) -> Option<usize> {
    let hashes = bytes.iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let body = &bytes[hashes + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(bytes.len(), |end| hashes + 1 + end + close.len()))
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> SourceText {
        let source = SourceText::new(text.to_owned());
        assert_eq!(source.code.len(), text.len());
        assert_eq!(source.uncommented.len(), text.len());
        assert_eq!(source.code.matches('\n').count(), text.matches('\n').count());
        source
    }

    fn words(text: &str, word: &str) -> Vec<usize> {
        let source = source(text);
        source.words(word).map(|at| source.line(at)).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        assert_eq!(words("// unsafe\n/* unsafe /* unsafe */ unsafe */\nunsafe {}", "unsafe"), [3]);
        assert_eq!(words("let a = \"unsafe \\\" unsafe\"; unsafe {}", "unsafe").len(), 1);
        assert_eq!(words("let a = r#\"unsafe \" unsafe\"#;\nunsafe {}", "unsafe"), [2]);
        assert_eq!(words("let a = br\"\\\"; unsafe {}", "unsafe"), [1]);
        assert_eq!(words("//! unsafe\n/// unsafe\nfn f() {}", "unsafe"), [0_usize; 0]);
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(words("#![forbid(unsafe_code)]\nfn not_unsafe() {}", "unsafe"), [0_usize; 0]);
        assert_eq!(words("r#unsafe_; unsafe{}", "unsafe").len(), 1);
        assert_eq!(words("xdbg!(1); dbg!(2)", "dbg!(").len(), 1);
    }

    #[test]
    fn quotes_of_characters_and_lifetimes_are_told_apart() {
        assert_eq!(words("fn f<'a>(c: char) { c == '\"' } // unsafe\nunsafe fn g() {}", "unsafe"), [2]);
        assert_eq!(words("let q = '\\''; let l: &'static str = \"unsafe\"; unsafe {}", "unsafe").len(), 1);
        assert_eq!(words("'é' == x; 'label: loop { unsafe {} }", "unsafe"), [1]);
    }

    #[test]
    fn unclosed_literals_end_with_the_text() {
        for text in ["\"", "\"abc", "\"é", "r#\"abc", "/* abc", "'\\", "'a", "r#", "\"\\"] {
            let _ = source(text);
        }
    }

    #[test]
    fn strings_survive_the_removal_of_comments() {
        let source = source("f(\"a.b\", X); // f(\"c\")");
        assert!(source.uncommented.contains("\"a.b\""));
        assert!(!source.uncommented.contains("\"c\""));
        assert!(!source.code.contains("a.b"));
    }
}
