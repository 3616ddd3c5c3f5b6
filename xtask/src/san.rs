//! `san`: memory errors and races, by AddressSanitizer, ThreadSanitizer and Miri.

use std::num::NonZero;

use crate::error::Result;
use crate::loom::{SearchDepth, with_rustflags};
use crate::parallel;
use crate::report::Outcome;
use crate::setup::{has_component, has_nightly};
use crate::shell::Shell;
use crate::workspace::package_args;

/// The crates whose tests use raw memory most. The conformance suite of the last runs the device engine over
/// memory of the host.
const ADDRESS: [&str; 5] = ["orlop-sync", "orlop-host", "orlop-alloc", "orlop-tensor", "orlop-testkit"];

/// Those whose own tests take as long to build as the others together, and find less: one has no unsafe code,
/// and most addresses of the other are numbers only. They are left out of the short selection.
const ADDRESS_LONG: [&str; 2] = ["orlop-context", "orlop-device"];

/// The cfg disables recycling of memory, so that use after free is detected.
const ADDRESS_FLAGS: &str = "-Zsanitizer=address --cfg orlop_asan";

/// The crate whose tests load a library, and need more flags.
const CUDA: &str = "orlop-cuda";
/// Without the tests that remove a function from the library: instrumented code refers to it.
const CUDA_FILTERS: [&str; 4] = ["--skip", "a_driver_without_a_function", "--skip", "a_driver_without_ids"];

/// Tests that leak on purpose, by parts of their names: with faulty allocators, and with panics of user code
/// while a device might still use the memory. Their leaks are not errors; everything else is.
const KEEP_MEMORY: [&str; 5] = ["broken", "hostile", "panics", "callbacks", "a_deleter_may_do_anything"];

/// Those among them that go through every adaptor, over engines that others go through alone.
const ADAPTORS: [&str; 2] = ["--skip", "adaptors_over_"];

/// The ones among them that Miri runs.
const MIRI_KEEP_MEMORY: [&str; 1] = ["storage::panics"];

/// The crates with unsafe code whose unit tests Miri runs in reasonable time.
const MIRI: [&str; 5] = ["orlop-sync", "orlop-host", "orlop-alloc", "orlop-device", "orlop-tensor"];

/// The crate that takes as long as the others together.
const MIRI_ALONE: &str = "orlop-alloc";

/// The modules of it that run after the others.
const MIRI_APART: [&str; 1] = ["observer::"];

/// Its tests, and those of the others, that take Miri half a minute and more, and whose code others run, too.
/// They are left out of the short selection.
const MIRI_LONG: [&str; 7] = [
    "nothing_is_reserved_while_cached",
    "memory_grows_in_place_and_by_little",
    "divergences_harm_no_block",
    "guarded_blocks_end_at_a_page",
    "alignments_and_kinds",
    "fragmentation_tightens_the_slack",
    "records_are_dense_and_the_last",
];
const MIRI_OTHERS_LONG: [&str; 3] =
    ["parts_of_parts_are_freed", "every_pair_of_dtypes", "threads_cannot_write_after_the_lifetime"];

/// The crate whose safe code drives the unsafe code of the one below: its integration tests run under Miri.
const MIRI_SAFE: &str = "orlop-context";
const MIRI_SAFE_TESTS: [&str; 3] = ["context::", "observers::", "registry::"];

/// The crate whose safe code is attacked from outside: those tests run under Miri.
const MIRI_HOSTILE: &str = "orlop-sync";

/// The crate of execution plans, which drives the planned memory of tensors: all its tests run under Miri.
const MIRI_PLANS: &str = "orlop-exec";

/// The crate whose integration tests about memory run under Miri.
const MIRI_OUTSIDE: &str = "orlop-tensor";
const MIRI_BUILD: [&str; 4] = ["--features", "dlpack", "--test", "it"];
const MIRI_TESTS: [&str; 6] =
    ["access::", "lazy::", "storage::", "workspace::", "dlpack::import", "dlpack::export"];

/// The crates whose tests depend on the order of threads.
const CONCURRENT: [&str; 2] = ["orlop-sync", "orlop-alloc"];
const LIFETIMES: &str = "handle::lifetime_tests::";
const RACES: &str = "_the_last_";
const THREADS: [&str; 7] =
    [LIFETIMES, "slots::", "thread_slot::", "mutex::", "observer::", "threads", "memory_block::"];

/// Many tests panic on purpose. To print a backtrace takes Miri seconds, and the sanitizers long.
const BACKTRACES: &str = "0";

/// The number of thread schedules in which Miri runs the [`RACES`], under each of its aliasing models.
const SEEDS: &str = "-Zmiri-many-seeds=0..2";
const MODELS: [(&str, &str); 2] = [("stacked", ""), ("tree", "-Zmiri-tree-borrows")];

