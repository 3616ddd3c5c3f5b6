//! `orlop dry-run`.

mod results;
mod sweep;

use self::results::DryRunResult;
pub(crate) use self::sweep::{Search, Sweep};
use crate::dry_run_arguments::DryRunArguments;
use crate::output::{self, Failures};
use crate::table::bytes;
use orlop_dryrun::injection::{Injection, LIBRARY};
use orlop_dryrun::settings::{Completion, DryRunSettings};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Prints the folder of the packages among which torch is.
const FIND_PACKAGES: &str = "import importlib.util as u, os; s = u.find_spec('torch'); \
                             print(os.path.dirname(os.path.dirname(s.origin)) if s and s.origin else '')";

/// Names the library for development, where it is not beside the program.
const LIBRARY_VARIABLE: &str = "ORLOP_DRY_RUN_LIBRARY";

pub(crate) fn run(arguments: &DryRunArguments) -> Result<(), Failures> {
    let runner = Runner::new(arguments)?;
    let gpu = &runner.settings.gpu;
    output::report(&format!(
        "dry run on {}, {}: nothing is computed, and values are noise",
        gpu.name,
        bytes(gpu.memory)
    ));
    if let Some(sweep) = &arguments.sweep {
        return sweep::run_each(&runner, arguments, sweep);
    }
    if let Some(search) = &arguments.find {
        return sweep::find(&runner, arguments, search);
    }
    let (result, status) = runner.run(&arguments.output, &arguments.program, &[])?;
    let result = result?;
    if arguments.json {
        output::print_json(&result)?;
    } else {
        output::print(&result.to_string())?;
    }
    match (result.fits(), status.success()) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("the program failed: {status}").into()),
        (false, _) => Err("the program does not fit".to_owned().into()),
    }
}

/// What all runs of a command have in common.
struct Runner {
    settings: DryRunSettings,
    library: PathBuf,
    packages: PathBuf,
    is_quick: bool,
}

impl Runner {
    fn new(arguments: &DryRunArguments) -> Result<Self, String> {
        Ok(Self {
            settings: settings(arguments)?,
            library: library(arguments)?,
            packages: packages(&python(arguments))?,
            is_quick: arguments.quick,
        })
    }

    /// Runs a program once, with more variables in its environment, and reads what it wrote into `output`:
    /// the inner result is an error if that was nothing, or cannot be read.
    fn run(
        &self,
        output: &Path,
        program: &[OsString],
        variables: &[(&str, String)],
    ) -> Result<(Result<DryRunResult, String>, ExitStatus), String> {
        let earlier = results::earlier(output)?;
        let injection = Injection::prepare(&self.packages, &self.library, output);
        let injection = injection.map_err(|error| error.to_string())?;
        results::remove(&earlier)?;
        let (name, rest) = program.split_first().ok_or_else(|| "no program".to_owned())?;
        let mut command = Command::new(name);
        command.args(rest).envs(injection.variables(&self.settings));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let status = command
            .status()
            .map_err(|error| format!("{}: cannot be started: {error}", Path::new(name).display()))?;
        let result = DryRunResult::read(output, &self.settings, status.success(), self.is_quick);
        Ok((result, status))
    }
}

fn settings(arguments: &DryRunArguments) -> Result<DryRunSettings, String> {
    let mut settings = DryRunSettings::new(arguments.device.clone());
    if let Some(memory) = arguments.memory {
        settings = settings.memory(memory);
    }
    settings.devices = arguments.devices;
    settings.workspaces = arguments.workspaces.into();
    settings.allow_checkpoints = arguments.allow_checkpoints;
    settings.completion = if arguments.late { Completion::Latest } else { Completion::Earliest };
    // The program may change its folder before it uses CUDA.
    let absolute = |table: &PathBuf| {
        std::path::absolute(table).map_err(|error| format!("{}: cannot be found: {error}", table.display()))
    };
    settings.convolutions = arguments.convolutions.as_ref().map(absolute).transpose()?;
    Ok(settings)
}

/// Returns the Python whose PyTorch is used.
fn python(arguments: &DryRunArguments) -> PathBuf {
    let program = arguments.program.first().map(Path::new);
    let is_python = |program: &&Path| {
        program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
    };
    let given = arguments.python.clone();
    given.or_else(|| program.filter(is_python).map(Path::to_owned)).unwrap_or_else(|| "python3".into())
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
fn library(arguments: &DryRunArguments) -> Result<PathBuf, String> {
    let named = arguments.library.clone().or_else(|| std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from));
    if let Some(named) = named {
        return Ok(named);
    }
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let beside = program.parent().unwrap_or(Path::new(""));
    let places = [beside.to_owned(), beside.join("../lib"), beside.join("deps")];
    let mut found = places.into_iter().map(|folder| folder.join(LIBRARY)).filter(|path| path.is_file());
    found.next().ok_or_else(|| {
        let name = AsRef::<OsStr>::as_ref(LIBRARY).display();
        format!("{name} is not beside this program; name it with --library (crate orlop-dryrun-cuda)")
    })
}
