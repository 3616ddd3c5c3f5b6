//! The files of a folder, and the order of names.

use crate::{Result, TraceError};
use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum depth of folders.
const MAX_DEPTH: usize = 8;

/// Returns the files of a folder and of the folders in it, in the order of their names. Hidden ones are left
/// out, and links to folders are not followed.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    add_files(path, MAX_DEPTH, &mut files)?;
    files.sort_by(|one, other| compare_names(&one.to_string_lossy(), &other.to_string_lossy()));
    Ok(files)
}

fn add_files(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let open = |error| TraceError::Open { path: path.to_owned(), error };
    for entry in fs::read_dir(path).map_err(open)? {
        let entry = entry.map_err(open)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let path = entry.path();
        match entry.file_type().map_err(open)?.is_dir() {
            true if depth > 1 => add_files(&path, depth - 1, files)?,
            false if path.is_file() => files.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// Compares names so that numbers in them are in order: `rank2` precedes `rank10`.
pub(super) fn compare_names(one: &str, other: &str) -> Ordering {
    let parts = |name: &str| -> Vec<(String, u128)> {
        let mut parts: Vec<(String, u128)> = vec![(String::new(), 0)];
        let mut in_number = false;
        for character in name.chars() {
            let digit = character.to_digit(10);
            if digit.is_none() && in_number {
                parts.push((String::new(), 0));
            }
            in_number = digit.is_some();
            if let Some((text, number)) = parts.last_mut() {
                match digit {
                    Some(digit) => *number = number.saturating_mul(10).saturating_add(digit.into()),
                    None => text.push(character),
                }
            }
        }
        parts
    };
    parts(one).cmp(&parts(other)).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let mut names = ["rank10.pickle", "rank2.pickle", "a/9", "a/10", "rank2", "rank02.pickle", "rank"];
        names.sort_by(|one, other| compare_names(one, other));
        let sorted = ["a/9", "a/10", "rank", "rank2", "rank02.pickle", "rank2.pickle", "rank10.pickle"];
        assert_eq!(names, sorted);
    }
}
