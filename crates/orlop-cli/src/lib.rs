//! The `orlop` program as a library: replays of traces, and analyses of recordings.
//!
//! The program only parses arguments and formats results; everything else is in the libraries. Another
//! program that contains it, such as the Python package, calls [`run`].

#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

mod allocators;
mod arguments;
mod categories;
mod completions;
mod convert;
mod diff;
mod dry_run;
mod dry_run_arguments;
mod fit;
mod fit_arguments;
mod gate;
mod histories;
mod info;
mod inputs;
mod isolated;
mod kv;
mod mcp;
mod output;
mod partitions;
mod plan;
mod plan_arguments;
mod plan_capacity;
mod plan_command;
mod plan_input;
mod plan_model;
mod plan_output;
mod plan_spaces;
mod plan_verify;
mod progress;
mod ranks;
mod recording_format;
mod replay;
mod report;
mod simulated;
mod snapshot;
mod table;
mod target;
mod task_progress;
mod what_if;
mod why_oom;

use self::arguments::{Arguments, Command, SnapshotCommand, TraceCommand};
pub use self::histories::devices;
pub use self::isolated::ProgramCommand;
pub use self::report::{ReportPage, page};
use clap::Parser;
use std::ffi::OsString;

/// The exit code of a failure.
const FAILURE: u8 = 1;

/// The exit code of an invalid command line.
const INVALID: u8 = 2;

/// Runs the program with these arguments, of which the first is its name. Returns the exit code: 0 for
/// success, 1 for a failure, 2 for an invalid command line. `program` is the command that starts it again.
///
/// Results are written to the standard output and failures to the standard error. An option whose value
/// depends on another one ends the process if it is invalid.
pub fn run(arguments: impl IntoIterator<Item = OsString>, program: &ProgramCommand) -> u8 {
    allocators::register();
    let words: Vec<OsString> = arguments.into_iter().collect();
    let command = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments.command,
        Err(error) => {
            // A closed output is not a failure of its own.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(INVALID);
        }
    };
    let done = match command {
        Command::Replay(arguments) => match arguments.policy {
            Some(policy) => simulated::run(&arguments, policy),
            None => replay::run(&arguments, program),
        },
        Command::Plan(mut arguments) => {
            arguments.words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            plan::run(&arguments)
        }
        Command::WhatIf(arguments) => what_if::run(&arguments),
        Command::WhyOom(arguments) => why_oom::run(&arguments),
        Command::Kv(arguments) => kv::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Trace(TraceCommand::Info(arguments)) => info::run(&arguments),
        Command::Info(arguments) | Command::Snapshot(SnapshotCommand::Info(arguments)) => {
            snapshot::run(&arguments)
        }
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Gate(arguments) => gate::run(&arguments),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Ranks(arguments) => ranks::run(&arguments),
        Command::DryRun(arguments) => dry_run::run(&arguments, program),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Mcp => mcp::run(program),
    };
    match done {
        Ok(()) => 0,
        Err(output::Failures(failures)) => {
            for failure in failures {
                output::report(&failure);
            }
            FAILURE
        }
    }
}
