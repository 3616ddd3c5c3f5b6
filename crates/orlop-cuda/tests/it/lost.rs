//! A device that is lost: typed errors, nothing is reused, everything can be dropped.

use crate::machine::Machine;
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, Request, engine_support::DeviceOps};
use orlop_cuda::{
    CudaDevice, CudaError, CudaOps, DriverAllocator, PinnedAllocator, caching_allocator,
    caching_allocator_with,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{BackingError, DeviceError, DriverFailure, Policy};

const ILLEGAL_ADDRESS: i32 = 700;

/// Returns the failure that lost the device.
fn loss(error: &Error) -> Option<DriverFailure> {
    match (error.backend_error::<CudaError>(), error.backend_error::<DeviceError>()) {
        (Some(CudaError::Lost(failure)), _)
        | (_, Some(DeviceError::Backing { error: BackingError::Lost(failure), .. })) => Some(*failure),
        _ => None,
    }
}

fn assert_lost<T>(name: &str, result: Result<T, Error>) {
    let Err(error) = result else { panic!("{name}: a call of a lost device succeeded") };
    let failure = loss(&error).unwrap_or_else(|| panic!("{name}: {error:?}"));
    assert_eq!((failure.code, failure.name), (ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"), "{name}");
    assert!(error.to_string().contains(failure.call), "{name}: {error}");
}

type Make = fn(&CudaDevice) -> AllocatorRef;

const ALLOCATORS: [(&str, Make); 5] = [
    ("pages", |device| caching_allocator(device).unwrap().into_ref().erase()),
    ("regions", |device| {
        caching_allocator_with(device, Policy::orlop_without_pages()).unwrap().into_ref().erase()
    }),
    ("direct", |device| DriverAllocator::direct(device).into_ref().erase()),
    ("stream-ordered", |device| DriverAllocator::stream_ordered(device).unwrap().into_ref().erase()),
    ("pinned", |device| PinnedAllocator::new(device).into_ref().erase()),
];

#[test]
fn every_request_fails_and_everything_can_be_dropped() {
    for (name, make) in ALLOCATORS {
        let machine = Machine::new(&SimulationConfig::new().poison(false));
        let driver = *machine;
        let allocator = make(&machine.device);
        let streams = [0, 1].map(|_| machine.device.create_stream().unwrap());
        let is_far = !allocator.device().is_cpu();
        let request = |bytes| {
            let request = Request::new(bytes);
            if is_far { request.stream(streams[0].id()) } else { request }
        };
        let mut blocks: Vec<Block> =
            [700, 3 << 20, 90_000, 11 << 20].map(|bytes| allocator.allocate(&request(bytes)).unwrap()).into();
        for block in &blocks {
            block.record_stream(streams[1].id()).unwrap();
        }
        // Cached memory, which must not be handed out later.
        drop(blocks.swap_remove(1));
        drop(allocator.allocate(&request(5 << 20)).unwrap());

        driver.poison(0, ILLEGAL_ADDRESS).unwrap();
        // The event of this free, or the memory of this request, needs the driver; from then on it is known.
        drop(blocks.swap_remove(2));
        assert_lost(name, allocator.allocate(&request(100 << 20)));
        for bytes in [1, 700, 90_000, 3 << 20, 5 << 20, 200 << 20] {
            assert_lost(name, allocator.allocate(&request(bytes)));
            assert_lost(name, allocator.allocate(&request(bytes).zeroed()));
        }
        let ops = CudaOps::new(&machine.device);
        assert_lost(name, ops.synchronize(streams[0].id()));
        if is_far {
            // SAFETY: inside the block.
            let filled = unsafe { ops.fill(blocks[0].device_ptr(), &[1, 2], 10, streams[0].id()) };
            assert_lost(name, filled);
        }
        assert!(matches!(streams[0].synchronize(), Err(CudaError::Lost(_))), "{name}");
        assert!(matches!(streams[0].wait_for(streams[1].id()), Err(CudaError::Lost(_))), "{name}");
        assert!(matches!(machine.device.create_stream(), Err(CudaError::Lost(_))), "{name}");
        assert!(matches!(machine.device.memory(), Err(CudaError::Lost(_))), "{name}");

        allocator.trim(0);
        let kept = blocks.pop();
        drop(blocks);
        assert_lost(name, allocator.allocate(&request(90_000)));
        allocator.verify().unwrap_or_else(|error| panic!("{name}: {error}"));
        // The end: in any order, and with a block that outlives it all.
        drop(streams);
        drop(ops);
        drop(allocator);
        let Machine { device, driver: turn } = machine;
        drop(device);
        std::thread::spawn(move || drop(kept)).join().unwrap();
        drop(turn);
    }
}

/// A kernel that strays is found by the next call, whichever it is.
#[test]
fn a_call_that_reports_a_loss_fails_the_request() {
    let machine = Machine::new(&SimulationConfig::new().poison(false));
    let driver = *machine;
    let stream = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let request = |bytes| Request::new(bytes).stream(stream.id());
    let block = allocator.allocate(&request(1 << 20)).unwrap();
    driver.fail("cuMemCreate", 1, ILLEGAL_ADDRESS).unwrap();
    let refused = allocator.allocate(&request(64 << 20)).unwrap_err();
    assert_eq!(loss(&refused).map(|failure| failure.call), Some("cuMemCreate"));
    assert!(matches!(allocator.loss(), Some(DeviceError::Backing { error: BackingError::Lost(_), .. })));
    // The first failure is the one that every later request reports.
    for _ in 0..3 {
        let refused = allocator.allocate(&request(1 << 20)).unwrap_err();
        assert_eq!(loss(&refused).map(|failure| failure.call), Some("cuMemCreate"));
    }
    drop(block);
    drop(allocator);
    drop(stream);
}
