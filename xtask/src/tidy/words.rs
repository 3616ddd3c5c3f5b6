//! Words that no file may contain: unfinished code, and names that are valid on one machine only.

use std::path::Path;

use super::Violation;
use crate::source::SourceText;

/// Calls that mark unfinished work.
const UNFINISHED: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];

/// Hosts of package registries: a file that names one is true only where that host is reached. Written in two
/// parts so that this file does not name them either.
const HOSTS: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("static.rust", "-lang.org"),
    concat!("pypi", ".org"),
    concat!("files.python", "hosted.org"),
    concat!("registry.npm", "js.org"),
    concat!("deb.debian", ".org"),
];

/// Parent folders of home folders.
const HOMES: [&str; 4] =
    [concat!("/", "root/"), concat!("/", "home/"), concat!("/", "Users/"), concat!("\\", "Users\\")];

/// Returns `true` if the words of this file are checked. The lock file is cargo's own.
pub(super) fn is_text(path: &Path) -> bool {
    const KINDS: [&str; 12] = ["rs", "toml", "md", "sh", "py", "h", "c", "cpp", "cu", "yml", "yaml", "json"];
    let kind = path.extension().unwrap_or_default().to_string_lossy();
    KINDS.contains(&kind.as_ref()) || path.ends_with(".ci/run")
}

/// Returns the marks of unfinished work in code.
pub(super) fn code(source: &SourceText) -> Vec<Violation> {
    let mut found = Vec::new();
    for word in UNFINISHED {
        let message = format!("`{word}…)` marks unfinished work");
        found.extend(source.words(word).map(|at| Violation::error(source.line(at), &message)));
    }
    found
}

/// Returns the names of registry hosts and of home folders, in code and text.
pub(super) fn text(text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if HOSTS.iter().any(|host| line.contains(host)) {
            found.push(Violation::error(index + 1, "names the host of a package registry"));
        }
        if HOMES.iter().any(|home| names_home(line, home)) {
            found.push(Violation::error(index + 1, "names a folder of one machine"));
        }
    }
    found
}

/// Returns `true` if a line contains a path that starts with a home folder, not just a longer path around the
/// name.
fn names_home(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_work_is_found_in_code_only() {
        let marks = ["to", "do!(); // to", "do!()\n\"db", "g!(1)\"; db", "g!(1)"].concat();
        let found = code(&SourceText::new(marks));
        assert_eq!(found.iter().map(|violation| violation.line).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn machines_are_found_anywhere() {
        for host in HOSTS {
            assert_eq!(
                text(&format!("a\n// see https://{host}/x")).first().map(|v| v.line),
                Some(2),
                "{host}"
            );
        }
        for home in HOMES {
            assert_eq!(text(&format!("path = \"{home}me/x\"")).len(), 1, "{home}");
            assert_eq!(text(&format!("project{home}x and ${{DIR}}{home}x")).len(), 0, "{home}");
        }
        assert_eq!(text("github.com/rust-lang/rust"), []);
    }

    #[test]
    fn only_texts_are_read() {
        assert!(is_text(Path::new(".ci/run")) && is_text(Path::new("a/b.rs")));
        assert!(!is_text(Path::new("Cargo.lock")) && !is_text(Path::new("a.gz")));
    }
}
