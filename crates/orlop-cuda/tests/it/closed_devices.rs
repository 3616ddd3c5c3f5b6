//! Devices that are closed while memory of others names their streams, and events that come back into the
//! code that emits them.

use crate::machine::{Machine, handle};
use crate::subscriber::acting_at_the_first_event;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_cuda::{CudaDevice, CudaError, PinnedAllocator, caching_allocator, caching_allocator_with};
use orlop_cudasim_control::{KernelRun, SimulatedDriver, SimulationConfig};
use orlop_device::Policy;
use std::sync::{Barrier, mpsc};
use std::time::Duration;

const BYTES: usize = 1 << 20;

fn two_slow_devices() -> Machine {
    let config = SimulationConfig::new().devices([1 << 28, 1 << 28]).peer_access(true);
    Machine::new(&config.shared_access(true).bytes_per_microsecond(100))
}

/// What happens while the second device is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    InOrder,
    ItsWaitFails,
    AStreamCaptures,
    OnAnotherThread,
}

/// A stream of another device still works on memory of an allocator when that device is closed.
#[test]
fn memory_is_reused_after_the_work_of_a_device_that_is_closed() {
    let cases = [Closing::InOrder, Closing::ItsWaitFails, Closing::AStreamCaptures];
    for closing in cases.into_iter().chain([Closing::OnAnotherThread; 200]) {
        let machine = two_slow_devices();
        let far = CudaDevice::new(1).unwrap();
        let [own, other] = [&machine.device, &far].map(|device| device.create_stream().unwrap());
        let policy = Policy::orlop_without_pages();
        let allocator = caching_allocator_with(&machine.device, policy).unwrap().into_ref();
        let request = Request::new(BYTES).stream(own.id());
        let blocks = [(); 2].map(|()| allocator.allocate(&request).unwrap());
        machine.device.context().synchronize().unwrap();
        for block in &blocks {
            let run = KernelRun::new("far").writes(block.as_ptr().as_ptr().addr(), BYTES);
            machine.run_kernel(handle(&other), run.takes(Duration::from_millis(10))).unwrap();
            block.record_stream(other.id()).unwrap();
        }
        let captured = far.context().new_stream().unwrap();
        drop(other);
        let mut reserved = 0;
        let mut reuse = |blocks: [Block; 2]| {
            drop(blocks);
            let next = [(); 2].map(|()| allocator.allocate(&request.zeroed()).unwrap());
            drop(next);
            reserved = allocator.usage().reserved;
        };
        match closing {
            Closing::InOrder => drop(far),
            Closing::ItsWaitFails => {
                machine.fail("cuEventSynchronize", 1, 1).unwrap();
                drop(far);
            }
            Closing::AStreamCaptures => {
                captured.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
                drop(far);
            }
            Closing::OnAnotherThread => {
                let start = Barrier::new(2);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        start.wait();
                        drop(far);
                    });
                    start.wait();
                    reuse(blocks);
                });
                assert_eq!(machine.races(), []);
                continue;
            }
        }
        reuse(blocks);
        assert_eq!(machine.races(), [], "{closing:?}");
        if closing == Closing::AStreamCaptures {
            assert!(captured.end_capture(CUgraphInstantiate_flags(0)).unwrap().is_some(), "it goes on");
        }
        // What may still be in use is counted, and released neither now nor with the allocator.
        let kept = if closing == Closing::ItsWaitFails { reserved } else { 0 };
        allocator.trim(0);
        assert!(if kept > 0 { allocator.usage().reserved > 0 } else { allocator.usage().reserved == 0 });
        drop(allocator);
        assert_eq!(machine.used_memory(0) > 0, kept > 0, "{closing:?}");
    }
}

/// Its work is complete, so nothing is lost that names its streams.
#[test]
fn memory_that_names_streams_of_a_closed_device_is_not_lost() {
    for case in ["pinned, recorded", "pinned, requested", "recorded", "pinned, a stream of its own"] {
        let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]).peer_access(true));
        let far = CudaDevice::new(1).unwrap();
        let (stream, default) = (far.create_stream().unwrap(), far.default_stream());
        let allocator: AllocatorRef = match case {
            "recorded" => caching_allocator(&machine.device).unwrap().into_ref().erase(),
            _ => PinnedAllocator::new(&machine.device).into_ref().erase(),
        };
        let request = Request::new(4 * BYTES);
        let is_for_it = case == "pinned, requested";
        let block = allocator.allocate(&if is_for_it { request.stream(default) } else { request }).unwrap();
        let first = block.as_ptr();
        match case {
            "pinned, a stream of its own" => block.record_stream(stream.id()).unwrap(),
            "pinned, requested" => {}
            _ => block.record_stream(default).unwrap(),
        }
        drop((stream, far));
        drop(block);
        assert_eq!(allocator.allocate(&request).unwrap().as_ptr(), first, "{case}");
        allocator.trim(0);
        assert_eq!(allocator.usage().reserved, 0, "{case}");
    }
}

/// The drop of a stream's last handle is reported, and the subscriber uses the stream by its id.
#[test]
fn a_stream_is_named_by_what_its_drop_reports() {
    let machine = Machine::new(&SimulationConfig::new());
    let [one, two] = [(); 2].map(|()| machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let request = Request::new(BYTES).stream(two.id());
    let block = allocator.allocate(&request).unwrap();
    block.record_stream(one.id()).unwrap();
    let (id, other) = (one.id(), two.clone());
    let (send, answers) = mpsc::channel();
    let act = move || {
        drop(block);
        send.send(other.wait_for(id)).unwrap();
    };
    // The capture mode is not restored after a call for the stream.
    machine.fail("cuThreadExchangeStreamCaptureMode", 2, 1).unwrap();
    acting_at_the_first_event(act, || drop(one));
    machine.clear_faults();
    // The id means the stream's last event.
    assert_eq!(answers.try_recv().expect("an event"), Ok(()));
    two.wait_for(id).unwrap();
    allocator.trim(0);
    assert_eq!(allocator.usage().reserved, 0, "what it used is not lost");
}

/// A device cannot be opened, which is reported, and the subscriber opens it.
#[test]
fn a_device_is_opened_by_what_opening_it_reports() {
    let driver = SimulatedDriver::exclusive(&SimulationConfig::new()).unwrap();
    let (send, answers) = mpsc::channel();
    let act = move || send.send(CudaDevice::new(0)).unwrap();
    driver.fail("cuMemGetInfo_v2", 1, 1).unwrap();
    // The capture mode is not restored after that.
    driver.fail("cuThreadExchangeStreamCaptureMode", 4, 1).unwrap();
    let refused = acting_at_the_first_event(act, || CudaDevice::new(0));
    assert!(matches!(refused, Err(CudaError::Failed(_))), "{refused:?}");
    assert!(answers.try_recv().expect("an event").is_ok());
}

/// Each stream that is dropped looks after as many earlier ones, not after all.
#[test]
fn dropped_streams_are_swept_in_linear_time() {
    let machine = Machine::new(&SimulationConfig::new().bytes_per_microsecond(1));
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(BYTES)).unwrap();
    let streams: Vec<_> = (0..100).map(|_| machine.device.create_stream().unwrap()).collect();
    for stream in &streams {
        stream.wait_for(machine.device.default_stream()).unwrap();
        orlop_cuda::KernelPointer::<u8>::of(&block, stream).unwrap();
        machine.write(stream, &block);
    }
    drop(machine.take_calls());
    drop(streams);
    let queries = machine.calls("cuEventQuery");
    assert!((1..=200).contains(&queries), "{queries} queries");
}
