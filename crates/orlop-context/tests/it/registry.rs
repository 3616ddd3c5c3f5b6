//! Tests of the registry.

use orlop_alloc::adaptor::Limit;
use orlop_alloc::backing::{BackingRef, Null};
use orlop_alloc::engine::Direct;
use orlop_alloc::{Allocator, Request, Stats};
use orlop_alloc::{AllocatorRef, Error};
use orlop_context::registry::{Factory, Registration, Registry, register_builtin, registry};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Alignment, Device, MemoryKind};
use std::sync::{Arc, OnceLock};

/// A factory whose allocators are on a device with this index, to distinguish them.
fn on_device(name: &str, priority: i32, index: u16) -> Factory {
    Factory::new(name, priority, move |_| Ok(Direct::new(Null::new(Device::cuda(index))).into_ref().erase()))
}

fn made(registry: &Registry, name: &str) -> u16 {
    registry.make(name, &AllocatorConfig::new()).map_or(u16::MAX, |allocator| allocator.device().index())
}

#[test]
fn the_highest_priority_wins_by_name_and_overall() {
    let registry = Registry::new();
    assert!(registry.best().is_none());
    for (name, priority, index) in [("a", 1, 1), ("b", 5, 2), ("a", 7, 3), ("a", -2, 4), ("c", 7, 5)] {
        assert_eq!(registry.register(on_device(name, priority, index)), Registration::New);
    }
    assert_eq!((made(&registry, "a"), made(&registry, "b"), made(&registry, "c")), (3, 2, 5));
    let best = registry.make_best(&AllocatorConfig::new()).unwrap();
    assert_eq!(best.device().index(), 3, "the first registered among equals");
    let listed: Vec<_> =
        registry.registered().iter().map(|entry| (entry.name.to_string(), entry.priority)).collect();
    assert_eq!(
        listed,
        [("a", 7), ("c", 7), ("b", 5), ("a", 1), ("a", -2)].map(|(name, p)| (name.to_owned(), p))
    );
}

#[test]
fn a_second_registration_changes_nothing_and_says_where_the_first_was() {
    let registry = Registry::new();
    let line = line!() + 1;
    let first = registry.register(on_device("x", 3, 1));
    assert_eq!(first, Registration::New);
    let Registration::AlreadyRegistered { at } = orlop_context::register_allocator!(registry, "x", 3, |_| {
        Ok(Direct::new(Null::new(Device::cuda(9))).into_ref().erase())
    }) else {
        panic!("registered twice")
    };
    assert_eq!((at.file(), at.line()), (file!(), line));
    assert_eq!(made(&registry, "x"), 1);
    let listed = registry.registered();
    assert_eq!((listed.len(), listed[0].at), (1, at));
    assert!(listed[0].to_string().contains("priority 3"), "{}", listed[0]);
}

