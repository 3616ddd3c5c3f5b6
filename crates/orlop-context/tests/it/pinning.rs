//! Pinned memory: pinned if the process has a pinner, ordinary host memory if not, and reported as such. It
//! is not reused while a stream reads it.

use orlop_alloc::adaptor::{Hardened, Hardening, Limit, Tracking};
use orlop_alloc::backing::{Pinned, Pinner, System, set_pinner};
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2};
use orlop_alloc::{
    Allocator, AllocatorRef, Block, Error, Refusal, Request,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_context::observe::LogRecord;
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_testkit::{QueuedDevice, child};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const KIND: MemoryKind = MemoryKind::HostPinned;

fn pinned() -> Request {
    Request::new(1000).kind(KIND)
}

fn alone(test: &str) -> bool {
    if child::plays(test) {
        return true;
    }
    child::run(&format!("pinning::{test}"), test, &[]);
    false
}

/// Records what is pinned.
#[derive(Default)]
struct Pins {
    ranges: Mutex<BTreeMap<usize, usize>>,
    refuses: AtomicBool,
}

impl Pins {
    fn holds(&self, block: &Block) -> bool {
        let start = block.as_ptr().as_ptr().addr();
        let ranges = self.ranges.lock().expect("no panic with it held");
        let range = ranges.range(..=start).next_back();
        range.is_some_and(|(from, bytes)| start + block.capacity() <= from + bytes)
    }

    fn count(&self) -> usize {
        self.ranges.lock().expect("no panic with it held").len()
    }
}

impl Pinner for Pins {
    unsafe fn pin(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        let refused = self.refuses.load(Ordering::Relaxed);
        if !refused {
            assert!(
                self.ranges
                    .lock()
                    .expect("no panic with it held")
                    .insert(ptr.as_ptr().addr(), bytes)
                    .is_none()
            );
        }
        !refused
    }

    unsafe fn unpin(&self, ptr: NonNull<u8>, bytes: usize) {
        assert_eq!(
            self.ranges.lock().expect("no panic with it held").remove(&ptr.as_ptr().addr()),
            Some(bytes)
        );
    }
}

/// No test of this process sets a pinner.
#[test]
fn without_a_pinner_it_is_plain_memory_and_says_so() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let mut block = context.allocate(Device::CPU, &pinned()).unwrap();
    assert_eq!((block.device(), block.kind(), block.is_pinned()), (Device::CPU, KIND, false));
    assert!(block.as_ptr().as_ptr().addr().is_multiple_of(64));
    block.bytes_mut().unwrap().fill(1);
    assert!(format!("{block:?}").contains("pinned: false"), "{block:?}");
    let allocator = context.allocator(Device::CPU, KIND).unwrap();
    assert!(!allocator.semantics().pinned);
    let Err(Error::NotPinned { allocator }) = context.allocate_pinned(&Request::new(1000)) else {
        panic!("it cannot be pinned")
    };
    assert_eq!(&*allocator, "pinned");
}

#[test]
fn another_allocator_that_serves_the_kind_does_not_pin() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.register(Device::CPU, MemoryKind::Default, Direct::new(System::new()).into_ref()).unwrap();
    context.register(Device::CPU, KIND, Pow2::new(System::new()).into_ref()).unwrap();
    let error = context.allocate_pinned(&pinned()).unwrap_err();
    assert!(matches!(&error, Error::NotPinned { allocator } if &**allocator == "pow2"), "{error}");
    assert!(error.to_string().contains("pinner"), "{error}");
}

#[test]
fn with_a_pinner_it_is_pinned_until_it_goes_back() {
    if !alone("with_a_pinner_it_is_pinned_until_it_goes_back") {
        return;
    }
    let pins = Arc::new(Pins::default());
    assert!(set_pinner(pins.clone()));
    assert!(!set_pinner(Arc::new(Pins::default())), "the first stays");
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let block = context.allocate(Device::CPU, &pinned()).unwrap();
    assert!(block.is_pinned() && pins.holds(&block));
    assert!(format!("{block:?}").contains("pinned: true"), "{block:?}");
    let required = context.allocate_pinned(&Request::new(1000)).unwrap();
    assert_eq!((required.kind(), pins.holds(&required)), (KIND, true));
    // Memory of other kinds is not pinned.
    let plain = context.allocate(Device::CPU, &Request::new(1000)).unwrap();
    assert!(!plain.is_pinned() && !pins.holds(&plain));
    // If a region cannot be pinned, the request fails, and the region is released.
    pins.refuses.store(true, Ordering::Relaxed);
    let large = Request::new(64 << 20).kind(KIND).no_retry();
    let Err(Error::OutOfMemory(report)) = context.allocate(Device::CPU, &large) else {
        panic!("nothing was pinned")
    };
    assert_eq!(report.refusal, Refusal::Backing);
    assert!(context.allocate_pinned(&large).is_err());
    pins.refuses.store(false, Ordering::Relaxed);
    drop((block, required));
    assert_eq!(pins.count(), 1);
    context.trim(Device::CPU);
    assert_eq!(pins.count(), 0, "unpinned before it went back");
}

