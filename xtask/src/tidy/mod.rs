//! `tidy`: the project's rules that the compiler does not check.
//!
//! It prints one line for each violation, `path:line: message`. Every rule is a function from a file or a
//! crate to violations, so that its tests need no files.

mod facade;
mod layers;
mod names;
mod packages;
mod phrases;
mod public_items;
mod rules;
mod width;
mod words;

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::report::Outcome;
use crate::shell::Shell;
use crate::source::{SourceText, files};
use crate::workspace::{Member, members};
use public_items::PublicItems;

/// A violated rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    line: usize,
    message: String,
    /// Reported, but not a failure.
    warning: bool,
}

impl Violation {
    fn error(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into(), warning: false }
    }
}

/// Checks the whole workspace.
pub(crate) fn run(shell: &Shell) -> Result<Outcome> {
    let members = members(shell)?;
    let mut found = TidyReport::default();
    for member in &members {
        let manifest = member.folder().join("Cargo.toml");
        found.add(shell.root(), &manifest, layers::check(member));
        if member.name == facade::FACADE {
            found.add(shell.root(), &manifest, facade::check(member, &members));
        }
        found.add(shell.root(), &manifest, packages::manifest(member, &members));
        found.add(shell.root(), &member.folder().join("README.md"), readme(member));
    }
    let (mut types, mut public) = (Vec::new(), PublicItems::default());
    for path in files(shell.root(), &is_ours, &|path| words::is_text(path))? {
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        found.add(shell.root(), &path, words::text(&text));
        let name = relative(shell.root(), &path);
        found.add(shell.root(), &path, width::check(&name, &text));
        found.add(shell.root(), &path, phrases::check(&text));
        if path.extension().is_some_and(|extension| extension == "rs") {
            let source = SourceText::new(text);
            found.add(shell.root(), &path, rules::all(&name, &source));
            found.add(shell.root(), &path, words::code(&source));
            let owner = members.iter().find(|member| path.starts_with(member.folder().join("src")));
            if let Some(owner) = owner {
                if owner.is_published() && is_root(&name) {
                    found.add(shell.root(), &path, packages::root(&source.text));
                }
                types.extend(names::of_member(owner, &name, &source));
                public.add(owner, &source);
            }
        }
    }
    for (path, violation) in names::check(types) {
        found.add(shell.root(), Path::new(&path), vec![violation]);
    }
    println!("{}", public.line());
    found.outcome()
}

#[derive(Debug, Default)]
struct TidyReport {
    errors: usize,
    warnings: usize,
}

impl TidyReport {
    fn add(&mut self, root: &Path, path: &Path, violations: Vec<Violation>) {
        for Violation { line, message, warning } in violations {
            let kind = if warning { "warning: " } else { "" };
            println!("{}:{line}: {kind}{message}", relative(root, path));
            *(if warning { &mut self.warnings } else { &mut self.errors }) += 1;
        }
    }

    fn outcome(self) -> Result<Outcome> {
        match (self.errors, self.warnings) {
            (0, 0) => Ok(Outcome::passed()),
            (0, warnings) => Ok(Outcome::Passed(format!("{warnings} warnings"))),
            (count, _) => Err(Error::Found { count, what: "violations" }),
        }
    }
}

/// Returns the path relative to the root, with slashes.
fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.to_string_lossy().replace('\\', "/")
}

/// Returns `true` for folders with sources, `false` for folders with generated files.
fn is_ours(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let made = name == ".git" || name == "target" || name.starts_with("target-") || name == "testdata";
    !made && name != "shared"
}

/// Returns `true` for the first file of a library or a program.
fn is_root(name: &str) -> bool {
    name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs")
}

fn readme(member: &Member) -> Vec<Violation> {
    match fs::read_to_string(member.folder().join("README.md")) {
        Ok(text) if !text.trim().is_empty() && member.is_published() => packages::links(&text),
        Ok(text) if !text.trim().is_empty() => Vec::new(),
        Ok(_) => vec![Violation::error(1, "the README is empty")],
        Err(_) => vec![Violation::error(1, "every crate has a README.md")],
    }
}
