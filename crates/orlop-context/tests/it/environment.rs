//! Configuration by the environment: each case in a process of its own, because the environment is global.

use orlop_alloc::{Allocator, Error, Request};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use orlop_testkit::child;

/// The child: a context configured by the environment, one block, and a report of it.
#[test]
fn child() {
    if !child::plays("reader") {
        return;
    }
    let context = Context::with(Device::CPU, AllocatorConfig::from_env());
    match context.allocator(Device::CPU, MemoryKind::Default) {
        Ok(allocator) => {
            let block = allocator.allocate(&Request::new(64 << 20));
            let counted = allocator.stats().totals.all.live_bytes > 0;
            println!("\nname={} limited={} counted={counted}", allocator.name(), block.is_err());
            let Err(Error::OutOfMemory(report)) = allocator.allocate(&Request::new(1 << 50)) else {
                panic!("a petabyte")
            };
            let total = Context::new().device_memory(Device::CPU).expect("this machine tells").total;
            println!("limit={:?} total={total}", report.limit);
        }
        Err(error) => println!("\nerror={error}"),
    }
}

fn told(variables: &[(&str, &str)]) -> String {
    let (text, _) = child::run("environment::child", "reader", variables);
    child::line(&text, &["name=", "error="]).to_owned()
}

#[test]
fn nothing_set_is_the_caching_allocator() {
    assert_eq!(told(&[("ORLOP_CPU_BACKING", "mmap")]), "name=caching limited=false counted=true");
    assert_eq!(told(&[("ORLOP_CPU_ALLOCATOR", "")]), "name=caching limited=false counted=true");
}

#[test]
fn any_choice_can_be_hardened() {
    let hardened = ("ORLOP_CPU_HARDENED", "1");
    assert_eq!(told(&[hardened]), "name=hardened(caching) limited=false counted=true");
    let limit = ("ORLOP_CPU_LIMIT", "32MiB");
    let bfc = told(&[("ORLOP_CPU_ALLOCATOR", "bfc"), limit, hardened]);
    assert!(bfc.starts_with("name=hardened(bfc) limited=true"), "{bfc}");
}

#[test]
fn names_and_limits_are_followed() {
    let limit = ("ORLOP_CPU_LIMIT", "32MiB");
    let is = |told: String, expected: &str| assert!(told.starts_with(expected), "{told}");
    is(told(&[("ORLOP_CPU_ALLOCATOR", "bfc"), limit]), "name=bfc limited=true");
    let whole = ("ORLOP_CPU_GROWTH", "whole");
    is(told(&[("ORLOP_CPU_ALLOCATOR", "bfc"), limit, whole]), "name=bfc-fixed limited=true");
    let doubling = ("ORLOP_CPU_GROWTH", "doubling");
    is(told(&[("ORLOP_CPU_ALLOCATOR", "bfc"), limit, doubling]), "name=bfc limited=true");
    let named = told(&[("ORLOP_CPU_ALLOCATOR", "pool"), ("ORLOP_CPU_WARN", "1"), ("ORLOP_CPU_LOG", "1")]);
    assert!(named.contains("pool") && named.contains("limited=false"), "{named}");
}

#[test]
fn statistics_can_be_switched_off() {
    let off = ("ORLOP_CPU_STATISTICS", "0");
    assert_eq!(told(&[off]), "name=caching limited=false counted=false");
    assert_eq!(told(&[("ORLOP_CPU_STATISTICS", "1")]), "name=caching limited=false counted=true");
    for adaptor in ["ORLOP_CPU_HARDENED", "ORLOP_CPU_WARN", "ORLOP_CPU_LOG"] {
        let told = told(&[off, (adaptor, "1")]);
        assert!(told.ends_with("counted=false"), "{adaptor}: {told}");
    }
}

