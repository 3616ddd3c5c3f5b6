//! Public type names must be unique in the workspace.
//!
//! Two types with one name in two modules compile, but every sentence about them needs a path to be clear.
//! The rule covers public names only: a private name is visible in its own module, where review suffices.

use super::{Violation, layers};
use crate::source::SourceText;
use crate::workspace::Member;

/// Names that each crate may define once: its error, and its `Result`.
const ONCE_PER_CRATE: [&str; 2] = ["Error", "Result"];

/// The usual name of the private supertrait of a sealed trait, which other crates cannot name.
const SEALED: &str = "Sealed";

/// A public type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TypeDefinition {
    name: String,
    owner: String,
    /// Relative to the root.
    path: String,
    line: usize,
}

/// A violation with the path of its file.
type LocatedViolation = (String, Violation);

/// Returns the public types of a file of this member; none if the member is not a layer's library.
pub(super) fn of_member(member: &Member, path: &str, source: &SourceText) -> Vec<TypeDefinition> {
    if member.is_library() && layers::is_layer(&member.name) {
        definitions(&member.name, path, source)
    } else {
        Vec::new()
    }
}

/// Returns the public types of a file. Alternatives under `cfg` in one file count once.
fn definitions(owner: &str, path: &str, source: &SourceText) -> Vec<TypeDefinition> {
    let mut found: Vec<TypeDefinition> = Vec::new();
    for at in source.words("pub") {
        let Some(name) = defined(&source.code[at..]) else { continue };
        if found.iter().all(|other| other.name != name) {
            let (owner, path) = (owner.to_owned(), path.to_owned());
            found.push(TypeDefinition { name: name.to_owned(), owner, path, line: source.line(at) });
        }
    }
    found
}

/// Returns the name of the type whose definition begins here with `pub`.
fn defined(code: &str) -> Option<&str> {
    let mut words = code.split_whitespace();
    // `pub(crate)` is a single, different word.
    if words.next()? != "pub" {
        return None;
    }
    let keyword = match words.next()? {
        "unsafe" => words.next()?,
        other => other,
    };
    if !matches!(keyword, "struct" | "enum" | "union" | "trait" | "type") {
        return None;
    }
    let rest = words.next()?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    // A macro's `$name` does not begin with a letter.
    (end > 0).then(|| &rest[..end])
}

/// Returns every name that more than one file defines.
pub(super) fn check(mut definitions: Vec<TypeDefinition>) -> Vec<LocatedViolation> {
    definitions.sort();
    let mut found = Vec::new();
    for clash in definitions.chunk_by(|a, b| a.name == b.name) {
        let owners: Vec<&str> = clash.iter().map(|definition| definition.owner.as_str()).collect();
        if !allowed(&clash[0].name, &owners) {
            found.extend(clash[1..].iter().map(|definition| clashes(definition, &clash[0])));
        }
    }
    found
}

/// Returns `true` if all these crates may define this name. The crates are sorted.
fn allowed(name: &str, owners: &[&str]) -> bool {
    let once_each = owners.windows(2).all(|pair| pair[0] != pair[1]);
    owners.len() == 1 || name == SEALED || (ONCE_PER_CRATE.contains(&name) && once_each)
}

fn clashes(definition: &TypeDefinition, first: &TypeDefinition) -> LocatedViolation {
    let TypeDefinition { name, path, line, .. } = definition;
    let message = format!(
        "the public type `{name}` is also defined at {}:{}: names must be unique in the workspace",
        first.path, first.line
    );
    (path.clone(), Violation::error(*line, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, usize)> {
        let found = definitions("orlop-core", "a.rs", &SourceText::new(text.to_owned()));
        found.into_iter().map(|definition| (definition.name, definition.line)).collect()
    }

    fn definition(name: &str, owner: &str, path: &str) -> TypeDefinition {
        TypeDefinition { name: name.to_owned(), owner: owner.to_owned(), path: path.to_owned(), line: 7 }
    }

    fn found(definitions: &[(&str, &str, &str)]) -> Vec<String> {
        let all = definitions.iter().map(|(name, owner, path)| definition(name, owner, path)).collect();
        check(all).into_iter().map(|(path, violation)| format!("{path}: {}", violation.message)).collect()
    }

    #[test]
    fn public_types_are_found() {
        let text = "pub struct A(u8);\npub enum B<T> {}\npub unsafe trait C: Sized {}\npub union D {}\n\
                    pub type E = u8;\nmod inner {\n    pub struct F;\n}\n";
        let all = ["A", "B", "C", "D", "E", "F"];
        assert_eq!(names(text).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), all);
        assert_eq!(names(text).iter().map(|(_, line)| *line).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 7]);
    }

    #[test]
    fn what_is_no_public_type_is_left_alone() {
        let text = "pub(crate) struct A;\nstruct B;\npub fn c() {}\npub use d::E;\npub const F: u8 = 0;\n\
                    // pub struct G;\nlet h = \"pub struct H;\";\npub struct $name;\npub mod i {}\n";
        assert_eq!(names(text), []);
    }

    #[test]
    fn alternatives_of_one_file_are_one() {
        let text = "#[cfg(loom)]\npub struct Mutex;\n#[cfg(not(loom))]\npub struct Mutex;\n";
        assert_eq!(names(text), [("Mutex".to_owned(), 2)]);
    }

    #[test]
    fn a_name_of_two_files_is_an_error() {
        let two =
            [("Held", "orlop-core", "b.rs"), ("Held", "orlop-core", "a.rs"), ("Other", "orlop-core", "a.rs")];
        let message =
            "b.rs: the public type `Held` is also defined at a.rs:7: names must be unique in the workspace";
        assert_eq!(found(&two), [message]);
        assert_eq!(found(&[("Held", "orlop-core", "a.rs"), ("Held", "orlop-plan", "c.rs")]).len(), 1);
        assert!(found(&two[1..]).is_empty());
    }

    #[test]
    fn each_crate_has_one_error() {
        let per_crate = [("Error", "orlop-core", "a.rs"), ("Error", "orlop-plan", "b.rs")];
        assert!(found(&per_crate).is_empty());
        let twice = [per_crate[0], per_crate[1], ("Error", "orlop-plan", "c.rs")];
        assert_eq!(found(&twice).len(), 2);
        assert!(found(&[("Sealed", "orlop-core", "a.rs"), ("Sealed", "orlop-core", "b.rs")]).is_empty());
    }
}
