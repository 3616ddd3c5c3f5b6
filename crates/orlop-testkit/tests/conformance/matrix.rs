//! Every engine over every backing and under every adaptor.
//!
//! Whole suites along both axes (each engine over each backing, each engine under each adaptor), random
//! programs for all other combinations. A failure names its combination: `adaptor(engine)/backing`.

use orlop_alloc::adaptor::{Decision, Failing, Hardened, Hardening, Limit, Retry, Tracking, Waiting};
use orlop_alloc::backing::{BackingRef, HugePages, Mmap, Null, Pinned, System, Visited};
use orlop_alloc::bfc::{Bfc, BfcPolicy, RegionGrowth, Split};
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2, Rounding, ThreadArenas, UpstreamArena};
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_context::observe::{Logging, Warn};
use orlop_core::{Alignment, Device};
use orlop_testkit::suite::programs_over;
use orlop_testkit::{SuiteProfile, conformance_over};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The name and constructor of a backing.
type BackingCase = (&'static str, fn() -> BackingRef);

const BASES: &[BackingCase] = &[
    ("system", || Arc::new(System::new())),
    ("mmap-4k", || Arc::new(Mmap::new().huge_pages(HugePages::Never))),
    ("mmap-huge", || Arc::new(Mmap::new().huge_pages(HugePages::Always))),
    ("null-cpu", || Arc::new(Null::new(Device::CPU))),
    // A device of an external backend.
    ("null-custom", || Arc::new(Null::new(Device::custom(7, 1)))),
    ("null-cuda", || Arc::new(Null::new(Device::cuda(0)).step(Alignment::PLANNED))),
    ("visited", || Arc::new(Visited::new(System::new(), vec![Arc::new(|_, _, _| ())]))),
    // There is no device backend to pin memory: plain host memory that is declared to be on the CPU.
    ("pinned", || Arc::new(Pinned::new(Arc::new(System::new())))),
];

/// The name and constructor of an adaptor that changes nothing for a correct program.
pub(crate) type AdaptorCase = (&'static str, fn(AllocatorRef) -> AllocatorRef);

pub(crate) const ADAPTORS: &[AdaptorCase] = &[
    ("failing", |upstream| Failing::new(upstream, []).into_ref().erase()),
    ("limit", |upstream| Limit::new(upstream, usize::MAX >> 1).into_ref().erase()),
    ("observed", |upstream| {
        Arc::new(Logging::to_writer(std::io::sink())).attach(&upstream);
        upstream.add_observer(Arc::new(Warn::new()));
        upstream
    }),
    ("retry", |upstream| Retry::new(upstream, 2, |_, _, _| Decision::Retry).into_ref().erase()),
    ("tracking", |upstream| Tracking::new(upstream).into_ref().erase()),
    ("waiting", |upstream| Waiting::new(upstream, Duration::from_millis(1)).into_ref().erase()),
    ("limit(tracking(retry))", |upstream| {
        let tracking = Tracking::new(Retry::new(upstream, 2, |_, _, _| Decision::Retry));
        Limit::new(tracking, usize::MAX >> 1).into_ref().erase()
    }),
    ("tracking(limit)", |upstream| Tracking::new(Limit::new(upstream, usize::MAX >> 1)).into_ref().erase()),
];

/// Adaptors that change requests, or hold memory: they run programs, not the suites.
const CHANGING: &[AdaptorCase] = &[
    ("hardened", |upstream| Hardened::new(upstream, Hardening::new().quarantine(1 << 16)).into_ref().erase()),
    ("guarded", |upstream| Hardened::new(upstream, Hardening::new().guard_pages(7)).into_ref().erase()),
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

fn over_every_backing(engine: &str, profile: SuiteProfile, make: fn(BackingRef) -> AllocatorRef) {
    each(BASES.iter().map(|(base, _)| format!("{engine}/{base}")), |index, name| {
        conformance_over(name, profile, BASES[index].1, make);
    });
}

fn under_every_adaptor(engine: &str, profile: SuiteProfile, make: fn(BackingRef) -> AllocatorRef) {
    let (system, base) = BASES[0];
    each(ADAPTORS.iter().map(|(adaptor, _)| format!("{adaptor}({engine})/{system}")), |index, name| {
        conformance_over(name, profile, base, |backing| ADAPTORS[index].1(make(backing)));
    });
}

fn under_every_adaptor_over_every_backing(
    engine: &str,
    profile: SuiteProfile,
    make: fn(BackingRef) -> AllocatorRef,
) {
    let plane = || {
        let passing = BASES[1..].iter().flat_map(|base| ADAPTORS.iter().map(move |adaptor| (base, adaptor)));
        passing.chain(BASES.iter().flat_map(|base| CHANGING.iter().map(move |adaptor| (base, adaptor))))
    };
    let name =
        |((base, _), (adaptor, _)): (&BackingCase, &AdaptorCase)| format!("{adaptor}({engine})/{base}");
    let mut makers = plane();
    each(plane().map(name), |_, name| {
        if let Some((base, adaptor)) = makers.next() {
            programs_over(name, profile, 1, base.1, |backing| adaptor.1(make(backing)));
        }
    });
}

/// One line per engine: its profile and its constructor.
macro_rules! engines {
    ($($engine:ident: $profile:expr, $make:expr;)+) => {$(
        mod $engine {
            use super::*;

            fn make(backing: BackingRef) -> AllocatorRef {
                let make: fn(BackingRef) -> AllocatorRef = $make;
                make(backing)
            }

            #[test]
            fn over_every_backing() {
                super::over_every_backing(stringify!($engine), $profile, make);
            }

            #[test]
            fn under_every_adaptor() {
                super::under_every_adaptor(stringify!($engine), $profile, make);
            }

            #[test]
            fn under_every_adaptor_over_every_backing() {
                super::under_every_adaptor_over_every_backing(stringify!($engine), $profile, make);
            }
        }
    )+};
}

fn policy(change: fn(&mut BfcPolicy)) -> BfcPolicy {
    let mut policy = BfcPolicy::tensorflow();
    change(&mut policy);
    policy
}

engines! {
    direct: SuiteProfile::strict(), |backing| Direct::new(backing).into_ref().erase();

    bfc: SuiteProfile::strict(), |backing| Bfc::new(backing).into_ref().erase();
    bfc_limited: SuiteProfile::strict().limited(), |backing| {
        let policy = BfcPolicy::tensorflow().releasing_when_stuck();
        Bfc::builder(backing).policy(policy).limit(16 << 20).build().into_ref().erase()
    };
    bfc_fixed: SuiteProfile::strict().limited(), |backing| {
        let builder = Bfc::builder(backing).policy(BfcPolicy::tensorflow_fixed());
        builder.limit((12 << 20) + 100).build().into_ref().erase()
    };
    central_steps: SuiteProfile::strict(), |backing| {
        let policy = policy(|policy| policy.growth = RegionGrowth::Steps { step: 64 << 10 });
        Bfc::builder(backing).policy(policy).build().into_ref().erase()
    };
    central_remainder: SuiteProfile::strict(), |backing| {
        let policy = policy(|policy| policy.split = Split::Remainder { at_least: 512 });
        Bfc::builder(backing).policy(policy.releasing_when_stuck()).build().into_ref().erase()
    };
    central_fine: SuiteProfile::strict(), |backing| {
        let policy = policy(|policy| {
            policy.granule = Alignment::CPU;
            policy.split = Split::Remainder { at_least: 1 };
            policy.growth = RegionGrowth::Doubling { first: 4096 };
        });
        Bfc::builder(backing).policy(policy).build().into_ref().erase()
    };
    // No stamp is ever declared safe: freed memory may still be in use.
    central_clocked: SuiteProfile::strict().without_full_trim(), |backing| {
        Bfc::builder(backing).clock(Arc::default()).build().into_ref().erase()
    };
    central_uncounted: SuiteProfile::strict().uncounted(), |backing| {
        AllocatorRef::with_statistics(Bfc::new(backing), false).erase()
    };

    caching: SuiteProfile::strict(), |backing| Caching::new(backing).into_ref().erase();
    caching_tight: SuiteProfile::strict(), |backing| {
        Caching::builder(backing).slack(NonZeroUsize::MAX).build().into_ref().erase()
    };
    caching_loose: SuiteProfile::strict(), |backing| {
        Caching::builder(backing).slack(NonZeroUsize::MIN).build().into_ref().erase()
    };
    caching_limited: SuiteProfile::strict().limited(), |backing| {
        Caching::builder(backing).limit(16 << 20).build().into_ref().erase()
    };

    pool: SuiteProfile::strict(), |backing| Pool::new(backing).into_ref().erase();
    pool_pow2_small: SuiteProfile::strict(), |backing| {
        Pool::builder(backing).rounding(Rounding::Pow2).bound(3).fixed_bound().build().into_ref().erase()
    };
    pool_of_none: SuiteProfile::strict(), |backing| {
        Pool::builder(backing).bound(0).build().into_ref().erase()
    };

    pow2: SuiteProfile::strict(), |backing| Pow2::new(backing).into_ref().erase();

    arena: SuiteProfile::strict().without_reuse(), |backing| Arena::new(backing, 64 << 10).into_ref().erase();
    arena_limited: SuiteProfile::strict().without_reuse().limited(), |backing| {
        Arena::with_limit(backing, 1 << 20, 24 << 20).into_ref().erase()
    };

    upstream_arena: SuiteProfile::strict().without_reuse(), |backing| {
        UpstreamArena::new(Bfc::new(backing).into_ref().erase(), 64 << 10).into_ref().erase()
    };
    upstream_arena_limited: SuiteProfile::strict().without_reuse().limited(), |backing| {
        let upstream = Direct::new(backing).into_ref().erase();
        UpstreamArena::new(upstream, 1 << 20).with_limit(24 << 20).into_ref().erase()
    };

    thread_arenas: SuiteProfile::strict().without_reuse(), |backing| {
        ThreadArenas::new(backing, 64 << 10).into_ref().erase()
    };
}
