//! What a dry run uses of this machine: a Python, its PyTorch, and the library that is injected.

use crate::dry_run_arguments::DryRunArguments;
use crate::isolated::ProgramCommand;
use orlop_dryrun::injection::LIBRARY;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints the folder of the packages among which torch is.
const FIND_PACKAGES: &str = "import importlib.util as u, os; s = u.find_spec('torch'); \
                             print(os.path.dirname(os.path.dirname(s.origin)) if s and s.origin else '')";

/// Names the library for development, where it is not beside the program.
const LIBRARY_VARIABLE: &str = "ORLOP_DRY_RUN_LIBRARY";

/// What a dry run uses of this machine.
#[derive(Debug)]
pub(super) struct Installation {
    python: PathBuf,
    /// The folder of the packages of that Python.
    pub(super) packages: PathBuf,
    /// The library that is injected.
    pub(super) library: PathBuf,
}

impl Installation {
    pub(super) fn find(arguments: &DryRunArguments, program: &ProgramCommand) -> Result<Self, String> {
        let python = python(arguments, program);
        let packages = packages(&python)?;
        Ok(Self { python, packages, library: library(arguments, program)? })
    }

    /// Returns the command of a program: one that is a file of Python is run by that.
    pub(super) fn command(&self, program: &[OsString]) -> Result<Command, String> {
        let (name, rest) = program.split_first().ok_or_else(|| "no program".to_owned())?;
        if Path::new(name).extension() != Some(OsStr::new("py")) {
            let mut command = Command::new(name);
            command.args(rest);
            return Ok(command);
        }
        let mut command = Command::new(&self.python);
        command.args(program);
        Ok(command)
    }
}

/// Returns the Python whose PyTorch is used.
fn python(arguments: &DryRunArguments, program: &ProgramCommand) -> PathBuf {
    let first = arguments.program.first().map(Path::new);
    let is_python = |program: &&Path| {
        program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
    };
    let given = arguments.python.clone().or_else(|| first.filter(is_python).map(Path::to_owned));
    given.unwrap_or_else(|| match program {
        ProgramCommand::CurrentExecutable => "python3".into(),
        ProgramCommand::Module { interpreter, .. } => interpreter.clone(),
    })
}

/// Returns the folder of the packages of a Python, among which PyTorch is.
fn packages(python: &Path) -> Result<PathBuf, String> {
    let found = Command::new(python).args(["-c", FIND_PACKAGES]).output();
    let found = found.map_err(|error| format!("{}: cannot be started: {error}", python.display()))?;
    match String::from_utf8_lossy(&found.stdout).trim() {
        "" => Err(format!("{} has no PyTorch; name another with --python", python.display())),
        folder => Ok(folder.into()),
    }
}

/// Returns the library that is injected.
fn library(arguments: &DryRunArguments, program: &ProgramCommand) -> Result<PathBuf, String> {
    let named = arguments.library.clone().or_else(|| std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from));
    if let Some(named) = named {
        return Ok(named);
    }
    let places = match program {
        ProgramCommand::Module { folder, .. } => vec![folder.clone()],
        ProgramCommand::CurrentExecutable => {
            let path =
                std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
            let beside = path.parent().unwrap_or(Path::new(""));
            // In `deps`, cargo builds it for the tests, too; beside the program, only if that is asked for.
            vec![beside.join("deps"), beside.to_owned(), beside.join("../lib")]
        }
    };
    let mut found = places.into_iter().map(|folder| folder.join(LIBRARY)).filter(|path| path.is_file());
    found.next().ok_or_else(|| {
        format!("{LIBRARY} is not beside this program; name it with --library (crate orlop-dryrun-cuda)")
    })
}
