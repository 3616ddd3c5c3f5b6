//! The choice of the CPU's default allocator, and the contexts that share it.

use orlop_alloc::backing::{System, Visitor, default_backing};
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, AllocatorRef, Error, Request};
use orlop_context::NodeAllocators;
use orlop_context::register_allocator;
use orlop_context::registry::{Registration, registry};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use orlop_testkit::child;
use std::sync::Arc;

/// Returns the allocator for the default kind of a context on the CPU.
fn default_of(context: &Context) -> AllocatorRef {
    context.allocator(Device::CPU, MemoryKind::Default).expect("the CPU has one")
}

/// Returns the name of the default backing, which cargo features can replace.
fn default_name() -> String {
    default_backing().expect("nothing is set").name().to_owned()
}

fn alone(test: &str) -> bool {
    if child::plays(test) {
        return true;
    }
    child::run(&format!("defaults::{test}"), test, &[]);
    false
}

#[test]
fn the_rule_is_name_visitors_node_priority() {
    let name = |config: AllocatorConfig| config.make().expect("it can be followed").name().to_owned();
    let visitor: Visitor = Arc::new(|_, _, _| {});
    let full = AllocatorConfig::new().named("pow2").visitor(visitor.clone()).node(0);
    assert_eq!(name(full), "pow2");
    assert_eq!(name(AllocatorConfig::new().visitor(visitor.clone()).node(0)), "bfc");
    assert_eq!(name(AllocatorConfig::new().visitor(visitor)), "bfc");
    assert_eq!(name(AllocatorConfig::new().node(0)), "pool");
    assert_eq!(name(AllocatorConfig::new()), "caching");
    let forks = AllocatorConfig::new().fork_safe();
    assert_eq!(name(forks.clone()), "caching");
    assert!(matches!(forks.named("pool").make(), Err(Error::Configuration { .. })));
}

#[test]
fn the_factory_of_the_highest_priority_makes_the_default() {
    if !alone("the_factory_of_the_highest_priority_makes_the_default") {
        return;
    }
    let registered = register_allocator!("mine", 200, |options| {
        Ok(Direct::new(options.backing_or_default()?).into_ref().erase())
    });
    assert_eq!(registered, Registration::New);
    // Below the built-in factories: it does not change the default.
    let low = register_allocator!("low", 1, |_| Err(Error::NoRawDeleter));
    assert_eq!(low, Registration::New);
    for context in [Context::current(), Context::new(), Context::with(Device::CPU, AllocatorConfig::new())] {
        assert_eq!(default_of(&context).name(), default_name(), "a `Direct` has its backing's name");
        assert!(context.allocate(Device::CPU, &Request::new(100)).is_ok());
    }
    // The rule still decides first.
    assert_eq!(AllocatorConfig::new().node(0).make().unwrap().name(), "pool");
}

#[test]
fn a_factory_by_a_built_in_name_takes_its_place() {
    if !alone("a_factory_by_a_built_in_name_takes_its_place") {
        return;
    }
    let better = register_allocator!("bfc", 101, |options| {
        let visited = options.backing.clone().expect("visitors are in the backing");
        Ok(Direct::new(visited).into_ref().erase())
    });
    assert_eq!(better, Registration::New);
    let visitor: Visitor = Arc::new(|_, _, _| {});
    let config = AllocatorConfig::new().visitor(visitor);
    assert_eq!(config.make().unwrap().name(), default_name());
}

#[test]
fn the_process_default_is_what_the_registry_keeps() {
    if !alone("the_process_default_is_what_the_registry_keeps") {
        return;
    }
    let default = default_of(&Context::current());
    assert!(registry().best_allocator(None).unwrap().same_as(&default));
    assert!(registry().allocator("caching", None).unwrap().same_as(&default));
    // Other contexts have statistics of their own.
    let other = Context::new();
    let _block = default.allocate(&Request::new(1000)).unwrap();
    assert!(!default_of(&other).same_as(&default));
    assert_eq!(other.stats(Device::CPU).totals.all.live_bytes, 0);
    // The default is in use now.
    let late = register_allocator!("late", 300, |options| {
        Ok(Direct::new(options.backing_or_default()?).into_ref().erase())
    });
    assert_eq!(late, Registration::Late);
    assert!(default_of(&Context::current()).same_as(&default));
}

