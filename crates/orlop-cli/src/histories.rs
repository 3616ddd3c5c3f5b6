//! The histories and profiles that were named.

use orlop::trace::history::History;
use orlop::trace::lab::Profile;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// How far into a file the mark of a profile is looked for: it is its first field.
const HEAD: usize = 256;

/// The first field of a profile, which no other file has.
const MARK: &str = "\"orlop_profile\"";

/// Reads a history.
pub(crate) fn read(path: &Path) -> Result<History, String> {
    History::read(path).map_err(|error| error.to_string())
}

/// A profile that was written; `None` if the file is something else.
pub(crate) fn profile(path: &Path) -> Result<Option<Profile>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let begins = head(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    if !String::from_utf8_lossy(&begins).contains(MARK) {
        return Ok(None);
    }
    let file = File::open(path).map_err(|error| wrong(&format!("cannot be opened: {error}")))?;
    let profile: Profile = serde_json::from_reader(BufReader::new(file))
        .map_err(|error| wrong(&format!("is no baseline: {error}")))?;
    if profile.is_known() {
        Ok(Some(profile))
    } else {
        Err(wrong(&"was written by another version of orlop"))
    }
}

/// A profile that was written, or that of a history, with names of so many lines.
pub(crate) fn profile_of_either(path: &Path, depth: usize) -> Result<Profile, String> {
    match profile(path)? {
        Some(profile) => Ok(profile),
        None => Ok(Profile::of(&read(path)?, depth)),
    }
}

fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}
