//! A bench program, driven through its standard input and output (see `benches/paired/criterion.rs`).

use std::io::{BufRead, BufReader, Error as IoError, ErrorKind, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::error::{Error, Result};
use crate::shell::Shell;

/// The arguments of `taskset` that pin a program to the core that all of them share.
const PIN: [&str; 2] = ["-c", "0"];

/// A running bench program; it is killed on drop.
pub(super) struct Program {
    bench: &'static str,
    path: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts the program of a bench, pinned to one core if `taskset` can do that here.
    pub(super) fn start(shell: &Shell, bench: &'static str, path: &Path) -> Result<Self> {
        let mut command = shell.program(&path.to_string_lossy());
        if shell.answers("taskset", &[PIN[0], PIN[1], "true"]) {
            command = shell.program("taskset");
            command.args(PIN).arg(path);
        }
        // With an argument, which selects single benches, `alloc` leaves out its other tables.
        command.arg("paired").stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |source| Error::Spawn { command: path.display().to_string(), source };
        let mut child = command.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| failed(ErrorKind::BrokenPipe.into()))?;
        Ok(Self { bench, path: path.to_owned(), child, input, output: BufReader::new(output).lines() })
    }

    /// Runs to the end without measuring and returns the names of the benches that filters match.
    pub(super) fn names(mut self, filters: &[String]) -> Result<Vec<String>> {
        self.input = None;
        let mut names: Vec<String> = std::iter::from_fn(|| self.next().transpose()).collect::<Result<_>>()?;
        names.retain(|name| filters.is_empty() || filters.iter().any(|part| name.contains(part.as_str())));
        Ok(names)
    }

    /// Skips the benches before the next one with this name.
    pub(super) fn go_to(&mut self, name: &str) -> Result<()> {
        while self.next()?.ok_or_else(|| self.failed(ErrorKind::UnexpectedEof))? != name {
            self.leave()?;
        }
        Ok(())
    }

    /// Returns the name of the next bench, which begins with that of the program.
    fn next(&mut self) -> Result<Option<String>> {
        let answer = self.answer("@@ bench ")?;
        let prefix = format!("{}/", self.bench);
        Ok(answer.map(|name| if name.starts_with(&prefix) { name } else { prefix + &name }))
    }

    /// Runs the current bench and returns the time in nanoseconds.
    pub(super) fn time(&mut self, iterations: u64) -> Result<f64> {
        self.send(&iterations.to_string())?;
        let answer = self.answer("@@ ns ")?;
        answer.and_then(|ns| ns.parse().ok()).ok_or_else(|| self.failed(ErrorKind::UnexpectedEof))
    }

    /// Ends the current bench.
    pub(super) fn leave(&mut self) -> Result<()> {
        self.send("next")
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut();
        input
            .map_or(Ok(()), |input| input.write_all(format!("{line}\n").as_bytes()))
            .map_err(Error::io(&self.path))
    }

    /// Returns the rest of the next line that begins with `key`, or `None` at the end.
    fn answer(&mut self, key: &str) -> Result<Option<String>> {
        for line in &mut self.output {
            if let Some(rest) = line.map_err(Error::io(&self.path))?.strip_prefix(key) {
                return Ok(Some(rest.to_owned()));
            }
        }
        Ok(None)
    }

    fn failed(&self, kind: ErrorKind) -> Error {
        Error::io(&self.path)(IoError::from(kind))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
