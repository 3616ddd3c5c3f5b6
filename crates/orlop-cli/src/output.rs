//! Printing results and failures.

use std::io::{self, ErrorKind, Write};

/// The failures of a command, each a sentence.
#[derive(Debug)]
pub(crate) struct Failures(pub(crate) Vec<String>);

impl Failures {
    /// Returns an error if there are failures.
    pub(crate) fn check(failures: Vec<String>) -> Result<(), Self> {
        if failures.is_empty() { Ok(()) } else { Err(Self(failures)) }
    }

    /// Returns both results, or the failures of both.
    pub(crate) fn join<A, B>(one: Result<A, String>, other: Result<B, String>) -> Result<(A, B), Self> {
        match (one, other) {
            (Ok(one), Ok(other)) => Ok((one, other)),
            (one, other) => Err(Self([one.err(), other.err()].into_iter().flatten().collect())),
        }
    }
}

impl From<String> for Failures {
    fn from(failure: String) -> Self {
        Self(vec![failure])
    }
}

/// The prefix of failures and warnings.
pub(crate) const PREFIX: &str = "orlop: ";

/// Prints to the standard output. A closed pipe (`orlop … | head -1`) is not a failure.
pub(crate) fn print(text: &str) -> Result<(), Failures> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write the result: {error}").into())
        }
        _ => Ok(()),
    }
}

/// Prints `value` as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failures> {
    let text = serde_json::to_string_pretty(value).map_err(|error| format!("cannot write JSON: {error}"))?;
    print(&(text + "\n"))
}

/// Prints a sentence to the standard error. Failures of that are ignored.
pub(crate) fn report(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{PREFIX}{message}");
}
