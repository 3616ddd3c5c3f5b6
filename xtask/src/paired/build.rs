//! Builds the benches of a revision and of the working tree, with the stand-in for criterion.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::loom::with_rustflags;
use crate::shell::Shell;
use crate::workspace::executable;

/// The stand-in's source. Its manifest is made for each tree, because a patch must have the locked version.
const STAND_IN: &str = "benches/paired/criterion.rs";

/// Functions and jump targets begin cache lines and half lines. Otherwise a change anywhere moves the code of
/// short loops, which changes their time by up to 10 %.
const ALIGNED: &str = "-Cllvm-args=-align-all-functions=6 -Cllvm-args=-align-all-nofallthru-blocks=5";

/// Checks out a revision below the target folder and returns the tree and the revision's short name. The tree
/// stays for the next run, which rebuilds only what differs.
pub(super) fn checkout(shell: &Shell, revision: &str) -> Result<(PathBuf, String)> {
    let commit = format!("{revision}^{{commit}}");
    let args = ["rev-parse", "--verify", "--short", &commit];
    let name = shell.capture(shell.program("git").args(args))?.trim().to_owned();
    let tree = shell.target().join("paired/tree");
    let mut command = shell.program("git");
    if tree.join(".git").exists() {
        command.arg("-C").arg(&tree).args(["checkout", "--quiet", "--force", "--detach", &name]);
    } else {
        // By force, because the tree of a deleted target folder is still registered.
        command.args(["worktree", "add", "--quiet", "--force", "--detach"]).arg(&tree).arg(&name);
    }
    shell.run_loud(&mut command)?;
    Ok((tree, name))
}

/// Builds those of `benches` that a tree has, and returns their programs. `side` names the target folder.
pub(super) fn build<'a>(
    shell: &Shell,
    tree: &Path,
    side: &str,
    benches: &[&'a str],
) -> Result<BTreeMap<&'a str, PathBuf>> {
    let has = |bench: &&str| tree.join("benches/benches").join(format!("{bench}.rs")).exists();
    let benches: Vec<&str> = benches.iter().copied().filter(has).collect();
    let folder = shell.target().join("paired").join(side);
    let lock = LockFile::read(tree)?;
    let stand_in = folder.join("criterion");
    fs::create_dir_all(&stand_in).map_err(Error::io(&stand_in))?;
    let manifest = stand_in.join("Cargo.toml");
    let text = format!(
        "[package]\nname = \"criterion\"\nversion = {}\nedition = \"2024\"\n\n[workspace]\n\n\
         [features]\ncargo_bench_support = []\n\n[lib]\npath = '{}'\n",
        version(&lock.text).unwrap_or_default(),
        shell.root().join(STAND_IN).display()
    );
    fs::write(&manifest, text).map_err(Error::io(&manifest))?;
    let mut command = shell.cargo(&["bench", "--quiet", "-p", "orlop-benches", "--no-run"]);
    command.current_dir(tree).arg("--message-format=json-render-diagnostics");
    command.arg("--config").arg(format!("patch.crates-io.criterion.path='{}'", stand_in.display()));
    command.arg("--target-dir").arg(&folder);
    command.args(benches.iter().flat_map(|bench| ["--bench", bench]));
    command.env("RUSTFLAGS", with_rustflags(ALIGNED));
    let messages = shell.capture(&mut command)?;
    benches.into_iter().map(|bench| Ok((bench, executable(&messages, bench)?))).collect()
}

/// The lock file of a tree, restored on drop: cargo writes the patch into it.
struct LockFile {
    path: PathBuf,
    text: String,
}

impl LockFile {
    fn read(tree: &Path) -> Result<Self> {
        let path = tree.join("Cargo.lock");
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        Ok(Self { path, text })
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.text) {
            eprintln!("{} is not restored: {error}", self.path.display());
        }
    }
}

/// Returns criterion's version in a lock file, in quotes.
fn version(lock: &str) -> Option<&str> {
    let package = lock.split("[[package]]").find(|package| package.contains("\nname = \"criterion\"\n"))?;
    package.lines().find_map(|line| line.strip_prefix("version = "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stand_in_has_the_locked_version() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"criterion\"\nversion = \"0.8.2\"\n";
        assert_eq!(version(lock), Some("\"0.8.2\""));
        assert_eq!(version("[[package]]\nname = \"criterion-plot\"\nversion = \"1.0.0\"\n"), None);
    }
}