/// The limit is a share of the memory that the process may use.
#[test]
fn a_limit_can_be_a_share_of_memory() {
    let limits = |percent: &str| {
        let variables = [("ORLOP_CPU_ALLOCATOR", "bfc"), ("ORLOP_CPU_LIMIT", percent)];
        let (text, _) = child::run("environment::child", "reader", &variables);
        let (limit, total) =
            child::line(&text, &["limit="]).split_once(" total=").expect("both figures of the child");
        let limit = limit.trim_start_matches("limit=Some(").trim_end_matches(')').parse::<u64>();
        (limit.expect("a limit"), total.parse::<u64>().expect("a total"))
    };
    for (percent, text) in [(50, "50%"), (100, "100%"), (7, " 7 %")] {
        let (limit, total) = limits(text);
        assert!(limit.abs_diff(total / 100 * percent) <= 100, "{text}: {limit} of {total}");
    }
}

/// `bfc` releases free regions for a larger one: under a limit of 64 MiB, 40 MiB fit only alone.
#[test]
fn release_when_stuck_is_followed() {
    if child::plays("releaser") {
        let context = Context::with(Device::CPU, AllocatorConfig::from_env());
        // Regions of 2, 4, 8 and 16 MiB; then all blocks are freed.
        let blocks: Vec<_> = (0..15).map(|_| context.allocate(Device::CPU, &Request::new(2 << 20))).collect();
        assert!(blocks.iter().all(Result::is_ok));
        drop(blocks);
        let request = Request::new(40 << 20).no_retry();
        println!("\nfits={}", context.allocate(Device::CPU, &request).is_ok());
        return;
    }
    let fits = |release: &str| {
        let bfc =
            [("ORLOP_CPU_ALLOCATOR", "bfc"), ("ORLOP_CPU_LIMIT", "64MiB"), ("ORLOP_CPU_RELEASE", release)];
        let (text, _) = child::run("environment::release_when_stuck_is_followed", "releaser", &bfc);
        child::line(&text, &["fits="]).to_owned()
    };
    assert_eq!([fits(""), fits("0"), fits("1")], ["fits=false", "fits=false", "fits=true"]);
}

#[test]
fn invalid_values_are_errors() {
    for (variable, value) in [
        ("ORLOP_CPU_ALLOCATOR", "best"),
        ("ORLOP_CPU_BACKING", "disk"),
        ("ORLOP_CPU_LIMIT", "much"),
        ("ORLOP_CPU_LIMIT", "130%"),
        ("ORLOP_CPU_LIMIT", "0%"),
        ("ORLOP_CPU_LIMIT", "-3"),
        ("ORLOP_CPU_LIMIT", "half%"),
        ("ORLOP_CPU_GROWTH", "slow"),
        ("ORLOP_CPU_RELEASE", "yes"),
        ("ORLOP_CPU_HARDENED", "full"),
        ("ORLOP_CPU_FORK_SAFE", "2"),
        ("ORLOP_CPU_STATISTICS", "off"),
        ("ORLOP_CPU_WARN", "true"),
        ("ORLOP_CPU_LOG", "stderr"),
    ] {
        let told = told(&[(variable, value)]);
        let expected = format!("error={variable}={value:?} is not ");
        assert!(told.starts_with(&expected), "{variable}={value}: {told}");
    }
}

/// A setting that the chosen engine does not support is an error too: nothing is ignored.
#[test]
fn unsupported_settings_are_errors() {
    let (growth, release) = (("ORLOP_CPU_GROWTH", "whole"), ("ORLOP_CPU_RELEASE", "1"));
    for engine in ["", "caching", "pool", "direct"] {
        for setting in [growth, release] {
            let told = told(&[("ORLOP_CPU_ALLOCATOR", engine), setting]);
            let (variable, value) = setting;
            assert!(told.starts_with(&format!("error={variable}={value:?} is not ")), "{engine}: {told}");
        }
    }
    let unlimited = told(&[("ORLOP_CPU_ALLOCATOR", "bfc"), growth]);
    assert!(unlimited.starts_with("error=ORLOP_CPU_LIMIT="), "the whole of what? {unlimited}");
    let forks = told(&[("ORLOP_CPU_FORK_SAFE", "1"), release]);
    assert!(forks.starts_with("error=ORLOP_CPU_FORK_SAFE="), "{forks}");
}