#[test]
fn the_process_default_with_settings_is_its_own() {
    const TEST: &str = "the_process_default_with_settings_is_its_own";
    if !child::plays(TEST) {
        child::run(&format!("defaults::{TEST}"), TEST, &[("ORLOP_CPU_LIMIT", "1MiB")]);
        return;
    }
    let default = default_of(&Context::current());
    assert!(!registry().best_allocator(None).unwrap().same_as(&default));
    assert!(default.allocate(&Request::new(2 << 20)).is_err(), "the limit holds");
    assert!(registry().best_allocator(None).unwrap().allocate(&Request::new(2 << 20)).is_ok());
}

#[test]
fn the_process_default_is_set_once_and_before_it_is_asked_for() {
    const TEST: &str = "the_process_default_is_set_once_and_before_it_is_asked_for";
    if !alone(TEST) {
        return;
    }
    let mine = Context::with(Device::cuda(3), AllocatorConfig::new());
    let allocator = Direct::new(System::new()).into_ref().erase();
    mine.register(Device::CPU, MemoryKind::Default, allocator.clone()).unwrap();
    mine.clone().set_process_default().unwrap();
    let seen = std::thread::spawn(Context::current).join().expect("no panic");
    for context in [Context::current(), seen] {
        assert_eq!(context.default_device(), Device::cuda(3));
        assert!(default_of(&context).same_as(&allocator));
    }
    let second = Context::with(Device::CPU, AllocatorConfig::new()).set_process_default();
    assert!(matches!(second, Err(Error::ContextAlreadySet)));
    assert!(default_of(&Context::current()).same_as(&allocator), "the first stays");
    // A scope goes before it.
    let inner = Context::with(Device::CPU, AllocatorConfig::new());
    assert_eq!(inner.scope(|| Context::current().default_device()), Device::CPU);
}

#[test]
fn the_process_default_cannot_be_set_after_it_was_used() {
    if !alone("the_process_default_cannot_be_set_after_it_was_used") {
        return;
    }
    let used = Context::current();
    let mine = Context::with(Device::cuda(3), AllocatorConfig::new());
    assert!(matches!(mine.set_process_default(), Err(Error::ContextAlreadySet)));
    assert_eq!(Context::current().default_device(), used.default_device());
}

#[test]
fn nodes_are_served_as_configured() {
    let small =
        NodeAllocators::configured(AllocatorConfig::new().named("bfc").limit(4 << 20).whole_limit(true));
    for node in [None, Some(0)] {
        let allocator = small.for_node(node).unwrap();
        assert_eq!(allocator.name(), "bfc-fixed");
        assert!(allocator.allocate(&Request::new(3 << 20)).is_ok());
        assert!(allocator.allocate(&Request::new(5 << 20)).is_err());
    }
    let wrong = NodeAllocators::configured(AllocatorConfig::new().named("missing"));
    assert!(matches!(wrong.for_node(Some(0)), Err(Error::UnknownName { .. })));
}

#[test]
fn nodes_are_served_as_the_environment_says() {
    const TEST: &str = "nodes_are_served_as_the_environment_says";
    if !child::plays(TEST) {
        let variables = [("ORLOP_CPU_ALLOCATOR", "pow2"), ("ORLOP_CPU_LIMIT", "1MiB")];
        child::run(&format!("defaults::{TEST}"), TEST, &variables);
        return;
    }
    let nodes = NodeAllocators::configured(AllocatorConfig::from_env());
    let allocator = nodes.for_node(Some(0)).unwrap();
    assert_eq!(allocator.name(), "limit(pow2)");
    assert!(allocator.allocate(&Request::new(2 << 20)).is_err());
    // The registry's own are not configured.
    assert_eq!(registry().allocator("pow2", None).unwrap().name(), "pow2");
}

#[test]
fn a_configuration_for_nodes_puts_pages_on_each() {
    // As `NodeAllocators` does on a machine with several nodes.
    let config = AllocatorConfig::new();
    let nodes = NodeAllocators::with_nodes(2, move |node| match node {
        Some(node) => config.clone().node(node).make(),
        None => config.make(),
    });
    assert_eq!(nodes.for_node(Some(1)).unwrap().name(), "pool");
    assert_eq!(nodes.for_node(None).unwrap().name(), "caching");
}
