//! `powerset`: every library crate alone under every set of its features, to detect hidden dependencies
//! between features; and `orlop-core` without an operating system.

use crate::beside;
use crate::error::Result;
use crate::report::{Outcome, Report};
use crate::setup::{BARE_METAL, has_target};
use crate::shell::Shell;
use crate::workspace::{members, package_args};

/// Up to this number of features every subset is checked; with more, none, each alone, and all.
const SUBSETS_UP_TO: usize = 3;

/// The program, whose features are those of the facade: none and all.
const PROGRAM: &str = "orlop-cli";

/// Crates whose unit tests run without default features too.
const TESTED_BARE: [&str; 2] = ["orlop-core", "orlop-alloc"];

/// Features that put another allocator behind the engines of `orlop-alloc`, for tests that cover all of them.
const BACKINGS: [&str; 3] = ["mimalloc", "jemalloc", "snmalloc"];
const BACKING_TESTS: &str = "backings::";

/// The compilers of those allocators, from C and C++.
const COMPILERS: [&str; 3] = ["cc", "c++", "make"];

/// The crate whose tests run with all features.
const TESTED_FULL: &str = "orlop-tensor";

/// Adds one step for each crate, some for tests and one for the bare-metal build.
pub(crate) fn run(shell: &Shell, report: &mut Report) {
    let members = match members(shell) {
        Ok(members) => members,
        Err(error) => return report.step("powerset", || Err(error)),
    };
    let published = |name: &str| name.starts_with("orlop") && name != "orlop-benches";
    for member in members.iter().filter(|member| member.is_library() && published(&member.name)) {
        report.step(&format!("powerset: {}", member.name), || {
            let sets = match member.name == PROGRAM {
                true => vec![Vec::new(), member.features()],
                false => feature_sets(&member.features()),
            };
            for set in &sets {
                check(shell, &member.name, set)?;
            }
            Ok(Outcome::Passed(format!("feature sets: {}", sets.len())))
        });
    }
    report.step("powerset: tests, no features", || {
        let mut command = shell.cargo(&["test", "--quiet", "--lib", "--no-default-features"]);
        shell.run("powerset-tests", command.args(package_args(&TESTED_BARE)))?;
        Ok(Outcome::Passed(TESTED_BARE.join(", ")))
    });
    report.step("powerset: tests, backings", || {
        let allocators = BACKINGS.join(", ");
        if let Some(missing) = COMPILERS.iter().find(|compiler| !shell.answers(compiler, &["--version"])) {
            return Ok(Outcome::Skipped(format!("{missing} is not installed: it builds {allocators}")));
        }
        let mut command = shell.cargo(&["test", "--quiet", "-p", "orlop-alloc", "--test", "it"]);
        command.args(["--features", &BACKINGS.join(","), "--", BACKING_TESTS]);
        shell.run("powerset-backings", &mut command)?;
        Ok(Outcome::Passed(allocators))
    });
    report.step("powerset: tests, all features", || {
        let mut command = shell.cargo(&["test", "--quiet", "--all-features", "-p", TESTED_FULL]);
        shell.run("powerset-tests-full", &mut command)?;
        Ok(Outcome::Passed(TESTED_FULL.to_owned()))
    });
    report.step("powerset: orlop-cuda beside others", || beside::run(shell));
    report.step("powerset: orlop-core, no_std", || {
        if !has_target(shell, BARE_METAL) {
            return Ok(Outcome::Skipped(format!(
                "{BARE_METAL} is not installed; `cargo xtask setup` says why"
            )));
        }
        let mut command = shell.cargo(&["check", "--quiet", "-p", "orlop-core", "--no-default-features"]);
        shell.run("powerset-no-std", command.args(["--target", BARE_METAL]))?;
        Ok(Outcome::Passed(BARE_METAL.to_owned()))
    });
}

/// Clippy can fail on warnings without a rebuild of the dependencies.
fn check(shell: &Shell, name: &str, features: &[&str]) -> Result<()> {
    let features = features.join(",");
    let mut command = shell.cargo(&["clippy", "--quiet", "-p", name, "--no-default-features"]);
    command.args(["--features", &features, "--", "-D", "warnings"]);
    shell.run(&format!("powerset-{name}-{features}"), &mut command)
}

fn feature_sets<'a>(features: &[&'a str]) -> Vec<Vec<&'a str>> {
    if features.len() > SUBSETS_UP_TO {
        let mut sets = vec![Vec::new()];
        sets.extend(features.iter().map(|feature| vec![*feature]));
        sets.push(features.to_vec());
        return sets;
    }
    let subset = |bits: u32| {
        let chosen = features.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
        chosen.map(|(_, feature)| *feature).collect()
    };
    (0..1 << features.len()).map(subset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backings_have_tests() {
        let names = crate::source::test_names("orlop-alloc");
        assert!(names.iter().any(|name| name.contains(BACKING_TESTS)));
    }

    #[test]
    fn few_features_give_all_subsets() {
        assert_eq!(feature_sets(&[]), [Vec::<&str>::new()]);
        assert_eq!(feature_sets(&["a", "b"]), [vec![], vec!["a"], vec!["b"], vec!["a", "b"]]);
        assert_eq!(feature_sets(&["a", "b", "c"]).len(), 8);
    }

    #[test]
    fn many_features_give_none_each_and_all() {
        let sets = feature_sets(&["a", "b", "c", "d"]);
        assert_eq!(sets.len(), 6);
        assert!(sets[0].is_empty());
        assert_eq!(sets[1], ["a"]);
        assert_eq!(sets[5].len(), 4);
    }
}
