//! The `orlop` program: replays of traces, and analyses of recordings.

#![forbid(unsafe_code)]

<<<<<<< HEAD
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
=======
use orlop_cli::ProgramCommand;
>>>>>>> main
use std::process::ExitCode;

#[cfg(feature = "global-allocator")]
#[global_allocator]
static GLOBAL: orlop::memory::bare::GlobalAllocator = orlop::memory::bare::GlobalAllocator;

fn main() -> ExitCode {
    ExitCode::from(orlop_cli::run(std::env::args_os(), &ProgramCommand::CurrentExecutable))
}
