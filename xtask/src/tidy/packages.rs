//! Checks what a package of a published crate must have: its licences, links that work without the
//! repository, the features that docs.rs builds, no dependency on an unpublished crate, and a lint against
//! `expect`.

use super::Violation;
use crate::workspace::Member;

/// The licences of every package. The files may be links to those of the repository: cargo packs their text.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Checks the manifest and the folder of a published member.
pub(super) fn manifest(member: &Member, members: &[Member]) -> Vec<Violation> {
    if !member.is_published() {
        return Vec::new();
    }
    let mut found: Vec<String> = LICENCES
        .iter()
        .filter(|name| !member.folder().join(name).is_file())
        .map(|name| format!("the package has no {name}"))
        .collect();
    if member.is_library() && !member.features().is_empty() && !member.has_docs_features() {
        found.push("no features for docs.rs: [package.metadata.docs.rs]".to_owned());
    }
    let unpublished: Vec<&str> =
        members.iter().filter(|other| !other.is_published()).map(|other| other.name.as_str()).collect();
    let needed = member.needs().filter(|need| unpublished.contains(need));
    found.extend(needed.map(|need| format!("{need} is not published: a package cannot depend on it")));
    found.into_iter().map(|message| Violation::error(1, message)).collect()
}

/// Checks the root of a published library or program: it says what holds for `expect` there. The lint is not
/// in the workspace's list, because the helper functions of tests may call it.
pub(super) fn root(text: &str) -> Vec<Violation> {
    if text.contains("(clippy::expect_used") {
        return Vec::new();
    }
    vec![Violation::error(1, "no `#![cfg_attr(not(test), deny(clippy::expect_used))]`")]
}

/// Checks the links of a published member's README: it is shown where there is no repository around it.
pub(super) fn links(text: &str) -> Vec<Violation> {
    let outside = |line: &str| line.split("](").skip(1).any(|link| link.starts_with("../"));
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| outside(line))
        .map(|(line, _)| {
            Violation::error(line, "a link out of the package does not work without the repository")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Shell;
    use crate::workspace::{member, members};

    fn messages(member: &Member, members: &[Member]) -> Vec<String> {
        manifest(member, members).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn a_package_has_its_licences_and_features() {
        let text = r#"{"name":"orlop-x","manifest_path":"/nowhere/Cargo.toml","dependencies":[
            {"name":"orlop-y","kind":null,"path":"/y"},{"name":"orlop-y","kind":"dev","path":"/y"}],
            "features":{"a":[]},"targets":[{"kind":["lib"]}],"publish":null,"metadata":null}"#;
        let private = r#"{"name":"orlop-y","manifest_path":"/y/Cargo.toml","dependencies":[],"features":{},
            "targets":[{"kind":["lib"]}],"publish":[],"metadata":null}"#;
        let (ours, other) = (member(text), member(private));
        assert_eq!(
            messages(&ours, &[other]),
            [
                "the package has no LICENSE-MIT",
                "the package has no LICENSE-APACHE",
                "no features for docs.rs: [package.metadata.docs.rs]",
                "orlop-y is not published: a package cannot depend on it"
            ]
        );
        let metadata = r#""metadata":{"docs":{"rs":{"all-features":true}}}"#;
        let with_features = member(&text.replace(r#""metadata":null"#, metadata));
        assert_eq!(messages(&with_features, &[]).len(), 2);
        assert!(messages(&member(private), &[]).is_empty());
    }

    #[test]
    fn links_stay_inside_the_package() {
        let text = "[a](https://a.example/../b) [b](#b)\n[c](src/c.rs)\n[d](../d/README.md)\n";
        let found = links(text);
        assert_eq!(found.iter().map(|violation| violation.line).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_root_says_what_holds_for_expect() {
        assert_eq!(root("//! Docs.\nmod a;\n").len(), 1);
        assert!(root("#![cfg_attr(not(test), deny(clippy::expect_used))]\nmod a;\n").is_empty());
        assert!(root("#![allow(clippy::expect_used, reason = \"children\")]\n").is_empty());
    }

    #[test]
    fn an_allocators_author_can_get_the_testkit() {
        let members = members(&Shell::new()).unwrap();
        assert!(members.iter().any(|member| member.name == "orlop-testkit" && member.is_published()));
    }
}
