//! `orlop dry-run`.

mod doubts;
mod installation;
mod results;
mod sweep;

use self::installation::Installation;
use self::results::{Baseline, DryRunResult};
pub(crate) use self::sweep::{Search, Sweep};
use crate::dry_run_arguments::DryRunArguments;
use crate::isolated::ProgramCommand;
use crate::output::{self, Failures};
use crate::table::bytes;
use orlop_dryrun::injection::Injection;
use orlop_dryrun::settings::{Completion, DryRunSettings};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

pub(crate) fn run(arguments: &DryRunArguments, program: &ProgramCommand) -> Result<(), Failures> {
    let runner = Runner::new(arguments, program)?;
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
    let baseline = arguments.baseline.as_deref().map(Baseline::read).transpose()?;
    let (result, status) = runner.run(&arguments.output, &arguments.program, &[])?;
    let mut result = result?;
    if let Some(baseline) = baseline {
        result.compare(baseline);
    }
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
    installation: Installation,
    is_quick: bool,
    /// The result is the standard output: that of the program goes to the standard error.
    prints_json: bool,
}

impl Runner {
    fn new(arguments: &DryRunArguments, program: &ProgramCommand) -> Result<Self, String> {
        Ok(Self {
            settings: settings(arguments)?,
            installation: Installation::find(arguments, program)?,
            is_quick: arguments.quick,
            prints_json: arguments.json,
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
        let Installation { packages, library, .. } = &self.installation;
        let injection = Injection::prepare(packages, library, output);
        let injection = injection.map_err(|error| error.to_string())?;
        results::remove(&earlier)?;
        let mut command = self.installation.command(program)?;
        command.envs(injection.variables(&self.settings));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if self.prints_json {
            command.stdout(io::stderr());
        }
        let status = command.status().map_err(|error| {
            format!("{}: cannot be started: {error}", Path::new(command.get_program()).display())
        })?;
        let result = DryRunResult::read(output, &self.settings, status.success(), self.is_quick);
        Ok((result, status))
    }
}

fn settings(arguments: &DryRunArguments) -> Result<DryRunSettings, String> {
    let mut settings = DryRunSettings::new(arguments.gpu()?);
    if let Some(memory) = arguments.memory {
        settings = settings.memory(memory);
    }
    settings.devices = arguments.devices.count;
    settings.workspaces = arguments.workspaces.into();
    settings.allow_checkpoints = arguments.allow_checkpoints;
    settings.assumptions = arguments.assumptions();
    settings.completion = if arguments.late { Completion::Latest } else { Completion::Earliest };
    // The program may change its folder before it uses CUDA.
    let absolute = |table: &PathBuf| {
        std::path::absolute(table).map_err(|error| format!("{}: cannot be found: {error}", table.display()))
    };
    settings.convolutions = arguments.convolutions.as_ref().map(absolute).transpose()?;
    Ok(settings)
}
