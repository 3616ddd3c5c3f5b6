//! Visitors see all memory that an engine has, also where it moves.

use orlop_alloc::backing::{RegionChange, Visitor};
use orlop_alloc::{Allocator, Request};
use orlop_core::Device;
use orlop_device::{DeviceAllocator, NullDevice, Policy, TorchConf, VisitedDevice};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const STEP: usize = 1 << 20;

/// Returns a visitor that keeps the memory that it was called for, in MiB.
fn watching() -> (Visitor, Arc<Mutex<BTreeSet<usize>>>) {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let known = Arc::clone(&seen);
    let visitor = move |change, region: &orlop_alloc::backing::Region, node| {
        assert_eq!(node, None);
        let mut seen = known.lock().expect("not poisoned");
        for at in (region.address()..region.address() + region.bytes).step_by(STEP) {
            let is_new = match change {
                RegionChange::Reserved => seen.insert(at),
                RegionChange::Released => seen.remove(&at),
            };
            assert!(is_new, "twice, or never reserved");
        }
    };
    (Arc::new(visitor), seen)
}

#[test]
fn what_visitors_saw_is_what_is_reserved() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages(), Policy::torch(&TorchConf::default())] {
        let (visitor, seen) = watching();
        let device = VisitedDevice::new(NullDevice::new(Device::cuda(0), 400 << 20), vec![visitor]);
        let allocator = DeviceAllocator::new(device, policy).into_ref();
        let reserved = || usize::try_from(allocator.usage().reserved).unwrap() / STEP;
        let mut blocks: Vec<_> =
            (0..40).map(|_| allocator.allocate(&Request::new(10 << 20)).unwrap()).collect();
        assert_eq!(seen.lock().unwrap().len(), reserved());
        // Every second one is freed: with pages, those of the others move together.
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        let large = allocator.allocate(&Request::new(150 << 20));
        assert_eq!(seen.lock().unwrap().len(), reserved());
        for block in blocks.iter().chain(&large) {
            let start = block.as_ptr().as_ptr().addr();
            let seen = seen.lock().unwrap();
            assert!(
                (start..start + block.len()).step_by(STEP).all(|at| seen.range(..=at).next_back().is_some())
            );
        }
        drop((blocks, large));
        allocator.trim(0);
        assert!(seen.lock().unwrap().is_empty());
    }
}

#[test]
fn a_visitor_that_panics_refuses_memory() {
    let (visitor, seen) = watching();
    let refuses: Visitor = Arc::new(|change, _, _| {
        if change == RegionChange::Reserved {
            std::panic::resume_unwind(Box::new("refused"));
        }
    });
    for policy in [Policy::orlop(), Policy::orlop_without_pages()] {
        let device = NullDevice::new(Device::cuda(0), 400 << 20);
        let device = VisitedDevice::new(device, vec![Arc::clone(&visitor), Arc::clone(&refuses)]);
        let allocator = DeviceAllocator::new(device, policy).into_ref();
        assert!(allocator.allocate(&Request::new(100)).unwrap_err().is_out_of_memory());
        assert!(seen.lock().unwrap().is_empty() && allocator.usage().reserved == 0);
        allocator.with_engine(|engine| assert_eq!(engine.backing().inner().used(), 0));
    }
}

#[test]
fn the_size_of_a_block_is_found_slowly() {
    let allocator =
        DeviceAllocator::new(NullDevice::new(Device::cuda(0), 1 << 30), Policy::orlop()).into_ref();
    let align = orlop_core::Alignment::new(4096).unwrap();
    for request in [Request::new(100), Request::new(3 << 20), Request::new(700).align(align)] {
        let block = allocator.allocate(&request).unwrap();
        // SAFETY: a live block begins there.
        assert_eq!(unsafe { allocator.allocated_size_slow(block.as_ptr()) }, Some(block.capacity()));
    }
}