/// Runs the tests under AddressSanitizer, with leaks reported as errors.
pub(crate) fn address(shell: &Shell, depth: SearchDepth) -> Result<Outcome> {
    let host = match sanitized_host(shell) {
        Ok(host) => host,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let packages = match depth {
        SearchDepth::Short => ADDRESS.to_vec(),
        SearchDepth::Full => [&ADDRESS[..], &ADDRESS_LONG].concat(),
    };
    let skipped: Vec<&str> = KEEP_MEMORY.iter().flat_map(|name| ["--skip", name]).collect();
    let run = |label, leaks, filters| {
        let run = AddressRun { label, packages: &packages, flags: ADDRESS_FLAGS, leaks, filters };
        run.start(shell, &host)
    };
    run("san-address", 1, &skipped)?;
    run("san-address-kept", 0, &[&KEEP_MEMORY[..], &ADAPTORS].concat())?;
    Ok(Outcome::Passed(packages.join(", ")))
}

/// Runs the tests of the CUDA backend under AddressSanitizer, on the simulated driver, which is instrumented
/// too. It is a library that the tests load: it finds the sanitizer's runtime in the program, which has to
/// export it.
pub(crate) fn cuda(shell: &Shell) -> Result<Outcome> {
    let host = match sanitized_host(shell) {
        Ok(host) => host,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let flags = format!("{ADDRESS_FLAGS} -Clink-arg=-Wl,--export-dynamic-symbol=__asan_*");
    let run =
        AddressRun { label: "san-cuda", packages: &[CUDA], flags: &flags, leaks: 1, filters: &CUDA_FILTERS };
    run.start(shell, &host)?;
    Ok(Outcome::Passed(CUDA.to_owned()))
}

/// A run of tests under AddressSanitizer.
#[derive(Debug)]
struct AddressRun<'a> {
    label: &'a str,
    packages: &'a [&'a str],
    flags: &'a str,
    /// 1 if memory that is never freed is an error.
    leaks: u8,
    filters: &'a [&'a str],
}

impl AddressRun<'_> {
    fn start(&self, shell: &Shell, host: &str) -> Result<()> {
        let mut command =
            shell.nightly_cargo(&["test", "--quiet", "--no-fail-fast", "--tests", "--target", host]);
        command.args(package_args(self.packages)).env("RUSTFLAGS", with_rustflags(self.flags));
        let options = "allocator_may_return_null=1:detect_stack_use_after_return=1";
        command.env("ASAN_OPTIONS", format!("detect_leaks={}:{options}", self.leaks));
        command.env("CARGO_TARGET_DIR", shell.target().join("asan")).env("RUST_BACKTRACE", BACKTRACES);
        // Instrumented code without any optimisation is several times slower. Debug assertions stay on.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
        command.arg("--").args(self.filters);
        // Fewer random programs than in the plain tests: each step is several times slower.
        if std::env::var_os("ORLOP_CONFORMANCE_CASES").is_none() {
            command.env("ORLOP_CONFORMANCE_CASES", "1");
        }
        shell.run(self.label, &mut command)
    }
}

/// Returns the host target with sanitizers, or the reason why there is none.
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

/// Runs the concurrent tests under ThreadSanitizer, with a standard library that is built for it.
pub(crate) fn thread(shell: &Shell) -> Result<Outcome> {
    let host = match sanitized_host(shell) {
        Ok(host) => host,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    if !has_component(shell, "rust-src") {
        return Ok(Outcome::Skipped("nightly has no rust-src; `cargo xtask setup` says why".to_owned()));
    }
    let mut command = shell.nightly_cargo(&["test", "--quiet", "-Zbuild-std", "--lib", "--target", &host]);
    command.args(package_args(&CONCURRENT)).arg("--").args(THREADS);
    command.env("RUSTFLAGS", with_rustflags("-Zsanitizer=thread"));
    // Some tests fork, and their children start threads.
    command
        .env("TSAN_OPTIONS", "halt_on_error=1:die_after_fork=0")
        .env("CARGO_TARGET_DIR", shell.target().join("tsan"));
    shell.run("san-thread", &mut command)?;
    Ok(Outcome::Passed(CONCURRENT.join(", ")))
}

/// Runs the unit tests under Miri; those that depend on the order of threads with several seeds.
pub(crate) fn miri(shell: &Shell, depth: SearchDepth) -> Result<Outcome> {
    for component in ["miri", "rust-src"] {
        if !has_component(shell, component) {
            return Ok(Outcome::Skipped(format!("nightly has no {component}; `cargo xtask setup` says why")));
        }
    }
    // Miri is single-threaded: concurrent runs use all CPUs.
    let runs = runs(depth);
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    parallel::for_each(&runs, workers, |run| run.start(shell)).into_iter().collect::<Result<()>>()?;
    Ok(Outcome::Passed(MIRI.join(", ")))
}

/// A run of tests under Miri.
#[derive(Debug, Default)]
struct MiriRun {
    label: String,
    packages: Vec<&'static str>,
    /// The targets to build.
    build: &'static [&'static str],
    filters: Vec<&'static str>,
    flags: Vec<&'static str>,
}

