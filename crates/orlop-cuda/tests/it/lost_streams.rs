//! Streams whose last handle ends in the midst of something: of a call of cudarc, of a wait for all streams,
//! of what another thread waits for.

use crate::machine::{Machine, handle};
use crate::subscriber::acting_at_the_first_event;
use cudarc::driver::{DevicePtr, DevicePtrMut};
use orlop_alloc::{Allocator, Request};
use orlop_cuda::{CudaDevice, CudaError, DeviceBuffer, DeviceStream, DriverAllocator, caching_allocator};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use std::sync::mpsc;
use std::time::Duration;

const BYTES: usize = 1 << 20;

/// A machine whose copies take long.
fn slow() -> Machine {
    Machine::new(&SimulationConfig::new().bytes_per_microsecond(100))
}

fn streams<const N: usize>(machine: &Machine) -> [DeviceStream; N] {
    [(); N].map(|()| machine.device.create_stream().unwrap())
}

/// A function of cudarc takes the address first, and gives the stream its work later.
#[test]
fn a_buffer_keeps_the_streams_of_its_users() {
    for is_shared in [false, true] {
        let machine = slow();
        let [one, two] = streams(&machine);
        let allocator = caching_allocator(&machine.device).unwrap().into_ref();
        let mut buffer = DeviceBuffer::<u8>::zeroed(&allocator, &one, BYTES).unwrap();
        machine.device.context().synchronize().unwrap();
        let (raw, stream) = (handle(&two), two.cudarc().clone());
        let run = |address: u64| {
            let address = usize::try_from(address).unwrap();
            let run = KernelRun::new("late");
            let run = if is_shared { run.reads(address, BYTES) } else { run.writes(address, BYTES) };
            machine.run_kernel(raw, run.takes(Duration::from_millis(9))).unwrap();
        };
        if is_shared {
            let buffer = buffer.share();
            let (address, used) = buffer.device_ptr(&stream);
            drop(two);
            run(address);
            drop(used);
            drop(buffer);
        } else {
            let (address, used) = buffer.device_ptr_mut(&stream);
            drop(two);
            run(address);
            drop(used);
            drop(buffer);
        }
        // The blocks of a search that finds every free one.
        let request = Request::new(BYTES).stream(one.id());
        let blocks: Vec<_> = (0..32).map(|_| allocator.allocate(&request).unwrap()).collect();
        blocks.iter().for_each(|block| machine.write(&one, block));
        assert_eq!(machine.races(), [], "shared: {is_shared}");
    }
}

/// A buffer that outlives its users keeps none but the last.
#[test]
fn a_buffer_lets_streams_go_that_nothing_else_has() {
    let machine = slow();
    let [one] = streams(&machine);
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let buffer = DeviceBuffer::<u8>::zeroed(&allocator, &one, BYTES).unwrap().share();
    for _ in 0..50 {
        let user = machine.device.create_stream().unwrap();
        drop(user.cudarc().clone_dtoh(&buffer).unwrap());
    }
    assert!(machine.counts().streams <= 3, "{}", machine.counts().streams);
    drop(buffer);
    assert_eq!((machine.counts().streams, machine.races()), (1, vec![]));
}

/// Code that a thread runs in a report, and which waits for another thread.
fn answered_by_a_thread<R: Send + 'static>(
    ask: impl FnOnce() -> R + Send + 'static,
    run: impl FnOnce(),
) -> Option<R> {
    let (send, answers) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let act = move || {
        std::thread::spawn(move || done.send(ask()));
        let _ended = send.send(is_done.recv_timeout(Duration::from_secs(60)).ok());
    };
    acting_at_the_first_event(act, run);
    answers.try_recv().expect("a report")
}

#[test]
fn a_subscriber_of_a_lost_stream_waits_for_a_thread_that_names_it() {
    // The stream is lost; or the thread's state is not restored in one of the calls for it.
    for (call, nth) in [("cuEventRecord", 1), ("cuThreadExchangeStreamCaptureMode", 2)] {
        let machine = slow();
        let [one, two] = streams(&machine);
        let id = one.id();
        machine.fail(call, nth, 1).unwrap();
        let is_lost = call == "cuEventRecord";
        if is_lost {
            machine.fail("cuStreamSynchronize", 1, 1).unwrap();
        }
        let answer = answered_by_a_thread(move || two.wait_for(id), || drop(one));
        machine.clear_faults();
        let expected = if is_lost { Err(CudaError::UnknownStream { stream: id }) } else { Ok(()) };
        assert_eq!(answer, Some(expected), "{call}");
    }
}

#[test]
fn a_subscriber_of_a_closed_device_waits_for_a_thread_that_names_it() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]).peer_access(true));
    let [one] = streams(&machine);
    let far = CudaDevice::new(1).unwrap();
    let default = far.default_stream();
    machine.fail("cuThreadExchangeStreamCaptureMode", 2, 1).unwrap();
    let answer = answered_by_a_thread(move || one.wait_for(default), || drop(far));
    machine.clear_faults();
    assert_eq!(answer, Some(Ok(())));
}

/// A wait for all streams lists them first. One of them is lost before its turn.
#[test]
fn a_stream_that_is_lost_during_a_wait_is_no_failure_of_a_request() {
    let machine = Machine::new(&SimulationConfig::new().memory(64 << 20));
    let [main, one, two] = streams(&machine);
    let allocator = DriverAllocator::stream_ordered(&machine.device).unwrap().into_ref();
    let driver = *machine;
    let lose_both = move || {
        driver.fail_times("cuEventRecord", 1, 2, 1).unwrap();
        driver.fail_times("cuStreamSynchronize", 1, 2, 1).unwrap();
        drop((one, two));
        driver.clear_faults();
    };
    // The state of the thread is not restored after a call for the first stream of the list.
    machine.fail("cuThreadExchangeStreamCaptureMode", 4, 1).unwrap();
    let request = Request::new(128 << 20).stream(main.id());
    let refused = acting_at_the_first_event(lose_both, || allocator.allocate(&request).unwrap_err());
    assert!(refused.is_out_of_memory(), "{refused}");
}
