//! Addresses are reserved as they are used, and large growth takes few pages.

use super::*;
use crate::{BackingError, DeviceAllocator, DeviceBacking, DeviceError, EventId};
use orlop_alloc::{Allocator, Request};
use orlop_core::ByteSize;
use std::sync::atomic::{AtomicU64, Ordering};

const GIB: u64 = 1 << 30;

/// A device of pages that counts addresses, and has as many as it is told.
#[derive(Debug)]
struct CountingDevice {
    inner: NullDevice,
    addresses: AtomicU64,
    max_addresses: u64,
    pages: AtomicU64,
}

impl CountingDevice {
    fn new(memory: u64, max_addresses: u64) -> Self {
        let inner = NullDevice::new(Device::cuda(0), memory);
        Self { inner, addresses: AtomicU64::new(0), max_addresses, pages: AtomicU64::new(0) }
    }
}

// SAFETY: the device's, with counters.
unsafe impl DeviceBacking for CountingDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        self.inner.allocate(bytes)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release(address, bytes) }
    }

    fn page_granularity(&self) -> Option<usize> {
        Some(2 * MIB)
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        let reserved = self.addresses.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if reserved > self.max_addresses {
            self.addresses.fetch_sub(bytes as u64, Ordering::Relaxed);
            return Err(BackingError::OutOfMemory);
        }
        self.inner.reserve_addresses(bytes)
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        self.addresses.fetch_sub(bytes as u64, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release_addresses(address, bytes) }
    }

    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        self.pages.fetch_add((bytes / page) as u64, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.map(address, bytes, page) }
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.unmap(address, bytes, page) }
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.remap(from, to, bytes, page) }
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        self.inner.record(stream)
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        self.inner.query(event)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        self.inner.synchronize(event)
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        self.inner.wait(stream, event)
    }

    fn memory(&self) -> u64 {
        self.inner.memory()
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn name(&self) -> &'static str {
        "counting"
    }
}

fn stream(number: u64) -> StreamId {
    StreamId::from_raw(1000 + number)
}

/// Small and large requests of 32 streams on 80 GiB, with and without growing ranges.
#[test]
fn streams_reserve_the_addresses_they_use() {
    let reserved = |policy: Policy| {
        let mut engine = Engine::new(CountingDevice::new(80 * GIB, u64::MAX), policy);
        let blocks = (0..32).flat_map(|number| [1000, 30 * MIB].map(|bytes| (bytes, stream(number))));
        for (bytes, stream) in blocks {
            engine.allocate(DeviceRequest::new(bytes, stream)).unwrap();
        }
        engine.backing().addresses.load(Ordering::Relaxed)
    };
    let expandable = torch("expandable_segments:True");
    assert_eq!(reserved(expandable), 64 * 90 * GIB, "as PyTorch");
    let orlop = reserved(Policy::orlop());
    assert!(orlop <= 96 * GIB, "{}", ByteSize(orlop));
}

/// One stream takes all of the memory, in blocks of all sizes.
#[test]
fn ranges_grow_to_all_of_the_memory() {
    let mut engine = Engine::new(CountingDevice::new(80 * GIB, u64::MAX), Policy::orlop());
    let mut live = 0;
    for number in 0_usize.. {
        let bytes = [3 * MIB, 200 * MIB, 1024 * MIB, 4 * MIB, 7000 * MIB][number % 5];
        if live + bytes as u64 > 79 * GIB {
            break;
        }
        engine.allocate(DeviceRequest::new(bytes, stream(0))).unwrap();
        live += bytes as u64;
    }
    engine.verify().unwrap();
    let addresses = engine.backing().addresses.load(Ordering::Relaxed);
    assert!(addresses <= 2 * 90 * GIB, "{}", ByteSize(addresses));
    assert!(engine.stats().reserved_bytes.all.current <= live + live / 128 + 64 * MIB as u64);
}

