//! The allocators that can be backings of the CPU's engines: the system's, and those that cargo features add.

use orlop_alloc::backing::{NAMES, default_backing, named};
use orlop_alloc::{Allocator, Error, Request};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Alignment, Device, MemoryKind};
use orlop_testkit::child;

/// The features of this build.
const FEATURES: [(&str, bool); 3] = [
    ("mimalloc", cfg!(feature = "mimalloc")),
    ("jemalloc", cfg!(feature = "jemalloc")),
    ("snmalloc", cfg!(feature = "snmalloc")),
];

#[test]
fn a_feature_adds_its_allocator_and_puts_it_first() {
    for (name, built_in) in FEATURES {
        assert_eq!(NAMES.contains(&name), built_in, "{name}");
        match named(name) {
            Ok(backing) => assert_eq!((backing.name(), built_in), (name, true)),
            Err(error) => {
                assert!(matches!(&error, Error::UnknownName { what: "backing", name: it } if &**it == name));
                assert!(!built_in, "{error}");
            }
        }
    }
    let first = FEATURES.iter().find(|(_, built_in)| *built_in).map_or("system", |&(name, _)| name);
    assert_eq!(NAMES[0], first);
    if std::env::var_os("ORLOP_CPU_BACKING").is_none() {
        assert_eq!(default_backing().unwrap().name(), first);
    }
}

/// Regions of every size and alignment are as requested, zeroed, and disjoint.
#[test]
fn every_named_backing_keeps_its_promises() {
    for &name in NAMES {
        let backing = named(name).unwrap();
        let mut regions = Vec::new();
        for round in 0..2_u8 {
            for bytes in [1, 15, 16, 100, 4096, 70_000, 3 << 20] {
                for align in [1, 16, 64, 256, 4096] {
                    let align = Alignment::new(align).unwrap();
                    let region = backing.reserve(bytes, align).unwrap();
                    assert!(
                        region.bytes >= bytes && region.address().is_multiple_of(align.bytes()),
                        "{name}"
                    );
                    // SAFETY: a live region of a host backing: valid, initialised and unshared.
                    let memory = unsafe { std::slice::from_raw_parts_mut(region.ptr.as_ptr(), region.bytes) };
                    assert!(!region.zeroed || memory.iter().all(|&byte| byte == 0), "{name} {bytes}");
                    memory.fill(regions.len().to_le_bytes()[0]);
                    regions.push(region);
                }
            }
            if round == 0 {
                // Every second region is released, so that later ones may reuse its memory.
                let mut index = 0;
                regions.retain(|&region| {
                    index += 1;
                    if index % 2 == 0 {
                        // SAFETY: reserved above, unused, and released once.
                        unsafe { backing.release(region) };
                    }
                    index % 2 != 0
                });
            }
        }
        for region in regions {
            // SAFETY: a live region, written above.
            let memory = unsafe { std::slice::from_raw_parts(region.ptr.as_ptr(), region.bytes) };
            assert!(memory.iter().all(|&byte| byte == memory[0]), "{name}: regions overlap");
            // SAFETY: reserved above, and released once.
            unsafe { backing.release(region) };
        }
        assert!(backing.reserve(1 << 60, Alignment::CPU).is_none(), "{name}");
    }
}

/// Every engine serves threads over every backing.
#[test]
fn every_engine_works_over_every_named_backing() {
    let registry = Registry::with_builtin();
    for &name in NAMES {
        for engine in ["caching", "bfc", "pool", "pow2", "arena", "direct", "system"] {
            let options = AllocatorConfig::new().backing(named(name).unwrap());
            let allocator = registry.make(engine, &options).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..2_u8 {
                    let allocator = &allocator;
                    scope.spawn(move || {
                        for step in 0..100_usize {
                            let request = Request::new(1 + step * 997).zeroed();
                            let mut block = allocator.allocate(&request).unwrap();
                            let memory = block.bytes_mut().unwrap();
                            assert!(memory.iter().all(|&byte| byte == 0), "{engine} over {name}");
                            memory.fill(thread + 1);
                        }
                    });
                }
            });
            allocator.verify().unwrap();
            assert_eq!(allocator.stats().totals.all.live_bytes, 0, "{engine} over {name}");
        }
    }
}

/// The environment chooses the backing.
#[test]
fn the_environment_names_the_backing() {
    const TEST: &str = "backings::the_environment_names_the_backing";
    if child::plays("named") {
        println!("\nbacking={}", default_backing().unwrap().name());
        let context = Context::with(Device::CPU, AllocatorConfig::from_env().named("direct"));
        // A `Direct` has the name of its backing.
        println!("engine={}", context.allocator(Device::CPU, MemoryKind::Default).unwrap().name());
        let mut block = context.allocate(Device::CPU, &Request::new(1 << 20)).unwrap();
        block.bytes_mut().unwrap().fill(1);
        return;
    }
    for &name in NAMES {
        let (text, _) = child::run(TEST, "named", &[("ORLOP_CPU_BACKING", name)]);
        assert_eq!(child::line(&text, &["backing="]), format!("backing={name}"));
        assert_eq!(child::line(&text, &["engine="]), format!("engine={name}"));
    }
}
