//! `san`: memory errors and races that a green test can hide, by AddressSanitizer, ThreadSanitizer and Miri.

use std::num::NonZero;

use crate::error::Result;
use crate::loom::with_rustflags;
use crate::parallel;
use crate::report::Outcome;
use crate::setup::{has_component, has_nightly};
use crate::shell::Shell;
use crate::workspace::{members, package_args, present};

/// Crates whose tests touch raw memory most.
const ADDRESS: [&str; 4] = ["orlop-sync", "orlop-alloc", "orlop-tensor", "orlop-testkit"];

/// Tests in which memory is kept on purpose, by parts of their names: of allocators that are broken, and where user code
/// panicked while a device might still use the memory. There, leaks are not errors; everything else is.
const KEEP_MEMORY: [&str; 5] = ["broken", "hostile", "panics", "callbacks", "a_deleter_may_do_anything"];

/// Those of them that Miri interprets.
const MIRI_KEEP_MEMORY: [&str; 1] = ["storage::panics"];

/// Crates whose unit tests Miri can interpret in reasonable time.
const MIRI: [&str; 4] = ["orlop-core", "orlop-sync", "orlop-alloc", "orlop-tensor"];

/// The one of them that takes as long as the others.
const MIRI_ALONE: &str = "orlop-alloc";

/// The modules of it that are run after the others.
const MIRI_APART: [&str; 3] = ["observer::", "device::", "profile::observer_tests::"];

/// What no run of it interprets: tables and the text of reports, which are safe code and take minutes.
const MIRI_TABLES: &str = "profile::tests::";

/// The integration tests that are about memory, of the crate that hands it to safe code.
const MIRI_OUTSIDE: &str = "orlop-tensor";
const MIRI_BUILD: [&str; 4] = ["--features", "dlpack", "--test", "it"];
const MIRI_TESTS: [&str; 6] =
    ["access::", "lazy::", "storage::", "workspace::", "dlpack::import", "dlpack::export"];

/// The tests whose outcome depends on which thread comes first: the protocols, and the crate that lives by them.
const PROTOCOLS: &str = "orlop-sync";
const CONCURRENT: &str = "orlop-alloc";
const LIFETIMES: &str = "handle::lifetime_tests::";
const RACES: &str = "_the_last_";
const THREADS: [&str; 7] =
    [LIFETIMES, "slots::", "thread_slot::", "mutex::", "observer::", "threads", "memory_block::"];

/// How many orders of threads Miri tries the [`RACES`] among them in, under each of its models of references.
const SEEDS: &str = "-Zmiri-many-seeds=0..2";
const MODELS: [(&str, &str); 2] = [("stacked", ""), ("tree", "-Zmiri-tree-borrows")];

