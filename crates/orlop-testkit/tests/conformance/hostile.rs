//! Every engine and adaptor against hostile user code.

use crate::matrix::ADAPTORS;
use orlop_alloc::AllocatorRef;
use orlop_alloc::adaptor::Hardened;
use orlop_alloc::backing::{Global, HugePages, Mmap, System};
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::caching::Caching;
use orlop_alloc::device::{DeviceAllocator, HostPages, NullDevice, Policy, TorchConf};
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2};
use orlop_core::Device;
use orlop_testkit::{SuiteProfile, hostile, hostile_over};
use std::sync::Arc;

fn system() -> Global {
    Arc::new(System::new())
}

/// Where lines grow in place.
fn pages() -> Global {
    Arc::new(Mmap::new().huge_pages(HugePages::Never))
}

/// One line an engine: its promises, what it stands on, and how it is made.
macro_rules! engines {
    ($($engine:ident: $profile:expr, $base:expr, $make:expr;)+) => {$(
        #[test]
        fn $engine() {
            hostile_over(stringify!($engine), $profile, $base, $make);
        }
    )+};
}

engines! {
    direct: SuiteProfile::strict(), system, |backing| Direct::new(backing).erase();
    bfc: SuiteProfile::strict(), system, |backing| Bfc::builder(backing).build().erase();
    bfc_releasing: SuiteProfile::strict().limited(), system, |backing| {
        let policy = BfcPolicy::tensorflow().releasing_when_stuck();
        Bfc::builder(backing).policy(policy).limit(8 << 20).build().erase()
    };
    caching: SuiteProfile::strict(), system, |backing| Caching::builder(backing).build().erase();
    caching_in_place: SuiteProfile::strict(), pages, |backing| Caching::builder(backing).build().erase();
    caching_limited: SuiteProfile::strict().limited(), pages, |backing| {
        Caching::builder(backing).limit(8 << 20).build().erase()
    };
    pool: SuiteProfile::strict(), system, |backing| Pool::builder(backing).build().erase();
    pool_of_two: SuiteProfile::strict(), system, |backing| {
        Pool::builder(backing).bound(2).fixed_bound().build().erase()
    };
    pow2: SuiteProfile::strict(), system, |backing| Pow2::new(backing).erase();
    arena: SuiteProfile::strict().without_reuse(), system, |backing| Arena::new(backing, 64 << 10).erase();
    hardened: SuiteProfile::strict(), system, |backing| {
        let inner = Bfc::builder(backing).build_engine();
        AllocatorRef::new(Hardened::builder(inner).quarantine(1 << 16).guard_pages(7).build()).erase()
    };
}

#[test]
fn under_every_adaptor() {
    for &(adaptor, adapt) in ADAPTORS {
        for (engine, make) in [
            ("caching", (|backing| Caching::builder(backing).build().erase()) as fn(Global) -> AllocatorRef),
            ("bfc", |backing| Bfc::builder(backing).build().erase()),
        ] {
            let name = format!("{adaptor}({engine})");
            hostile_over(&name, SuiteProfile::strict(), system, move |backing| adapt(make(backing)));
        }
    }
}

#[test]
fn devices() {
    let torch = |conf: &str| Policy::torch(&conf.parse::<TorchConf>().expect("settings of PyTorch's"));
    for policy in [torch(""), torch("expandable_segments:True"), Policy::orlop()] {
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
            let pages = HostPages::new(64 << 20).expect("there are some");
            DeviceAllocator::new(pages, policy.clone()).into_ref().erase()
        });
    }
}
