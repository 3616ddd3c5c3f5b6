//! [`NoSuchTensor`]: a name that a file does not have.

use std::fmt;
use std::path::Path;

/// A name that no tensor of a file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSuchTensor {
    /// The requested name.
    pub name: Box<str>,
    /// The file, unless the tensors came from memory.
    pub path: Option<Box<Path>>,
    /// The most similar name in the file, if one is similar.
    pub nearest: Option<Box<str>>,
}

/// The length of names up to which they are compared, in bytes. The names of models are shorter.
const MAX_LEN: usize = 256;

impl NoSuchTensor {
    /// Creates the error for a name that is not among `names`.
    pub(crate) fn among<'a>(
        names: impl Iterator<Item = &'a str>,
        name: &str,
        path: Option<&Path>,
    ) -> Box<Self> {
        let nearest = nearest(name, names).map(Box::from);
        Box::new(Self { name: name.into(), path: path.map(Box::from), nearest })
    }
}

impl fmt::Display for NoSuchTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, path, nearest } = self;
        match path {
            Some(path) => write!(f, "{} has no tensor `{name}`", path.display())?,
            None => write!(f, "there is no tensor `{name}`")?,
        }
        match nearest {
            Some(nearest) => write!(f, "; the nearest name is `{nearest}`"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NoSuchTensor {}

/// Returns the name with the fewest edits to `name`, if they are at most a third of its length; of several,
/// the first.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_LEN {
        return None;
    }
    let limit = name.len() / 3;
    let close = names.filter(|other| other.len().abs_diff(name.len()) <= limit);
    let (edits, nearest) = close
        .map(|other| (edits(name.as_bytes(), other.as_bytes()), other))
        .min_by_key(|&(edits, _)| edits)?;
    (edits <= limit).then_some(nearest)
}

/// Returns the Levenshtein distance: the number of bytes that have to be inserted, removed or replaced.
fn edits(from: &[u8], to: &[u8]) -> usize {
    // The distances of the prefixes of `to` from the present prefix of `from`.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, byte) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let names = ["layers.0.weight", "layers.1.weight", "layers.10.weight", "bias"];
        let nearest = |name| nearest(name, names.into_iter());
        assert_eq!(nearest("layers.1.wieght"), Some("layers.1.weight"));
        assert_eq!(nearest("layer.10.weight"), Some("layers.10.weight"));
        assert_eq!(nearest("bais"), None, "two of four letters");
        assert_eq!(nearest("biass"), Some("bias"));
        assert_eq!((nearest(""), nearest("head")), (None, None));
        assert_eq!(nearest(&"x".repeat(300)), None);
    }

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(
                (edits(from.as_bytes(), to.as_bytes()), edits(to.as_bytes(), from.as_bytes())),
                (count, count)
            );
        }
    }
}
