//! Opening input files, and checking that an output file is not one of them.

use crate::{Result, TraceError};
use std::fs::{self, File};
use std::path::Path;

/// Returns an error if `output` is one of the inputs under another name: a link, a hard link, or another
/// spelling of the path. Terminals and pipes are never refused.
///
/// ```
/// use orlop_trace::check_output;
/// use std::path::Path;
///
/// let input = Path::new(file!());
/// assert!(check_output(Path::new("/nowhere/out.csv"), [input]).is_ok());
/// ```
///
/// # Errors
///
/// [`TraceError::OutputIsInput`].
pub fn check_output<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let same = inputs.into_iter().find(|input| is_same_file(output, input));
    let refused = |input: &Path| TraceError::OutputIsInput { output: output.into(), input: input.into() };
    same.map_or(Ok(()), |input| Err(refused(input)))
}

/// Opens and parses a file. Errors have its path.
pub(crate) fn read_file<T>(path: &Path, parse: impl FnOnce(File) -> Result<T>) -> Result<T> {
    let file = File::open(path).map_err(|error| TraceError::Open { path: path.to_owned(), error })?;
    parse(file).map_err(|error| error.in_file(path))
}

#[cfg(unix)]
fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) else { return false };
    one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same_file(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::canonicalize(one), fs::canonicalize(other)) else { return false };
    one.is_file() && one == other
}