#[test]
fn every_engine_and_adaptor_over_pinned_memory_says_so() {
    if !alone("every_engine_and_adaptor_over_pinned_memory_says_so") {
        return;
    }
    let pins = Arc::new(Pins::default());
    let memory = || Pinned::new(Arc::new(System::new()));
    let before = Bfc::new(memory()).into_ref();
    assert!(!before.semantics().pinned, "no pinner yet");
    assert!(set_pinner(pins.clone()));
    let engines: [AllocatorRef; 6] = [
        before.erase(),
        Caching::new(memory()).into_ref().erase(),
        Pool::new(memory()).into_ref().erase(),
        Pow2::new(memory()).into_ref().erase(),
        Arena::new(memory(), 1 << 16).into_ref().erase(),
        Direct::new(memory()).into_ref().erase(),
    ];
    for engine in engines {
        let limited = Limit::new(engine.clone(), 1 << 20).into_ref();
        let tracked = Tracking::new(limited).into_ref();
        let full = Hardening::full();
        let hardened = Hardened::new(tracked.clone(), full.guard_pages(0)).into_ref();
        for allocator in [engine.clone(), tracked.clone().erase(), hardened.erase()] {
            let block = allocator.allocate(&pinned()).unwrap();
            assert!(block.is_pinned() && pins.holds(&block), "{}", allocator.name());
        }
        // Guard pages would not be pinned.
        let guarded = Hardened::new(tracked, full.guard_pages(1)).into_ref();
        assert!(!guarded.semantics().pinned && !guarded.allocate(&pinned()).unwrap().is_pinned());
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        context.register(Device::CPU, KIND, engine).unwrap();
        context.set_budget(Device::CPU, KIND, Budget::hard(1 << 20)).unwrap();
        assert!(context.allocate_pinned(&pinned()).unwrap().is_pinned());
    }
    let hardened = Context::with(Device::CPU, AllocatorConfig::new().hardened(Hardening::full()));
    assert!(hardened.allocate_pinned(&pinned()).unwrap().is_pinned());
    drop(hardened);
    assert_eq!(pins.count(), 0);
}

/// A region that was reserved unpinned is released without unpinning, which would be an error.
#[test]
fn a_pinner_that_comes_late_is_for_new_allocators() {
    if !alone("a_pinner_that_comes_late_is_for_new_allocators") {
        return;
    }
    let early = Context::with(Device::CPU, AllocatorConfig::new());
    let block = early.allocate(Device::CPU, &pinned()).unwrap();
    let pins = Arc::new(Pins::default());
    assert!(set_pinner(pins.clone()));
    let large = early.allocate(Device::CPU, &Request::new(16 << 20).kind(KIND)).unwrap();
    assert!(!block.is_pinned() && !large.is_pinned() && pins.count() == 0);
    assert!(early.allocate_pinned(&pinned()).is_err());
    let late = Context::with(Device::CPU, AllocatorConfig::new());
    assert!(late.allocate_pinned(&pinned()).unwrap().is_pinned());
    drop((block, large, early));
}

/// The settings of the CPU's allocator apply to the one for pinned memory.
#[test]
fn the_settings_apply_to_pinned_memory() {
    let config = || AllocatorConfig::new().named("bfc").limit(8 << 20);
    let make = |config: AllocatorConfig| config.make_pinned().unwrap();
    let large = |bytes: usize| Request::new(bytes).kind(KIND);
    let limited = make(config());
    assert_eq!(limited.name(), "pinned");
    let Err(Error::OutOfMemory(report)) = limited.allocate(&large(9 << 20)) else { panic!("a limit") };
    assert_eq!(report.limit, Some(8 << 20));
    // The whole limit is one region.
    let whole = make(config().whole_limit(true));
    let block = whole.allocate(&pinned()).unwrap();
    assert_eq!((whole.usage().reserved, whole.usage().regions), (8 << 20, 1));
    drop(block);
    let unlimited = AllocatorConfig::new().whole_limit(true).make_pinned();
    assert!(matches!(unlimited, Err(Error::Configuration { variable: "limit", .. })), "{unlimited:?}");
    // Regions of 2 and 4 MiB are released for one of 7 MiB.
    for (release, fits) in [(false, false), (true, true)] {
        let allocator = make(config().release_when_stuck(release));
        let blocks: Vec<_> = (0..3).map(|_| allocator.allocate(&large(1 << 20)).unwrap()).collect();
        drop(blocks);
        assert_eq!(allocator.allocate(&large(7 << 20).no_retry()).is_ok(), fits, "release: {release}");
    }
    let invalid = AllocatorConfig::new().limit_percent(0).make_pinned();
    assert!(matches!(invalid, Err(Error::Configuration { variable: "limit_percent", .. })), "{invalid:?}");
    assert!(make(AllocatorConfig::new().warned()).observers().len() == 1);
    assert!(make(AllocatorConfig::new().fork_safe().node(0)).allocate(&pinned()).is_ok());
}