/// The tests under AddressSanitizer, with leaks reported as errors.
pub(crate) fn address(shell: &Shell) -> Result<Outcome> {
    let host = match sanitized_host(shell) {
        Ok(host) => host,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let names = present(&members(shell)?, &ADDRESS);
    if names.is_empty() {
        return Ok(Outcome::no_crate(&ADDRESS));
    }
    let skipped: Vec<&str> = KEEP_MEMORY.iter().flat_map(|name| ["--skip", name]).collect();
    address_of(shell, "san-address", &host, &names, 1, &skipped)?;
    address_of(shell, "san-address-kept", &host, &names, 0, &KEEP_MEMORY)?;
    Ok(Outcome::Passed(names.join(", ")))
}

/// Runs the tests that `filters` choose; with `leaks`, memory that is never freed is an error too.
fn address_of(
    shell: &Shell,
    label: &str,
    host: &str,
    names: &[&str],
    leaks: u8,
    filters: &[&str],
) -> Result<()> {
    let mut command = shell.nightly_cargo(&["test", "--quiet", "--tests", "--target", host]);
    command.args(package_args(names));
    // The word for the code: what is freed has to go, where it is kept else.
    command.env("RUSTFLAGS", with_rustflags("-Zsanitizer=address --cfg orlop_asan"));
    let options = "allocator_may_return_null=1:detect_stack_use_after_return=1";
    command.env("ASAN_OPTIONS", format!("detect_leaks={leaks}:{options}"));
    command.env("CARGO_TARGET_DIR", shell.target().join("asan"));
    // Instrumented code without any optimisation is several times slower. Debug assertions stay on.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    command.arg("--").args(filters);
    // Fewer random programs than the plain tests run: each step is several times slower.
    if std::env::var_os("ORLOP_CONFORMANCE_CASES").is_none() {
        command.env("ORLOP_CONFORMANCE_CASES", "1");
    }
    shell.run(label, &mut command)
}

/// Where sanitizers are, or why not.
fn sanitized_host(shell: &Shell) -> std::result::Result<String, String> {
    if !has_nightly(shell) {
        return Err("there is no nightly toolchain".to_owned());
    }
    let host = host(shell).ok_or("rustc does not name its host")?;
    match host.as_str() {
        "x86_64-unknown-linux-gnu" | "aarch64-unknown-linux-gnu" => Ok(host),
        _ => Err(format!("the sanitizers' libraries are not there for {host}")),
    }
}

/// The concurrent tests under ThreadSanitizer. It has to see what the standard library does, which is built for it.
pub(crate) fn thread(shell: &Shell) -> Result<Outcome> {
    let host = match sanitized_host(shell) {
        Ok(host) => host,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    if !has_component(shell, "rust-src") {
        return Ok(Outcome::Skipped("nightly has no rust-src; `cargo xtask setup` says why".to_owned()));
    }
    let names = present(&members(shell)?, &[PROTOCOLS, CONCURRENT]);
    if names.is_empty() {
        return Ok(Outcome::no_crate(&[PROTOCOLS, CONCURRENT]));
    }
    let mut command = shell.nightly_cargo(&["test", "--quiet", "-Zbuild-std", "--lib", "--target", &host]);
    command.args(package_args(&names)).arg("--").args(THREADS);
    command.env("RUSTFLAGS", with_rustflags("-Zsanitizer=thread"));
    command.env("TSAN_OPTIONS", "halt_on_error=1").env("CARGO_TARGET_DIR", shell.target().join("tsan"));
    shell.run("san-thread", &mut command)?;
    Ok(Outcome::Passed(names.join(", ")))
}

/// The unit tests under Miri; those that depend on the order of threads with several seeds.
pub(crate) fn miri(shell: &Shell) -> Result<Outcome> {
    for component in ["miri", "rust-src"] {
        if !has_component(shell, component) {
            return Ok(Outcome::Skipped(format!("nightly has no {component}; `cargo xtask setup` says why")));
        }
    }
    let names = present(&members(shell)?, &MIRI);
    if names.is_empty() {
        return Ok(Outcome::no_crate(&MIRI));
    }
    // Miri interprets one thread at a time: several runs side by side use all processors.
    let runs = runs(&names);
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    parallel::for_each(&runs, workers, |run| run.start(shell)).into_iter().collect::<Result<()>>()?;
    Ok(Outcome::Passed(names.join(", ")))
}

/// One run of tests under Miri.
#[derive(Debug, Default)]
struct MiriRun {
    label: String,
    packages: Vec<&'static str>,
    /// What of the packages is built.
    build: &'static [&'static str],
    filters: Vec<&'static str>,
    flags: Vec<&'static str>,
}

/// All runs over the crates that are there, the longest first. A crate whose tests take long has several: each run has a
/// limit of time.
fn runs(names: &[&str]) -> Vec<MiriRun> {
    fn without(tests: &[&'static str]) -> Vec<&'static str> {
        tests.iter().flat_map(|name| ["--skip", name]).collect()
    }
    let run = |label: &str, packages: &[&'static str], filters: Vec<&'static str>| {
        let packages = packages.iter().copied().filter(|package| names.contains(package)).collect();
        MiriRun { label: format!("san-miri-{label}"), packages, build: &["--lib"], filters, flags: vec![] }
    };
    let others: Vec<&str> = MIRI.into_iter().filter(|&package| package != MIRI_ALONE).collect();
    let mut runs = vec![
        run("alone", &[MIRI_ALONE], without(&[&MIRI_APART[..], &[MIRI_TABLES]].concat())),
        MiriRun {
            flags: vec!["-Zmiri-ignore-leaks"],
            ..run("kept", &[MIRI_OUTSIDE], MIRI_KEEP_MEMORY.to_vec())
        },
        run("others", &others, without(&MIRI_KEEP_MEMORY)),
        MiriRun { build: &MIRI_BUILD, ..run("outside", &[MIRI_OUTSIDE], MIRI_TESTS.to_vec()) },
        run("apart", &[MIRI_ALONE], MIRI_APART.to_vec()),
    ];
    for (label, model) in MODELS {
        let seeds = run(&format!("seeds-{label}"), &[CONCURRENT], vec![RACES]);
        runs.push(MiriRun { flags: vec![SEEDS, model], ..seeds });
    }
    runs.retain(|run| !run.packages.is_empty());
    runs
}

impl MiriRun {
    fn start(&self, shell: &Shell) -> Result<()> {
        let mut command = shell.nightly_cargo(&["miri", "test", "--quiet"]);
        command.args(package_args(&self.packages)).args(self.build).arg("--").args(&self.filters);
        // Property tests keep to a few cases: Miri is a hundred times slower than the machine.
        let cases = std::env::var("PROPTEST_CASES").unwrap_or_else(|_| "4".to_owned());
        command.env("PROPTEST_CASES", cases);
        // Tests read the environment and the clock.
        let own = std::env::var("MIRIFLAGS").unwrap_or_else(|_| "-Zmiri-disable-isolation".to_owned());
        let flags = [&[own.as_str()], &self.flags[..]].concat().join(" ");
        command.env("MIRIFLAGS", flags).env("CARGO_TARGET_DIR", shell.target().join("miri"));
        shell.run(&self.label, &mut command)
    }
}

/// The machine's own target.
pub(crate) fn host(shell: &Shell) -> Option<String> {
    let version = shell.ask("rustc", &["-vV"])?;
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}
