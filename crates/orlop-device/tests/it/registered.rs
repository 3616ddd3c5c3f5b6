//! `host-pages` by name, after the init function was called.

use orlop_alloc::backing::{Null, Region, RegionChange, Visitor};
use orlop_alloc::{Allocator, Error, Request};
use orlop_context::AllocatorConfig;
use orlop_context::registry::{Registry, registry};
use orlop_core::Device;
use orlop_testkit::child;
use std::sync::Arc;

const NAME: &str = "host-pages";

fn registered() -> Registry {
    let registry = Registry::with_builtin();
    orlop_device::register(&registry);
    registry
}

fn limited() -> AllocatorConfig {
    AllocatorConfig::new().limit(8 << 20)
}

/// Returns the setting that is refused.
fn refused(options: &AllocatorConfig) -> &'static str {
    match registered().make(NAME, options) {
        Err(Error::Configuration { variable, .. }) => variable,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_exists_where_it_is_registered() {
    assert!(Registry::with_builtin().factory(NAME).is_none());
    let registry = registered();
    orlop_device::register(&registry);
    assert_eq!(registry.registered().iter().filter(|entry| &*entry.name == NAME).count(), 1);
    let entry =
        registry.registered().into_iter().find(|entry| &*entry.name == NAME).expect("it is registered");
    assert_eq!(
        (entry.priority, entry.at.file()),
        (25, file!()),
        "the place of registration is the program's call"
    );
    let best = registry.best().expect("built-in factories exist");
    assert_eq!(best.name(), "caching", "the default of the CPU stays");
}

#[test]
fn it_follows_the_limit_and_the_statistics() {
    // Whole pages, and never more than the limit.
    let pages = registered().make(NAME, &AllocatorConfig::new().limit((6 << 20) - 1)).unwrap();
    assert_eq!(pages.device_memory().map(|memory| memory.total), Some(4 << 20));
    let uncounted = registered().make(NAME, &limited().statistics(false)).unwrap();
    let block = uncounted.allocate(&Request::new(1000)).unwrap();
    let totals = uncounted.stats().totals.all;
    assert_eq!((totals.live_blocks(), totals.live_bytes, block.device()), (1, 0, Device::CPU));
    assert!(uncounted.allocate(&Request::new(10 << 20)).is_err());
}

#[test]
fn unsupported_settings_are_refused() {
    assert_eq!(refused(&AllocatorConfig::new()), "limit", "the limit is required");
    assert_eq!(refused(&AllocatorConfig::new().limit((2 << 20) - 1)), "limit");
    assert_eq!(refused(&limited().node(0)), "node");
    assert_eq!(refused(&limited().backing(Arc::new(Null::new(Device::CPU)))), "backing");
    assert_eq!(refused(&limited().whole_limit(true)), "growth");
    assert_eq!(refused(&limited().release_when_stuck(true)), "release");
}

#[test]
fn a_configuration_can_name_it() {
    orlop_device::register(registry());
    let config = AllocatorConfig::new().named(NAME).limit(8 << 20);
    assert_eq!(config.clone().make().unwrap().name(), NAME);
    // An engine that takes no backing cannot call visitors, so the visitor is refused.
    let visitor: Visitor = Arc::new(|_: RegionChange, _: &Region, _: Option<u32>| {});
    let refused = config.visitor(visitor).make();
    assert!(matches!(refused, Err(Error::Configuration { variable: "backing", .. })));
}

/// The child: the allocator by its name, and what it has before the first request.
#[test]
fn child() {
    if !child::plays("registered") {
        return;
    }
    match registered().make(NAME, &limited()) {
        Ok(pages) => {
            let reserved = pages.stats().usage.reserved;
            let is_limited = pages.allocate(&Request::new(6 << 20)).is_err();
            println!("\nreserved={reserved} limited={is_limited}");
        }
        Err(error) => println!("\nerror={error}"),
    }
}

/// Settings of the environment reach an allocator that is created by name.
#[test]
fn it_follows_the_environment() {
    let told = |variables: &[(&str, &str)]| {
        let (text, _) = child::run("registered::child", "registered", variables);
        child::line(&text, &["reserved=", "error="]).to_owned()
    };
    assert_eq!(told(&[]), "reserved=0 limited=false");
    assert_eq!(told(&[("ORLOP_DEVICE_PREALLOCATE", "50%")]), "reserved=4194304 limited=false");
    assert_eq!(
        told(&[("ORLOP_DEVICE_LIMIT", "4MiB"), ("ORLOP_DEVICE_PREALLOCATE", "2MiB")]),
        "reserved=2097152 limited=true"
    );
    let misread = told(&[("ORLOP_DEVICE_LIMIT", "much")]);
    assert!(misread.contains("ORLOP_DEVICE_LIMIT"), "{misread}");
}
