//! Every engine over every backing and under every adaptor.
//!
//! Whole suites along both axes (each engine over each backing, each engine under each adaptor), random
//! programs on the rest of the plane. A failure names its combination: `adaptor(engine)/backing`.

use orlop_alloc::AllocatorRef;
use orlop_alloc::backing::{Global, HugePages, Mmap, Null, Pinned, System, Visited};
use orlop_alloc::central::{Central, Policy, RegionGrowth, Split};
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2, Rounding};
use orlop_core::{Alignment, Device};
use orlop_testkit::{Profile, conformance_over};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A way to make memory.
type Base = (&'static str, fn() -> Global);

const BASES: &[Base] = &[
    ("system", || Arc::new(System::new())),
    ("mmap-4k", || Arc::new(Mmap::new().huge_pages(HugePages::Never))),
    ("mmap-huge", || Arc::new(Mmap::new().huge_pages(HugePages::Always))),
    ("null-cpu", || Arc::new(Null::new(Device::CPU))),
    ("null-cuda", || Arc::new(Null::new(Device::cuda(0)).step(Alignment::PLANNED))),
    ("visited", || Arc::new(Visited::new(System::new(), vec![Arc::new(|_, _, _| ())]))),
    // No device backend is there to pin: plain host memory that says it is on the CPU (L12).
    ("pinned", || Arc::new(Pinned::new(Arc::new(System::new())))),
];

/// Runs `check` for each name and reports all that failed.
fn each<'a>(names: impl IntoIterator<Item = String> + 'a, mut check: impl FnMut(usize, &str)) {
    let mut failed = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(index, &name))) {
            let text = panic.downcast_ref::<String>().cloned();
            failed.push(text.unwrap_or_else(|| format!("{name}: panicked")));
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

fn over_every_backing(engine: &str, profile: Profile, make: fn(Global) -> AllocatorRef) {
    each(BASES.iter().map(|(base, _)| format!("{engine}/{base}")), |index, name| {
        conformance_over(name, profile, BASES[index].1, make);
    });
}

/// One line an engine: its promises, and how it is made.
macro_rules! engines {
    ($($engine:ident: $profile:expr, $make:expr;)+) => {$(
        mod $engine {
            use super::*;

            fn make(backing: Global) -> AllocatorRef {
                let make: fn(Global) -> AllocatorRef = $make;
                make(backing)
            }

            #[test]
            fn over_every_backing() {
                super::over_every_backing(stringify!($engine), $profile, make);
            }
        }
    )+};
}

fn policy(change: fn(&mut Policy)) -> Policy {
    let mut policy = Policy::tensorflow();
    change(&mut policy);
    policy
}

fn central() -> Profile {
    Profile::strict().detecting_misuse()
}

engines! {
    direct: Profile::strict(), |backing| Direct::new(backing).erase();

    bfc: central(), |backing| Central::builder(backing).build().erase();
    bfc_limited: central().limited(), |backing| {
        let policy = Policy::tensorflow().releasing_when_stuck();
        Central::builder(backing).policy(policy).limit(16 << 20).build().erase()
    };
    bfc_fixed: central().limited(), |backing| {
        Central::builder(backing).policy(Policy::tensorflow_fixed()).limit((12 << 20) + 100).build().erase()
    };
    central_steps: central(), |backing| {
        let policy = policy(|policy| policy.growth = RegionGrowth::Steps { step: 64 << 10 });
        Central::builder(backing).policy(policy).build().erase()
    };
    central_remainder: central(), |backing| {
        let policy = policy(|policy| policy.split = Split::Remainder { at_least: 512 });
        Central::builder(backing).policy(policy.releasing_when_stuck()).build().erase()
    };
    central_fine: central(), |backing| {
        let policy = policy(|policy| {
            policy.granule = Alignment::CPU;
            policy.split = Split::Remainder { at_least: 1 };
            policy.growth = RegionGrowth::Doubling { first: 4096 };
        });
        Central::builder(backing).policy(policy).build().erase()
    };
    central_clocked: central(), |backing| Central::builder(backing).clock(Arc::default()).build().erase();
    central_uncounted: central().uncounted(), |backing| {
        Central::builder(backing).without_statistics().build().erase()
    };

    pool: Profile::strict(), |backing| Pool::builder(backing).build().erase();
    pool_pow2_small: Profile::strict(), |backing| {
        Pool::builder(backing).rounding(Rounding::Pow2).bound(3).fixed_bound().build().erase()
    };
    pool_of_none: Profile::strict(), |backing| Pool::builder(backing).bound(0).build().erase();

    pow2: Profile::strict(), |backing| Pow2::new(backing).erase();

    arena: Profile::strict().without_reuse(), |backing| Arena::new(backing, 64 << 10).erase();
    arena_limited: Profile::strict().without_reuse().limited(), |backing| {
        AllocatorRef::new(Arena::with_limit(backing, 1 << 20, 24 << 20)).erase()
    };
}