#[test]
fn a_device_without_addresses_says_how_many_are_reserved() {
    let expandable = torch("expandable_segments:True");
    let mut engine = Engine::new(CountingDevice::new(80 * GIB, 100 * GIB), expandable.clone());
    engine.allocate(DeviceRequest::new(30 * MIB, stream(0))).unwrap();
    let refused = engine.allocate(DeviceRequest::new(30 * MIB, stream(1))).unwrap_err();
    let DeviceError::OutOfMemory { addresses, .. } = refused else { panic!("{refused}") };
    assert_eq!(addresses, Some(90 * GIB));
    assert!(refused.to_string().ends_with("; no addresses are left, 90.0 GiB are reserved"), "{refused}");

    let allocator = DeviceAllocator::new(CountingDevice::new(80 * GIB, 100 * GIB), expandable).into_ref();
    let request = |number| Request::new(30 * MIB).stream(stream(number));
    let _block = allocator.allocate(&request(0)).unwrap();
    let refused = allocator.allocate(&request(1)).unwrap_err();
    assert!(refused.to_string().contains("no addresses are left (90.0 GiB are reserved)"), "{refused}");
}

#[test]
fn large_growth_takes_few_pages() {
    let pages = |policy: Policy, mib: usize| {
        let mut engine = Engine::new(CountingDevice::new(80 * GIB, u64::MAX), policy);
        engine.allocate(DeviceRequest::new(mib * MIB, stream(0))).unwrap();
        engine.verify().unwrap();
        (engine.backing().pages.load(Ordering::Relaxed), engine.stats().reserved_bytes.all.current)
    };
    let bytes = |mib: usize| (mib * MIB) as u64;
    assert_eq!(pages(Policy::orlop(), 1024), (32, bytes(1024)));
    // What is left of large pages is mapped in smaller ones, so that none is wasted.
    assert_eq!(pages(Policy::orlop(), 1000), (62 + 4, bytes(1000)));
    assert_eq!(pages(Policy::orlop(), 100), (50, bytes(100)));
    let expandable = torch("expandable_segments:True");
    assert_eq!(pages(expandable, 1024), (52, bytes(1040)), "as PyTorch");
}

/// Pages of all sizes move, or go back to the device: reserved bytes stay near the peak.
#[test]
fn large_pages_move_or_are_replaced() {
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut engine = Engine::new(CountingDevice::new(8 * GIB, u64::MAX), Policy::orlop());
    let mut blocks: Vec<(crate::DeviceBlock, u64)> = Vec::new();
    let mut live = 0;
    for step in 0..4000 {
        while live > 5 * GIB || (!blocks.is_empty() && next(3) == 0) {
            let (block, bytes) = blocks.swap_remove(usize::try_from(next(blocks.len() as u64)).unwrap());
            engine.free(block).unwrap();
            live -= bytes;
        }
        let bytes = match next(4) {
            0 => 1 + next(1 << 20),
            1 => 1 + next(60 << 20),
            _ => (1 + next(900)) << 20,
        };
        let request = DeviceRequest::new(usize::try_from(bytes).unwrap(), stream(next(2)));
        blocks.push((engine.allocate(request).unwrap(), bytes));
        live += bytes;
        if step % 50 == 0 {
            engine.verify().unwrap();
        }
    }
    let stats = engine.stats();
    assert!(stats.remapped_bytes > GIB, "{}", ByteSize(stats.remapped_bytes));
    let (peak, reserved) = (stats.active_bytes.all.peak, stats.reserved_bytes.all.peak);
    println!(
        "peak {}, reserved {}, moved {}",
        ByteSize(peak),
        ByteSize(reserved),
        ByteSize(stats.remapped_bytes)
    );
    assert!(reserved <= peak + peak / 16, "{} for a peak of {}", ByteSize(reserved), ByteSize(peak));
    blocks.into_iter().for_each(|(block, _)| engine.free(block).unwrap());
    engine.empty_cache().unwrap();
    assert_eq!(engine.stats().reserved_bytes.all.current, 0);
}
