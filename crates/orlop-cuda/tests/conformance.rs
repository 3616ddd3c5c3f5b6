//! The testkit's suite over every allocator of this crate, with streams of the device. No call of the driver
//! may fail in it, and the suite sees the bytes of device memory.
#![cfg(all(target_os = "linux", not(any(miri, loom))))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use orlop_alloc::{Access, Allocator, AllocatorRef, Request, engine_support::RawBlock, forward};
use orlop_core::StreamId;
use orlop_cuda::{
    CudaDevice, CudaMemory, DeviceStream, DriverAllocator, PinnedAllocator, caching_allocator,
    caching_allocator_with,
};
use orlop_cudasim_control::{SimulatedDriver, SimulationConfig};
use orlop_device::{DeviceAllocator, Policy, TorchConf};
use orlop_testkit::subscriber::EventSubscriber;
use orlop_testkit::{SuiteProfile, conformance};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::field::Field;
use tracing::{Event, Level};

/// Collects what is traced as an error: calls of the driver that failed, memory that leaked.
#[derive(Debug, Clone, Default)]
struct TracedErrors(Arc<Mutex<Vec<String>>>);

impl TracedErrors {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn collect(&self, event: &Event<'_>) {
        if *event.metadata().level() == Level::ERROR {
            let mut text = String::new();
            event.record(&mut |field: &Field, value: &dyn Debug| text += &format!("{field}={value:?} "));
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }
}

/// Lets the suite read and write device memory, which is the host's on the simulated driver: otherwise it
/// could not check zeros, nor that a block keeps its bytes.
#[derive(Debug)]
struct VisibleMemory<A> {
    inner: A,
    driver: SimulatedDriver,
}

// SAFETY: blocks are the upstream's. Their memory is the simulated driver's, which is mapped for the host and
// initialised; no work of a stream is left when a block is handed out. What is changed is undone.
unsafe impl<A: Allocator> Allocator for VisibleMemory<A> {
    fn allocate(&self, request: &Request) -> orlop_alloc::Result<RawBlock> {
        let mut block = self.inner.allocate(request)?;
        self.driver.advance(Duration::from_secs(1));
        // SAFETY: nothing else refers to the new block; see above.
        unsafe { block.record_mut() }.access = Access::Host;
        Ok(block)
    }

    unsafe fn deallocate(&self, mut block: RawBlock) -> orlop_alloc::Result<()> {
        // SAFETY: it is as the upstream handed it out again.
        unsafe { block.record_mut() }.access = Access::Device;
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.deallocate(block) }
    }

    forward!(inner; except deallocate);
}

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().expect("valid settings"))
}

/// Frees a block that a stream used which was neither created nor adopted.
fn use_unknown_stream(device: &CudaDevice) {
    let allocator = caching_allocator_with(device, torch("")).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(1000)).unwrap();
    block.record_stream(StreamId::unique()).unwrap();
    drop(block);
}

#[test]
fn every_allocator() {
    let config = SimulationConfig::new().memory(2 << 30).pinned_limit(1 << 30).poison(false);
    let driver = SimulatedDriver::exclusive(&config).expect("the simulated driver is built");
    let device = CudaDevice::new(0).expect("a device");
    let traced = TracedErrors::default();
    let collected = traced.clone();
    let subscriber = EventSubscriber(move |event: &Event<'_>| collected.collect(event));
    tracing::subscriber::set_global_default(subscriber).expect("the only one");
    let streams = [(); 9].map(|()| device.create_stream().expect("a stream"));
    let profile = SuiteProfile::strict().streams(streams.each_ref().map(DeviceStream::id));

    let simulated = *driver;
    let check = |name: &str, make: &dyn Fn() -> AllocatorRef| conformance(name, profile, make);
    let pages = || caching_allocator(&device).unwrap();
    check("cuda", &|| pages().into_ref().erase());
    check("cuda, bytes", &|| VisibleMemory { inner: pages(), driver: simulated }.into_ref().erase());
    for policy in [torch(""), torch("expandable_segments:True"), Policy::orlop_without_pages()] {
        let name = format!("cuda, {}", policy.name);
        let caching = || caching_allocator_with(&device, policy.clone()).unwrap();
        check(&name, &|| caching().into_ref().erase());
        check(&name, &|| VisibleMemory { inner: caching(), driver: simulated }.into_ref().erase());
    }
    let managed = || {
        let memory = CudaMemory::managed(&device).unwrap();
        DeviceAllocator::new(memory, Policy::orlop_without_pages())
    };
    check("cuda-managed", &|| VisibleMemory { inner: managed(), driver: simulated }.into_ref().erase());
    let direct = || DriverAllocator::direct(&device);
    check("cuda-direct", &|| direct().into_ref().erase());
    check("cuda-direct, bytes", &|| VisibleMemory { inner: direct(), driver: simulated }.into_ref().erase());
    let ordered = || DriverAllocator::stream_ordered(&device).unwrap();
    check("cuda-stream-ordered", &|| ordered().into_ref().erase());
    check("cuda-stream-ordered, bytes", &|| {
        VisibleMemory { inner: ordered(), driver: simulated }.into_ref().erase()
    });
    check("cuda-pinned", &|| PinnedAllocator::new(&device).into_ref().erase());
    let segments = || PinnedAllocator::with_policy(&device, Policy::orlop_without_pages());
    check("cuda-pinned, segments", &|| segments().into_ref().erase());

    drop(streams);
    driver.advance(Duration::from_secs(1));
    assert_eq!((driver.used_memory(0), driver.counts().pinned), (0, 0));
    // The suite frees pointers that it must not.
    let failed = traced.take().into_iter().filter(|text| !text.starts_with("message=free refused"));
    assert_eq!(failed.collect::<Vec<_>>(), Vec::<String>::new());
    // Streams that no device knows are an error, which is seen.
    use_unknown_stream(&device);
    assert!(traced.take().iter().any(|text| text.contains("UNKNOWN_STREAM")));
}
