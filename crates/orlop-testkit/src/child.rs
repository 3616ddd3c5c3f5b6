//! Child processes, for tests that change state of the whole process.

use std::process::Command;

/// Set in the child: the part of the test that it runs.
const PART: &str = "ORLOP_TEST_CHILD";

/// Returns `true` in the child that is to run `part`.
pub fn plays(part: &str) -> bool {
    std::env::var_os(PART).is_some_and(|set| set == *part)
}

/// Runs `test` of this program alone in a child as `part`, with these `ORLOP` variables only. Returns its
/// standard output and error.
///
/// # Panics
///
/// If the child fails.
pub fn run(test: &str, part: &str, variables: &[(&str, &str)]) -> (String, String) {
    let program = std::env::current_exe().expect("this test");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("ORLOP_")) {
            command.env_remove(name);
        }
    }
    let output = command.env(PART, part).envs(variables.iter().copied()).output().expect("the child runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (written, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{part}: {written}{errors}");
    assert!(written.contains("1 passed"), "no test is called {test}: {written}");
    (written, errors)
}

/// Returns the first line of `text` that starts with one of `beginnings`.
pub fn line<'a>(text: &'a str, beginnings: &[&str]) -> &'a str {
    let found = text.lines().find(|line| beginnings.iter().any(|beginning| line.starts_with(beginning)));
    found.unwrap_or_else(|| panic!("{text}"))
}
