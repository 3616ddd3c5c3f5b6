//! The `orlop` program: replays of traces, and analyses of recordings.

#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

use orlop_cli::ProgramCommand;
use std::process::ExitCode;

#[cfg(feature = "global-allocator")]
#[global_allocator]
static GLOBAL: orlop::memory::bare::GlobalAllocator = orlop::memory::bare::GlobalAllocator;

fn main() -> ExitCode {
    ExitCode::from(orlop_cli::run(std::env::args_os(), &ProgramCommand::CurrentExecutable))
}
