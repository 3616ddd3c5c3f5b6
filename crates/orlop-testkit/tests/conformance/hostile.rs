//! Every engine and adaptor against hostile user code.

use crate::matrix::ADAPTORS;
use orlop_alloc::adaptor::{Hardened, Hardening};
use orlop_alloc::backing::{BackingRef, HugePages, Mmap, System};
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2, ThreadArenas, UpstreamArena};
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_core::Device;
use orlop_device::{DeviceAllocator, HostPages, NullDevice, Policy as DevicePolicy, TorchConf};
use orlop_testkit::{SuiteProfile, hostile, hostile_over};
use std::sync::Arc;

fn system() -> BackingRef {
    Arc::new(System::new())
}

/// Returns a backing whose reservations grow in place.
fn pages() -> BackingRef {
    Arc::new(Mmap::new().huge_pages(HugePages::Never))
}

/// One line per engine: its profile, its backing, and its constructor.
macro_rules! engines {
    ($($engine:ident: $profile:expr, $base:expr, $make:expr;)+) => {$(
        #[test]
        fn $engine() {
            hostile_over(stringify!($engine), $profile, $base, $make);
        }
    )+};
}

engines! {
    direct: SuiteProfile::strict(), system, |backing| Direct::new(backing).into_ref().erase();
    bfc: SuiteProfile::strict(), system, |backing| Bfc::new(backing).into_ref().erase();
    bfc_releasing: SuiteProfile::strict().limited(), system, |backing| {
        let policy = BfcPolicy::tensorflow().releasing_when_stuck();
        Bfc::builder(backing).policy(policy).limit(8 << 20).build().into_ref().erase()
    };
    caching: SuiteProfile::strict(), system, |backing| Caching::new(backing).into_ref().erase();
    caching_in_place: SuiteProfile::strict(), pages, |backing| Caching::new(backing).into_ref().erase();
    caching_limited: SuiteProfile::strict().limited(), pages, |backing| {
        Caching::builder(backing).limit(8 << 20).build().into_ref().erase()
    };
    pool: SuiteProfile::strict(), system, |backing| Pool::new(backing).into_ref().erase();
    pool_of_two: SuiteProfile::strict(), system, |backing| {
        Pool::builder(backing).bound(2).fixed_bound().build().into_ref().erase()
    };
    pow2: SuiteProfile::strict(), system, |backing| Pow2::new(backing).into_ref().erase();
    arena: SuiteProfile::strict().without_reuse(), system, |backing| {
        Arena::new(backing, 64 << 10).into_ref().erase()
    };
    upstream_arena: SuiteProfile::strict().without_reuse(), system, |backing| {
        UpstreamArena::new(Bfc::new(backing).into_ref().erase(), 64 << 10).into_ref().erase()
    };
    thread_arenas: SuiteProfile::strict().without_reuse(), system, |backing| {
        ThreadArenas::new(backing, 64 << 10).into_ref().erase()
    };
    hardened: SuiteProfile::strict(), system, |backing| {
        let inner = Bfc::new(backing);
        Hardened::new(inner, Hardening::new().quarantine(1 << 16).guard_pages(7)).into_ref().erase()
    };
}

fn under_every_adaptor(engine: &str, make: fn(BackingRef) -> AllocatorRef) {
    for &(adaptor, adapt) in ADAPTORS {
        let name = format!("{adaptor}({engine})");
        hostile_over(&name, SuiteProfile::strict(), system, move |backing| adapt(make(backing)));
    }
}

#[test]
fn adaptors_over_caching() {
    under_every_adaptor("caching", |backing| Caching::new(backing).into_ref().erase());
}

#[test]
fn adaptors_over_bfc() {
    under_every_adaptor("bfc", |backing| Bfc::new(backing).into_ref().erase());
}

#[test]
fn devices() {
    let torch = |conf: &str| DevicePolicy::torch(&conf.parse::<TorchConf>().expect("valid settings"));
    for policy in [torch(""), torch("expandable_segments:True"), DevicePolicy::orlop()] {
        let make = {
            let policy = policy.clone();
            move || {
                DeviceAllocator::new(NullDevice::new(Device::cuda(0), 1 << 40), policy.clone())
                    .into_ref()
                    .erase()
            }
        };
        hostile(policy.name, SuiteProfile::strict(), make);
        if HostPages::new(0).is_err() {
            continue;
        }
        let name = format!("{} over host pages", policy.name);
        hostile(&name, SuiteProfile::strict(), move || {
            let pages = HostPages::new(64 << 20).expect("page remapping is supported");
            DeviceAllocator::new(pages, policy.clone()).into_ref().erase()
        });
    }
}