#[test]
fn of_many_racing_registrations_one_wins() {
    let registry = Registry::new();
    let new: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|index| {
                let registry = &registry;
                scope.spawn(move || {
                    usize::from(registry.register(on_device("race", 1, index)) == Registration::New)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((new, registry.registered().len()), (1, 1));
}

#[test]
fn one_allocator_and_one_backing_are_kept_for_each_factory_and_node() {
    let registry = Registry::with_builtin();
    let first = registry.allocator("pool", None).unwrap();
    assert!(registry.allocator("pool", None).unwrap().same_as(&first));
    let on_node = registry.allocator("pool", Some(0)).unwrap();
    assert!(!on_node.same_as(&first));
    assert!(registry.allocator("pool", Some(0)).unwrap().same_as(&on_node));
    assert!(!registry.allocator("pow2", None).unwrap().same_as(&first));
    assert!(!registry.make("pool", &AllocatorConfig::new()).unwrap().same_as(&first));
    let best = registry.best_allocator(None).unwrap();
    assert_eq!(best.name(), "caching");
    assert!(registry.allocator("caching", None).unwrap().same_as(&best));
    let backing = registry.backing("pool", Some(0)).unwrap();
    assert_eq!(backing.node(), Some(0));
    assert!(Arc::ptr_eq(&backing, &registry.backing("pool", Some(0)).unwrap()));
    assert!(!Arc::ptr_eq(&backing, &registry.backing("pool", None).unwrap()));
}

#[test]
fn racing_first_calls_get_the_same_allocator() {
    let registry = Registry::with_builtin();
    let got: Vec<AllocatorRef> = std::thread::scope(|scope| {
        let ask = || registry.allocator("pow2", Some(0)).unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(got.iter().all(|allocator| allocator.same_as(&got[0])));
}

#[test]
fn a_registration_after_the_first_allocator_is_late() {
    let registry = Registry::new();
    assert_eq!(registry.register(on_device("x", 1, 1)), Registration::New);
    assert!(registry.make("unknown", &AllocatorConfig::new()).is_err());
    assert_eq!(registry.register(on_device("y", 1, 2)), Registration::New, "nothing was handed out");
    let kept = registry.best_allocator(None).unwrap();
    assert_eq!(registry.register(on_device("x", 9, 3)), Registration::Late);
    // It is registered, and existing allocators stay in use.
    assert_eq!((kept.device().index(), made(&registry, "x")), (1, 3));
    assert_eq!(registry.best_allocator(None).unwrap().device().index(), 3);
    assert!(matches!(registry.register(on_device("x", 9, 4)), Registration::AlreadyRegistered { .. }));
}

#[test]
fn settings_of_one_engine_are_refused_by_the_others() {
    let registry = Registry::with_builtin();
    let whole = AllocatorConfig::new().limit(8 << 20).whole_limit(true);
    let releasing = AllocatorConfig::new().limit(8 << 20).release_when_stuck(true);
    for entry in registry.registered() {
        let follows = entry.name.starts_with("bfc");
        for options in [&whole, &releasing] {
            let refused = registry.make(&entry.name, options).is_err_and(|error| {
                matches!(error, Error::Configuration { variable: "growth" | "release", .. })
            });
            assert_eq!(refused, !follows, "{entry}");
        }
    }
    assert_eq!(registry.make("bfc", &whole).unwrap().name(), "bfc-fixed");
    assert!(registry.make("bfc", &AllocatorConfig::new().whole_limit(true)).is_err(), "a limit is needed");
}

#[test]
fn a_node_or_backing_that_is_unsupported_is_refused() {
    let registry = Registry::with_builtin();
    let refused = |name: &str, options: &AllocatorConfig| match registry.make(name, options) {
        Err(Error::Configuration { variable, .. }) => variable,
        _ => "",
    };
    let plain = AllocatorConfig::new().limit(8 << 20);
    for entry in registry.registered() {
        let name = &*entry.name;
        assert_eq!(refused(name, &plain.clone().node(0)) == "node", name == "system");
        let given = plain.clone().backing(Arc::new(Null::new(Device::CPU)));
        assert_eq!(refused(name, &given), "", "{name}");
    }
}

#[test]
fn statistics_are_off_in_every_engine_if_they_are_switched_off() {
    let registry = Registry::with_builtin();
    for entry in registry.registered() {
        // Some engines have a limit adaptor in front; without a limit the engine itself is tested.
        let limits =
            if &*entry.name == "bfc-fixed" { vec![Some(8 << 20)] } else { vec![None, Some(8 << 20)] };
        for (limit, on) in limits.into_iter().flat_map(|limit| [(limit, true), (limit, false)]) {
            let mut options = AllocatorConfig::new().statistics(on);
            options.limit = limit;
            let allocator = registry.make(&entry.name, &options).unwrap();
            let block = allocator.allocate(&Request::new(1000)).unwrap();
            drop(allocator.allocate(&Request::new(3000)).unwrap());
            allocator.reset_peaks();
            let Stats { totals, usage, .. } = allocator.stats();
            // Blocks are counted in any case: the allocator must outlive them.
            assert_eq!((totals.all.allocations, totals.all.live_blocks()), (2, 1), "{entry}");
            let bytes = totals.all.allocated_bytes + totals.all.live_bytes + totals.all.peak_bytes;
            let sizes = bytes + totals.all.freed_bytes + totals.all.requested_bytes + totals.largest;
            assert_eq!(sizes > 0, on, "{entry}: {totals:?}");
            assert!(usage.reserved > 0, "{entry}");
            drop(block);
            assert_eq!(allocator.stats().totals.all.live_blocks(), 0, "{entry}");
        }
    }
}

#[test]
fn unknown_names_are_errors() {
    let registry = Registry::new();
    let options = AllocatorConfig::new();
    let error = registry.make("unknown", &options).unwrap_err();
    assert!(
        matches!(error, Error::UnknownName { what: "allocator", ref name } if &**name == "unknown"),
        "{error}"
    );
    assert!(registry.make_best(&options).is_err());
    assert!(registry.make_backing("unknown", &options).is_err());
    assert_eq!(registry.register(on_device("no backing", 0, 0)), Registration::New);
    let error = registry.make_backing("no backing", &options).unwrap_err();
    assert!(matches!(error, Error::UnknownName { what: "backing", .. }), "{error}");
}

#[test]
fn a_factory_may_use_the_registry() {
    static OWN: OnceLock<Registry> = OnceLock::new();
    let registry = OWN.get_or_init(Registry::new);
    let nested = Factory::new("outer", 0, |options| {
        let _ = registry.register(on_device("outer", 1, 6));
        registry.make("outer", options)
    });
    assert_eq!(registry.register(nested), Registration::New);
    assert_eq!(made(registry, "outer"), 6);
}

#[test]
fn the_built_in_ones_work_and_follow_the_options() {
    let registry = Registry::with_builtin();
    register_builtin(&registry);
    for entry in registry.registered() {
        let allocator = registry.make(&entry.name, &AllocatorConfig::new().limit(2 << 20)).unwrap();
        let block = allocator.allocate(&Request::new(1000)).unwrap();
        assert_eq!(block.device(), Device::CPU, "{entry}");
        assert!(allocator.allocate(&Request::new(4 << 20)).is_err(), "{entry}");
    }
    let device: BackingRef = Arc::new(Null::new(Device::cuda(1)));
    for name in ["bfc", "direct", "system"] {
        let allocator = registry.make(name, &AllocatorConfig::new().backing(device.clone())).unwrap();
        assert_eq!(allocator.device(), Device::cuda(1), "{name}");
    }
    let missing = registry.make("bfc-fixed", &AllocatorConfig::new()).unwrap_err();
    assert!(matches!(missing, Error::Configuration { variable: "limit", .. }), "{missing}");
}

#[test]
fn backings_are_made_per_node() {
    let backing = registry().make_backing("bfc", &AllocatorConfig::new().node(0)).unwrap();
    assert_eq!(backing.node(), Some(0));
    let region = backing.reserve(4096, Alignment::CPU).unwrap();
    // SAFETY: reserved above, released once.
    unsafe { backing.release(region) };
}

/// A device's factories: that of the highest priority makes the allocator that all contexts have there.
#[test]
fn the_preferred_factory_of_a_device_serves_it() {
    // A device of its own: the process has one registry.
    let device = Device::cuda(13);
    let factory = |name: &'static str, priority| {
        Factory::new(name, priority, move |_| {
            let limit = Limit::new(Direct::new(Null::new(device)), 1 << 20);
            Ok(limit.into_ref().erase())
        })
    };
    let context = Context::new();
    assert!(matches!(
        context.allocate(device, &Request::new(1)),
        Err(Error::NoAllocator { device: missing, .. }) if missing == device
    ));
    for (name, priority) in [("usual", 0), ("preferred", 5), ("spare", -5)] {
        assert_eq!(registry().register_for(device, factory(name, priority)), Registration::New);
    }
    assert!(matches!(
        registry().register_for(device, factory("usual", 0)),
        Registration::AlreadyRegistered { .. }
    ));
    let names: Vec<_> = registry().registered_for(device).into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["preferred", "usual", "spare"].map(Box::from));
    let preferred = registry().allocator_for(device).unwrap().unwrap();
    let block = context.allocate(device, &Request::new(1000)).unwrap();
    assert!(block.allocator().unwrap().same_as(&preferred));
    // Another context shares it; an allocator of its own comes first.
    let other = Context::new();
    assert!(other.allocator(device, MemoryKind::KvCache).unwrap().same_as(&preferred));
    let own = Context::new();
    let mine = Direct::new(Null::new(device)).into_ref().erase();
    own.register(device, MemoryKind::Default, mine.clone()).unwrap();
    assert!(own.allocator(device, MemoryKind::Default).unwrap().same_as(&mine));
    // A kind of its own, and the factory's for the others.
    let mixed = Context::new();
    mixed.register(device, MemoryKind::KvCache, mine.clone()).unwrap();
    assert!(mixed.allocate(device, &Request::new(8).kind(MemoryKind::Workspace)).is_ok());
    assert!(mixed.allocator(device, MemoryKind::KvCache).unwrap().same_as(&mine));
    // What is in use stays in use.
    assert_eq!(registry().register_for(device, factory("later", 9)), Registration::Late);
    assert!(other.allocator(device, MemoryKind::Default).unwrap().same_as(&preferred));
}
