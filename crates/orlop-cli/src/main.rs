//! The `orlop` program: replays of traces, and analyses of recordings.
//!
//! The program only parses arguments and formats results; everything else is in the libraries. Exit codes: 0
//! for success, 1 for a failure, 2 for an invalid command line.

#![forbid(unsafe_code)]

mod allocators;
mod arguments;
mod convert;
mod diff;
mod dry_run;
mod dry_run_arguments;
mod gate;
mod histories;
mod info;
mod inputs;
mod isolated;
mod output;
mod plan;
mod plan_arguments;
mod plan_input;
mod plan_model;
mod plan_verify;
mod progress;
mod recording_format;
mod replay;
mod report;
mod simulated;
mod snapshot;
mod table;
mod target;
mod what_if;
mod why_oom;

use self::arguments::{Arguments, Command, SnapshotCommand, TraceCommand};
use clap::Parser;
use std::process::ExitCode;

#[cfg(feature = "global-allocator")]
#[global_allocator]
static GLOBAL: orlop::memory::bare::GlobalAllocator = orlop::memory::bare::GlobalAllocator;

fn main() -> ExitCode {
    allocators::register();
    let done = match Arguments::parse().command {
        Command::Replay(arguments) => match arguments.policy {
            Some(policy) => simulated::run(&arguments, policy),
            None => replay::run(&arguments),
        },
        Command::Plan(arguments) => plan::run(&arguments),
        Command::WhatIf(arguments) => what_if::run(&arguments),
        Command::WhyOom(arguments) => why_oom::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Trace(TraceCommand::Info(arguments)) => info::run(&arguments),
        Command::Info(arguments) | Command::Snapshot(SnapshotCommand::Info(arguments)) => {
            snapshot::run(&arguments)
        }
        Command::Convert(arguments) => convert::run(&arguments),
        Command::DryRun(arguments) => dry_run::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Gate(arguments) => gate::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(output::Failures(failures)) => {
            for failure in failures {
                output::report(&failure);
            }
            ExitCode::FAILURE
        }
    }
}
