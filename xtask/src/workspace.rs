//! What cargo reports: the members of the workspace, and the programs that it built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::shell::Shell;

/// A member of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Member {
    pub(crate) name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    features: BTreeMap<String, Vec<String>>,
    targets: Vec<CargoTarget>,
    rust_version: Option<String>,
    /// The tables of other tools.
    #[serde(default)]
    metadata: serde_json::Value,
    /// The registries it may be published to; `None` for all.
    publish: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct CargoTarget {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct CargoMetadata {
    packages: Vec<Member>,
}

/// Returns all members, sorted by name.
pub(crate) fn members(shell: &Shell) -> Result<Vec<Member>> {
    let text = shell.capture(&mut shell.cargo(&["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: CargoMetadata = serde_json::from_str(&text)
        .map_err(|source| Error::Json { origin: "cargo metadata".to_owned(), source })?;
    let mut members = metadata.packages;
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

/// Returns the toolchain of the `rust-version` of the published members, such as `1.88.0`.
pub(crate) fn oldest_toolchain(members: &[Member]) -> Result<String> {
    let version = members.iter().filter(|member| member.is_published()).find_map(Member::rust_version);
    let version = version.ok_or_else(|| Error::empty("`rust-version`", None))?;
    Ok(if version.matches('.').count() < 2 { format!("{version}.0") } else { version.to_owned() })
}

/// Returns `-p NAME` for each name.
pub(crate) fn package_args<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names.iter().flat_map(|name| ["-p", name]).collect()
}

#[derive(Deserialize)]
struct CargoMessage {
    executable: Option<PathBuf>,
    target: Option<BuiltTarget>,
}

#[derive(Deserialize)]
struct BuiltTarget {
    name: String,
}

/// Returns the program of a test or bench, from the messages of a build with `--message-format=json`.
pub(crate) fn executable(messages: &str, target: &str) -> Result<PathBuf> {
    let program = messages.lines().rev().find_map(|line| {
        let message: CargoMessage = serde_json::from_str(line).ok()?;
        message.target.filter(|built| built.name == target)?;
        message.executable
    });
    program.ok_or_else(|| Error::NoTestBinary { target: target.to_owned() })
}

impl Member {
    /// Returns the folder of the member.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// Returns the oldest compiler that its manifest promises.
    pub(crate) fn rust_version(&self) -> Option<&str> {
        self.rust_version.as_deref()
    }

    /// Returns `true` if its manifest has the features with which docs.rs builds it.
    pub(crate) fn has_docs_features(&self) -> bool {
        let docs = &self.metadata["docs"]["rs"];
        docs["all-features"] == true || docs["features"].as_array().is_some_and(|list| !list.is_empty())
    }

    /// Returns `true` if other crates or foreign programs can link it.
    pub(crate) fn is_library(&self) -> bool {
        self.targets.iter().flat_map(|target| &target.kind).any(|kind| kind == "lib" || kind == "cdylib")
    }

    /// Returns `true` unless its manifest forbids publishing.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// Returns the members that it depends on, without dependencies of tests only.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &str> {
        self.dependencies
            .iter()
            .filter(|dependency| dependency.path.is_some() && dependency.kind.as_deref() != Some("dev"))
            .map(|dependency| dependency.name.as_str())
    }

    /// Returns what a feature enables; empty if there is no such feature.
    pub(crate) fn enables(&self, feature: &str) -> &[String] {
        self.features.get(feature).map_or(&[], Vec::as_slice)
    }

    /// Returns its features, without `default`.
    pub(crate) fn features(&self) -> Vec<&str> {
        self.features.keys().map(String::as_str).filter(|name| *name != "default").collect()
    }
}

/// Parses a member as cargo describes it.
#[cfg(test)]
pub(crate) fn member(text: &str) -> Member {
    serde_json::from_str(text).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_test_program_among_cargos_messages() {
        let message = |kind: &str, executable: &str| {
            let target = format!(r#"{{"name":"loom","kind":["{kind}"]}}"#);
            format!(r#"{{"reason":"compiler-artifact","target":{target},"executable":{executable}}}"#)
        };
        let (ours, dependency) = (message("test", r#""/t/loom-1""#), message("lib", "null"));
        let finished = r#"{"reason":"build-finished","success":true}"#;
        let all = format!("{ours}\n{dependency}\n{finished}\nnot json\n");
        assert_eq!(executable(&all, "loom").unwrap(), Path::new("/t/loom-1"));
        assert!(executable(&all, "orlop").is_err());
        assert!(executable(&dependency, "loom").is_err());
    }
}