/// One log to standard error, with one header, has the lines of both allocators of a context.
#[test]
fn pinned_memory_is_in_the_log_of_its_context() {
    const TEST: &str = "pinned_memory_is_in_the_log_of_its_context";
    if child::plays(TEST) {
        let context = Context::with(Device::CPU, AllocatorConfig::new().logged());
        drop(context.allocate(Device::CPU, &pinned()).unwrap());
        drop(context.allocate(Device::CPU, &Request::new(500)).unwrap());
        context.cpu_log().unwrap().set_enabled(false);
        drop(context.allocate(Device::CPU, &pinned()).unwrap());
        return;
    }
    let (_, log) = child::run(&format!("pinning::{TEST}"), TEST, &[]);
    let count = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!([count(LogRecord::HEADER), count(",1000,"), count(",500,")], [1, 2, 2], "{log}");
}

/// A device reads the block later, as a driver's asynchronous copy would: the host waits if it has to.
fn send(dma: &QueuedDevice, block: &Block, to: &mut [u8], stream: StreamId) {
    let is_kept = block.acquire_for(dma, stream).expect("the device can wait");
    let to = DevicePtr::new(NonNull::from(to).cast(), Device::CPU);
    let from = DevicePtr { is_kept: true, ..DevicePtr::new(block.as_ptr(), block.device()) };
    // SAFETY: both have the block's bytes; the destination is kept by the caller until the stream is done,
    // and the source by its allocator, or until the wait.
    unsafe { dma.copy(to, from, block.len(), stream) }.expect("it takes the work");
    if !is_kept {
        dma.synchronize(stream).expect("the work is done");
    }
}

/// The default allocator reuses memory at once, so it refuses uses of streams, and the host waits. One that
/// honours streams takes its place by registration, and reuses memory after them.
#[test]
fn pinned_memory_is_not_handed_out_while_a_stream_reads_it() {
    const BYTES: usize = 100_000;
    let (dma, stream) = (QueuedDevice::new(Device::CPU, 64 << 20), StreamId::unique());
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    for is_stream_ordered in [false, true] {
        if is_stream_ordered {
            context.register(Device::CPU, KIND, dma.allocator()).unwrap();
        }
        let semantics = context.allocator(Device::CPU, KIND).unwrap().semantics();
        assert_eq!(semantics.stream_ordered, is_stream_ordered);
        let request = Request::new(BYTES).kind(KIND);
        let mut block = context.allocate(Device::CPU, &request).unwrap();
        block.bytes_mut().unwrap().fill(7);
        let refused = matches!(block.record_stream(stream), Err(Error::StreamsNotHonoured { .. }));
        assert_eq!((refused, block.stream_uses().count()), (!is_stream_ordered, is_stream_ordered.into()));
        // A request's own stream is no promise either.
        let own = context.allocate(Device::CPU, &request.stream(stream)).unwrap();
        assert_eq!(own.acquire_for(&dma, stream).unwrap(), is_stream_ordered);

        let (mut arrived, address) = (vec![0; BYTES], block.as_ptr());
        send(&dma, &block, &mut arrived, stream);
        drop(block);
        let mut next = context.allocate(Device::CPU, &request).unwrap();
        assert_eq!(next.as_ptr() == address, !is_stream_ordered, "reused at once, or after the stream");
        next.bytes_mut().unwrap().fill(9);
        dma.advance(stream);
        assert!(arrived.iter().all(|&byte| byte == 7), "stream-ordered: {is_stream_ordered}");
        drop((next, own));
    }
}

/// Copies between a context's pinned memory and a device, by the context itself.
#[test]
fn copies_of_a_context_wait_for_pinned_memory_that_is_not_stream_ordered() {
    let far = Device::custom(30, 0);
    let device = QueuedDevice::new(far, 64 << 20);
    let (context, stream) = (device.context().unwrap(), StreamId::default_of(far));
    let request = Request::new(4096).kind(KIND);
    let mut there = context.allocate(far, &Request::new(4096)).unwrap();
    let mut here = context.allocate(Device::CPU, &request).unwrap();
    here.bytes_mut().unwrap().fill(7);
    context.copy(&mut there, &here, stream).unwrap();
    drop(here);
    let mut here = context.allocate(Device::CPU, &request).unwrap();
    here.bytes_mut().unwrap().fill(9);
    context.copy(&mut here, &there, stream).unwrap();
    assert_eq!(device.pending(stream), 0, "the bytes are there, and nothing writes them any more");
    assert!(here.bytes().unwrap().iter().all(|&byte| byte == 7));
}
