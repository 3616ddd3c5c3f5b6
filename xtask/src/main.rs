//! `cargo xtask`: the automation of the project, in Rust, so that it runs wherever the project builds.
//!
//! Each command is a list of steps; a step passes, fails, or is skipped with a reason (see [`report`]).
//! Continuous integration runs `cargo xtask ci`.

mod beside;
mod checks;
mod ci;
mod dry_run;
mod error;
mod fuzz;
mod golden;
mod integrations;
mod loom;
mod mutate;
mod orderings;
mod paired;
mod parallel;
mod powerset;
mod report;
mod san;
mod setup;
mod shell;
mod source;
mod tidy;
mod wheel;
mod workspace;

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::checks::CudaCheck;
use crate::dry_run::DryRunOptions;
use crate::loom::SearchDepth;
use crate::paired::Comparison;
use crate::report::Report;
use crate::shell::Shell;

/// Project automation for orlop.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what the other commands need, as far as possible here
    Setup,
    /// Run everything that must hold before a change lands
    Ci {
        /// Use the installed tools only
        #[arg(long)]
        no_install: bool,
        /// Run all steps, however late they start
        #[arg(long)]
        whole: bool,
    },
    /// Check the concurrent protocols in the loom model checker
    Loom {
        /// Three preemptions instead of two
        #[arg(long)]
        full: bool,
        /// Weaken each named ordering in turn: the models must fail
        #[arg(long)]
        mutate: bool,
        /// Only models, or with --mutate orderings, whose name contains this
        filter: Option<String>,
    },
    /// Run tests under AddressSanitizer, ThreadSanitizer and Miri, or under the named ones
    San {
        /// AddressSanitizer
        #[arg(long)]
        address: bool,
        /// ThreadSanitizer
        #[arg(long)]
        thread: bool,
        /// Miri
        #[arg(long)]
        miri: bool,
        /// AddressSanitizer over the CUDA backend on the simulated driver: only if named, it takes minutes
        #[arg(long)]
        cuda: bool,
    },
    /// Run criterion benches, or compare them with those of another revision
    Bench {
        /// The benches to run, or with --against parts of names, such as `device/hot pair`; default: all
        names: Vec<String>,
        /// Compare with this revision: both programs run in turns on one core
        #[arg(long, value_name = "REV", conflicts_with = "args")]
        against: Option<String>,
        /// How many times both programs are started for a comparison
        #[arg(long, default_value = "5", requires = "against")]
        launches: NonZero<u32>,
        /// Fail if a ratio of the comparison is above this one, such as 1.03
        #[arg(long, requires = "against")]
        max: Option<f64>,
        /// Arguments for criterion
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Build the program that checks and measures the allocators on a GPU, and run it
    Gpu {
        /// On the simulated driver, with few rounds
        #[arg(long)]
        simulated: bool,
        /// Build it, and print where it is
        #[arg(long, conflicts_with = "simulated")]
        build_only: bool,
    },
    /// Run the long checks of the CUDA allocators on the simulated driver; the tests have short versions
    Cuda {
        /// The check; default: all
        check: Option<CudaCheck>,
        /// Only these allocators of the check, such as `pages,stream-ordered`
        #[arg(long, requires = "check")]
        allocators: Option<String>,
    },
    /// Run the readers of files on inputs from libFuzzer
    Fuzz {
        /// The target; default: all
        target: Option<String>,
        /// Seconds per target; default: a minute, or 10,000 mutations of the short version
        #[arg(long)]
        seconds: Option<u32>,
        /// Without coverage, with the stable compiler: mutations of the repository's files
        #[arg(long)]
        short: bool,
    },
    /// Run the engines with eight threads for a long time; the tests have a short version
    Stress {
        /// Total minutes, half of them for the caching engine
        #[arg(long, default_value_t = 10)]
        minutes: u32,
    },
    /// Serve requests from a KV pool for a long time, and check that nothing is kept; the tests have a short
    /// version
    KvDrift {
        /// The steps
        #[arg(long, default_value_t = 10_000_000)]
        steps: u64,
    },
    /// Build the Python package, install it into a fresh environment, and test it there
    Wheel {
        /// The Python to use
        #[arg(long, default_value = "python3")]
        python: PathBuf,
        /// Install the newest PyTorch, Lightning and Transformers, too: several gigabytes
        #[arg(long)]
        frameworks: bool,
    },
    /// Build, test and run what connects orlop with frameworks
    Integrations {
        /// The integration, such as `ort`; default: all
        name: Option<String>,
    },
    /// Check what the compiler does not: layers, unsafe, file lengths, docs, reasons, words
    Tidy,
    /// Make the packages of all published crates, without building them
    Package,
    /// Check the published crates with the oldest supported compiler
    Msrv,
    /// Compare the published libraries with the last release
    Semver,
    /// Check each library crate alone under every set of its features
    Powerset,
    /// Check the licences and sources of the dependencies
    Deny,
    /// Type-check for the other supported systems
    Targets,
    /// Run the recorded PyTorch programs without a GPU, and compare with what the GPU counted
    DryRun {
        /// A Python with PyTorch 2.11 for CUDA; without it, one is installed below the target folder
        #[arg(long)]
        python: Option<PathBuf>,
        /// Only this model, such as gpt2-train
        #[arg(long)]
        model: Option<String>,
    },
    /// Compare with reference data
    Golden {
        /// The folder of the reference data
        #[arg(long, default_value = "testdata")]
        data: PathBuf,
    },
}

