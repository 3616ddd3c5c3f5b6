//! What is printed, and to whom nobody listens.

use std::io::{self, ErrorKind, Write};

/// Stands before what goes wrong.
pub(crate) const PREFIX: &str = "orlop: ";

/// Prints to the standard output. A reader that has gone away (`orlop … | head -1`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Vec<String>> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(vec![format!("cannot write the result: {error}")])
        }
        _ => Ok(()),
    }
}

/// Prints `value` as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Vec<String>> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| vec![format!("cannot write JSON: {error}")])?;
    print(&(text + "\n"))
}

/// Prints one sentence to the standard error. If nobody listens there, nobody can be told.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{PREFIX}{message}");
}
