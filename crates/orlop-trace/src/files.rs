//! Files that are read and files that are written: whether they are the same.

use crate::{Result, TraceError};
use std::fs;
use std::path::Path;

/// Refuses an output that is one of the inputs, under whatever name: through a link, as a hard link, or spelt
/// otherwise. What is no file (a terminal, a pipe) loses nothing.
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