/// The name in an error is that of the place where the setting is.
#[test]
fn errors_name_the_variable_or_the_builders_setting() {
    const TEST: &str = "environment::errors_name_the_variable_or_the_builders_setting";
    if child::plays("both") {
        let name = |config: AllocatorConfig| match config.make() {
            Err(Error::Configuration { variable, .. }) => variable,
            Err(Error::UnknownName { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        let read = AllocatorConfig::from_env;
        assert_eq!(name(read()), "ORLOP_CPU_RELEASE");
        assert_eq!(name(read().release_when_stuck(false).whole_limit(true)), "growth");
        assert_eq!(name(read().fork_safe()), "fork_safe");
        assert_eq!(name(read().named("bfc").limit(1 << 20).named("missing")), "allocator");
        assert_eq!(name(read().named("bfc-fixed")), "ORLOP_CPU_LIMIT");
        assert_eq!(name(AllocatorConfig::new().named("bfc-fixed")), "limit");
        let pinned = read().whole_limit(true).make_pinned();
        assert!(
            matches!(pinned, Err(Error::Configuration { variable: "ORLOP_CPU_LIMIT", .. })),
            "{pinned:?}"
        );
        return;
    }
    child::run(TEST, "both", &[("ORLOP_CPU_RELEASE", "1")]);
}

#[test]
fn variables_that_look_like_settings_are_errors() {
    for name in ["ORLOP_CPU_LIMITS", "ORLOP_CPU_ALOCATOR", "ORLOP_CPULIMIT", "ORLOP_LIMIT", "ORLOP_CPU_"] {
        assert_eq!(told(&[(name, "1")]), format!("error=no setting has the name {name}"));
    }
    let two = told(&[("ORLOP_WARN", "1"), ("ORLOP_CPU_LIMITS", ""), ("ORLOP_CPU_LIMIT", "32MiB")]);
    assert_eq!(two, "error=no setting has the name ORLOP_CPU_LIMITS or ORLOP_WARN");
    // Other names are others' variables.
    let others = [("ORLOP_CONFORMANCE_CASES", "1"), ("ORLOP_FUZZ_SECONDS", "1"), ("MY_ORLOP_LIMIT", "1")];
    assert_eq!(told(&others), "name=caching limited=false counted=true");
}

#[test]
fn the_error_lists_the_unknown_variables() {
    const TEST: &str = "environment::the_error_lists_the_unknown_variables";
    if child::plays("misspelled") {
        let error = Context::new().allocate(Device::CPU, &Request::new(1)).unwrap_err();
        let Error::UnknownVariables { names } = error else { panic!("{error}") };
        assert_eq!(*names, ["ORLOP_CPU_HARDEND".into()]);
        assert!(AllocatorConfig::from_env().make_pinned().is_err());
        assert!(AllocatorConfig::new().make().is_ok(), "it does not read the environment");
        return;
    }
    child::run(TEST, "misspelled", &[("ORLOP_CPU_HARDEND", "1")]);
}

#[test]
fn the_builder_refuses_what_the_environment_would() {
    let make = |config: AllocatorConfig| config.make().map(|allocator| allocator.name().to_owned());
    assert_eq!(make(AllocatorConfig::new().limit_percent(50)).unwrap(), "caching");
    for percent in [0, 101, u8::MAX] {
        let error = make(AllocatorConfig::new().limit_percent(percent)).unwrap_err();
        assert!(matches!(error, Error::Configuration { variable: "limit_percent", .. }), "{error}");
    }
    let error = make(AllocatorConfig::new().whole_limit(true).limit(1 << 20)).unwrap_err();
    assert!(matches!(error, Error::Configuration { variable: "growth", .. }), "{error}");
    assert_eq!(
        make(AllocatorConfig::new().named("bfc").whole_limit(true).limit(1 << 20)).unwrap(),
        "bfc-fixed"
    );
}
