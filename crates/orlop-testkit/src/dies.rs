//! Tests of what ends the process: they run it in another one.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, exit};

/// Says to the process that is to end which test it is for.
const NAME: &str = "ORLOP_TEST_THAT_DIES";

/// Runs the test of this name again, in a process of its own, in which `deed` must abort. Its standard error.
pub fn dies(name: &str, deed: impl FnOnce()) -> String {
    if std::env::var_os(NAME).is_some_and(|told| told == name) {
        deed();
        exit(0);
    }
    let program = std::env::current_exe().expect("a test runs from a file");
    let output = Command::new(program).args(["--exact", name, "--nocapture"]).env(NAME, name).output();
    let output = output.expect("a test can be run again");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
    errors
}