/// Returns all runs, the longest first. A crate with long tests has several, because
/// each run has a time limit.
fn runs(depth: SearchDepth) -> Vec<MiriRun> {
    fn without(tests: &[&'static str]) -> Vec<&'static str> {
        tests.iter().flat_map(|name| ["--skip", name]).collect()
    }
    let run = |label: &str, packages: &[&'static str], filters: Vec<&'static str>| {
        let (label, packages) = (format!("san-miri-{label}"), packages.to_vec());
        MiriRun { label, packages, build: &["--lib"], filters, flags: vec![] }
    };
    let others: Vec<&str> = MIRI.into_iter().filter(|&package| package != MIRI_ALONE).collect();
    let short = |tests: &[&'static str]| match depth {
        SearchDepth::Short => without(tests),
        SearchDepth::Full => Vec::new(),
    };
    let mut runs = vec![
        run("alone", &[MIRI_ALONE], [without(&MIRI_APART), without(&[RACES]), short(&MIRI_LONG)].concat()),
        MiriRun {
            flags: vec!["-Zmiri-ignore-leaks"],
            ..run("kept", &[MIRI_OUTSIDE], MIRI_KEEP_MEMORY.to_vec())
        },
        run("others", &others, [without(&MIRI_KEEP_MEMORY), short(&MIRI_OTHERS_LONG)].concat()),
        MiriRun { build: &MIRI_BUILD, ..run("outside", &[MIRI_OUTSIDE], MIRI_TESTS.to_vec()) },
        run("apart", &[MIRI_ALONE], MIRI_APART.to_vec()),
        MiriRun { build: &["--tests"], ..run("plans", &[MIRI_PLANS], vec![]) },
        MiriRun { build: &["--test", "it"], ..run("safe", &[MIRI_SAFE], MIRI_SAFE_TESTS.to_vec()) },
        MiriRun { build: &["--test", "hostile"], ..run("hostile", &[MIRI_HOSTILE], vec![]) },
    ];
    for (label, model) in MODELS {
        let seeds = run(&format!("seeds-{label}"), &[MIRI_ALONE], vec![RACES]);
        runs.push(MiriRun { flags: vec![SEEDS, model], ..seeds });
    }
    runs
}

impl MiriRun {
    fn start(&self, shell: &Shell) -> Result<()> {
        let mut command = shell.nightly_cargo(&["miri", "test", "--quiet"]);
        command.args(package_args(&self.packages)).args(self.build).arg("--").args(&self.filters);
        // Few cases of property tests: Miri is a hundred times slower than the machine.
        let cases = std::env::var("PROPTEST_CASES").unwrap_or_else(|_| "4".to_owned());
        command.env("PROPTEST_CASES", cases);
        // Tests read the environment and the clock.
        let own = std::env::var("MIRIFLAGS").unwrap_or_else(|_| "-Zmiri-disable-isolation".to_owned());
        let flags = [&[own.as_str()], &self.flags[..]].concat().join(" ");
        command.env("RUST_BACKTRACE", BACKTRACES);
        command.env("MIRIFLAGS", flags).env("CARGO_TARGET_DIR", shell.target().join("miri"));
        shell.run(&self.label, &mut command)
    }
}

/// Returns the machine's own target.
pub(crate) fn host(shell: &Shell) -> Option<String> {
    let version = shell.output_of("rustc", &["-vV"])?;
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::test_names;

    /// A filter that matches no test passes.
    #[test]
    fn every_filter_selects_tests() {
        let selects = |packages: &[&str], filters: &[&str]| {
            let names: Vec<String> = packages.iter().flat_map(|package| test_names(package)).collect();
            for filter in filters {
                assert!(names.iter().any(|name| name.contains(filter)), "{packages:?}: {filter}");
            }
        };
        selects(&[&ADDRESS[..], &ADDRESS_LONG].concat(), &KEEP_MEMORY);
        selects(&ADDRESS, &[ADAPTORS[1]]);
        selects(&[CUDA], &[CUDA_FILTERS[1], CUDA_FILTERS[3]]);
        selects(&[MIRI_OUTSIDE], &MIRI_KEEP_MEMORY);
        selects(&[MIRI_ALONE], &MIRI_APART);
        selects(&[MIRI_ALONE], &MIRI_LONG);
        selects(&MIRI, &MIRI_OTHERS_LONG);
        selects(&[MIRI_SAFE], &MIRI_SAFE_TESTS);
        selects(&[MIRI_OUTSIDE], &MIRI_TESTS);
        selects(&[MIRI_ALONE], &[RACES]);
        selects(&CONCURRENT, &THREADS);
    }
}
