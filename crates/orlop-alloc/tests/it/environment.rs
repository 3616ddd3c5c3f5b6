//! Configuration by environment: each case in a process of its own, because the environment is shared.

use orlop_alloc::context::{Context, CpuConfig};
use orlop_alloc::{Allocator, Request};
use orlop_core::{Device, MemoryKind};
use std::process::Command;

/// Set in the processes below; says what the parent expects.
const CHILD: &str = "ORLOP_TEST_CHILD";

/// What a child does: a context from the environment, one block, and what it got.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let context = Context::with(Device::CPU, CpuConfig::from_env());
    match context.allocator(Device::CPU, MemoryKind::Default) {
        Ok(allocator) => {
            let limited = allocator.allocate(&Request::new(64 << 20)).is_err();
            println!("\nname={} limited={limited}", allocator.name());
        }
        Err(error) => println!("\nerror={error}"),
    }
}

fn told(variables: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().expect("this test");
    let mut command = Command::new(program);
    command.args(["--exact", "environment::child", "--nocapture"]).env(CHILD, "1");
    for name in ["ALLOCATOR", "BACKING", "LIMIT", "LOG", "WARN", "GROWTH", "RELEASE", "HARDENED", "FORK_SAFE"]
    {
        command.env_remove(format!("ORLOP_CPU_{name}"));
    }
    command.envs(variables.iter().copied());
    let output = command.output().expect("the child runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("name=") || line.starts_with("error="));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn nothing_set_is_the_caching_allocator() {
    assert_eq!(told(&[("ORLOP_CPU_BACKING", "mmap")]), "name=caching limited=false");
}

#[test]
fn any_choice_can_be_hardened() {
    let hardened = ("ORLOP_CPU_HARDENED", "1");
    assert_eq!(told(&[hardened]), "name=hardened(caching) limited=false");
    let limit = ("ORLOP_CPU_LIMIT", "32MiB");
    assert_eq!(told(&[("ORLOP_CPU_ALLOCATOR", "bfc"), limit, hardened]), "name=hardened(bfc) limited=true");
}

#[test]
fn names_and_limits_are_followed() {
    let limit = ("ORLOP_CPU_LIMIT", "32MiB");
    assert_eq!(told(&[("ORLOP_CPU_ALLOCATOR", "bfc"), limit]), "name=bfc limited=true");
    let whole = ("ORLOP_CPU_GROWTH", "whole");
    assert_eq!(told(&[("ORLOP_CPU_ALLOCATOR", "bfc"), limit, whole]), "name=bfc-fixed limited=true");
    if cfg!(target_os = "linux") {
        let pages = ("ORLOP_CPU_ALLOCATOR", "host-pages");
        assert_eq!(told(&[pages, limit]), "name=host-pages limited=true");
        assert!(told(&[pages]).starts_with("error=limit"), "it is a device of a size");
    }
    let named = told(&[("ORLOP_CPU_ALLOCATOR", "pool"), ("ORLOP_CPU_WARN", "1"), ("ORLOP_CPU_LOG", "1")]);
    assert!(named.contains("pool") && named.contains("limited=false"), "{named}");
}

#[test]
fn what_cannot_be_understood_is_told() {
    for (variable, value) in [
        ("ORLOP_CPU_ALLOCATOR", "best"),
        ("ORLOP_CPU_BACKING", "disk"),
        ("ORLOP_CPU_LIMIT", "much"),
        ("ORLOP_CPU_LIMIT", "130%"),
        ("ORLOP_CPU_GROWTH", "slow"),
    ] {
        let told = told(&[(variable, value)]);
        assert!(told.starts_with("error=") && told.contains(value), "{variable}={value}: {told}");
    }
}