fn main() -> ExitCode {
    let shell = &Shell::new();
    let report = &mut Report::default();
    match Cli::parse().command {
        Task::Setup => setup::run(shell, report),
        Task::Ci { no_install, whole } => ci::run(shell, report, !no_install, whole),
        Task::Loom { full, mutate, filter } => {
            let depth = if full { SearchDepth::Full } else { SearchDepth::Short };
            if mutate {
                report.step("loom --mutate", || mutate::run(shell, depth, filter.as_deref()));
            } else {
                report.step("loom", || loom::run(shell, depth, filter.as_deref()));
            }
        }
        Task::San { address, thread, miri, cuda } => {
            let all = !(address || thread || miri || cuda);
            if all || address {
                report.step("san: address", || san::address(shell, SearchDepth::Full));
            }
            if all || thread {
                report.step("san: thread", || san::thread(shell));
            }
            if all || miri {
                report.step("san: miri", || san::miri(shell, SearchDepth::Full));
            }
            if cuda {
                report.step("san: cuda", || san::cuda(shell));
            }
        }
        Task::Bench { names, against: None, args, .. } => {
            report.step("bench", || checks::bench(shell, &names, &args));
        }
        Task::Bench { names: filters, against: Some(against), launches, max, .. } => {
            report.step("bench", || {
                paired::run(shell, &Comparison { against, filters, launches: launches.get(), max })
            });
        }
        Task::Gpu { simulated, build_only } => {
            report.step("gpu", || checks::gpu(shell, simulated, build_only));
        }
        Task::Cuda { check, allocators } => {
            for check in check.map_or(CudaCheck::value_variants().to_vec(), |check| vec![check]) {
                report
                    .step(&format!("cuda: {check:?}"), || checks::cuda(shell, check, allocators.as_deref()));
            }
        }
        Task::Fuzz { target, seconds, short: true } => {
            report.step("fuzz --short", || {
                fuzz::short(shell, target.as_deref(), seconds.map_or(fuzz::SHORT, fuzz::FuzzLength::Seconds))
            });
        }
        Task::Fuzz { target, seconds, short: false } => {
            report.step("fuzz", || fuzz::run(shell, target.as_deref(), seconds.unwrap_or(60)));
        }
        Task::KvDrift { steps } => report.step("kv drift", || checks::kv_drift(shell, steps)),
        Task::Stress { minutes } => report.step("stress", || checks::stress(shell, minutes)),
        Task::Wheel { python, frameworks } => wheel::run(shell, report, &python, frameworks),
        Task::Integrations { name } => integrations::run(shell, report, name.as_deref()),
        Task::Tidy => report.step("tidy", || tidy::run(shell)),
        Task::Package => report.step("package", || checks::package(shell)),
        Task::Msrv => report.step("msrv", || checks::msrv(shell)),
        Task::Semver => report.step("semver", || checks::semver(shell)),
        Task::Powerset => powerset::run(shell, report),
        Task::Deny => checks::deny(shell, report),
        Task::Targets => checks::targets(shell, report),
        Task::DryRun { python, model } => dry_run::run(shell, report, &DryRunOptions { python, model }),
        Task::Golden { data } => {
            golden::run(shell, report, &data);
            // Not in `ci`: the tests compare the repository's data.
            let data = golden::folder(shell, &data);
            report.step("golden: torch.allocator, CUDA", || checks::cuda_golden(shell, &data));
        }
    }
    report.exit_code()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
