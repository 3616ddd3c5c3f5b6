//! Tests of code that aborts the process: they run it in a child process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, exit};

/// The variable that tells the child process which test to run.
const VARIABLE: &str = "ORLOP_ABORTING_TEST";

/// Runs the test of this name again in a child process, in which `action` must abort. Returns its standard
/// error.
pub fn assert_aborts(name: &str, action: impl FnOnce()) -> String {
    if std::env::var_os(VARIABLE).is_some_and(|test| test == name) {
        action();
        exit(0);
    }
    let program = std::env::current_exe().expect("the test's executable");
    let output = Command::new(program).args(["--exact", name, "--nocapture"]).env(VARIABLE, name).output();
    let output = output.expect("the child process");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
    errors
}
