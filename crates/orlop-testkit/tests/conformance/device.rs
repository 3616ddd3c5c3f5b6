//! The device engine as an allocator, under each policy, alone and under an adaptor.

use orlop_alloc::adaptor::Tracking;
use orlop_alloc::engine::UpstreamArena;
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_core::Device;
use orlop_device::{DeviceAllocator, HostPages, NullDevice, Policy, TorchConf};
use orlop_testkit::{SuiteProfile, conformance};

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().expect("valid settings"))
}

fn over(policy: &Policy, memory: u64) -> AllocatorRef {
    DeviceAllocator::new(NullDevice::new(Device::cuda(0), memory), policy.clone()).into_ref().erase()
}

#[test]
fn under_every_policy() {
    let policies = [
        torch(""),
        torch("expandable_segments:True"),
        torch("max_split_size_mb:64,roundup_power2_divisions:4"),
        torch("garbage_collection_threshold:0.8,per_process_memory_fraction:0.9"),
        Policy::orlop(),
        Policy::orlop_without_pages(),
        Policy::orlop_bounded_waste(),
    ];
    for policy in &policies {
        conformance(policy.name, SuiteProfile::strict(), || over(policy, 1 << 40));
        let small = format!("{} in 64 MiB", policy.name);
        conformance(&small, SuiteProfile::strict().limited(), || over(policy, 64 << 20));
    }
}

/// The same on memory that can be written, so that the suite checks contents.
#[test]
fn over_pages_of_the_host() {
    if let Err(error) = HostPages::new(0) {
        eprintln!("skipped: {error}");
        return;
    }
    let policies = [
        Policy::orlop(),
        torch("expandable_segments:True"),
        torch(""),
        Policy::orlop_without_pages(),
        Policy::orlop_bounded_waste(),
    ];
    for policy in &policies {
        let over = |memory| {
            let pages = HostPages::new(memory).expect("page remapping is supported");
            DeviceAllocator::new(pages, policy.clone()).into_ref().erase()
        };
        let name = format!("{} over host pages", policy.name);
        conformance(&name, SuiteProfile::strict(), || over(2 << 30));
        conformance(&format!("{name}, 64 MiB"), SuiteProfile::strict().limited(), || over(64 << 20));
    }
}

#[test]
fn under_an_adaptor() {
    let make = || Tracking::new(over(&Policy::orlop(), 1 << 40)).into_ref().erase();
    conformance("tracking(orlop)", SuiteProfile::strict(), make);
}

#[test]
fn arenas_in_device_memory() {
    let profile = SuiteProfile::strict().without_reuse().without_full_trim();
    for (name, memory, profile) in
        [("upstream-arena over orlop", 1 << 40, profile), ("in 64 MiB", 64 << 20, profile.limited())]
    {
        let make = || UpstreamArena::new(over(&Policy::orlop(), memory), 64 << 10).into_ref().erase();
        conformance(name, profile, make);
    }
    if HostPages::new(0).is_ok() {
        let make = || {
            let pages = HostPages::new(2 << 30).expect("page remapping is supported");
            let upstream = DeviceAllocator::new(pages, Policy::orlop()).into_ref().erase();
            UpstreamArena::new(upstream, 64 << 10).into_ref().erase()
        };
        conformance("upstream-arena over host pages", profile, make);
    }
}
