//! The width of lines: how many of a crate are wider than the style allows.
//!
//! A single warning for each crate: the style came after much of the text, which is brought to it as it is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Violation;
use crate::workspace::Member;

/// The most columns of a line.
const COLUMNS: usize = 110;

/// Wide lines by the folder of the crate.
#[derive(Debug, Default)]
pub(super) struct WideLines {
    by_folder: BTreeMap<PathBuf, usize>,
}

impl WideLines {
    /// Counts the lines of a file of Rust or Markdown; other files have no limit.
    pub(super) fn add(&mut self, root: &Path, members: &[Member], path: &Path, text: &str) {
        if path.extension().is_some_and(|kind| kind == "rs" || kind == "md") {
            let folders = members.iter().map(Member::folder).filter(|folder| path.starts_with(folder));
            // What belongs to no crate belongs to the workspace.
            let folder = folders.max_by_key(|folder| folder.components().count()).unwrap_or(root);
            *self.by_folder.entry(folder.to_path_buf()).or_default() += wide(text);
        }
    }

    /// The manifest of each crate that has wide lines, and the warning.
    pub(super) fn warnings(self) -> impl Iterator<Item = (PathBuf, Violation)> {
        self.by_folder.into_iter().filter(|(_, lines)| *lines > 0).map(|(folder, lines)| {
            let message = format!("{lines} lines of more than {COLUMNS} columns");
            (folder.join("Cargo.toml"), Violation::warning(1, message))
        })
    }
}

fn wide(text: &str) -> usize {
    text.lines().filter(|line| line.chars().count() > COLUMNS).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters() {
        assert_eq!(wide(&"x".repeat(110)), 0);
        assert_eq!(wide(&"é".repeat(110)), 0);
        assert_eq!(wide(&format!("{0}\n{0}\nx\n", "é".repeat(111))), 2);
    }

    #[test]
    fn one_warning_counts_all_files_of_a_folder() {
        let (root, line) = (Path::new("/w"), "x".repeat(111));
        let mut lines = WideLines::default();
        for name in ["/w/a.rs", "/w/docs/b.md", "/w/c.toml"] {
            lines.add(root, &[], Path::new(name), &line);
        }
        let warnings: Vec<_> = lines.warnings().collect();
        let expected = Violation::warning(1, "2 lines of more than 110 columns");
        assert_eq!(warnings, [(PathBuf::from("/w/Cargo.toml"), expected)]);
    }

    #[test]
    fn narrow_files_warn_of_nothing() {
        let mut lines = WideLines::default();
        lines.add(Path::new("/w"), &[], Path::new("/w/a.rs"), "x\n");
        assert_eq!(lines.warnings().count(), 0);
    }
}
