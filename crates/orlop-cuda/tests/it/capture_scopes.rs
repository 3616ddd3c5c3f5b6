//! Captures that are marked for all allocators of a device, and captures without a mark: nothing ends
//! them, and what they used is given back after them.

use crate::machine::{Machine, handle};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaGraph, CudaStream};
use orlop_alloc::{
    Allocator, Block, Error, Request,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_cuda::{
    BlockSlice, CaptureScope, CudaError, CudaOps, DeviceBuffer, DeviceStream, DriverAllocator, KernelPointer,
    PinnedAllocator, caching_allocator, caching_allocator_with,
};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use orlop_device::Policy;
use std::sync::Arc;
use std::time::Duration;

const BYTES: usize = 1 << 20;
const MODES: [CUstreamCaptureMode; 3] = [
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
];

/// A capture in progress.
struct Capture<'a> {
    stream: &'a Arc<CudaStream>,
    _scope: Option<CaptureScope>,
}

impl<'a> Capture<'a> {
    fn begin(machine: &Machine, stream: &'a Arc<CudaStream>, mode: usize, is_marked: bool) -> Self {
        let scope = is_marked.then(|| machine.device.capture_scope());
        stream.begin_capture(MODES[mode]).unwrap();
        Self { stream, _scope: scope }
    }

    fn assert_active(&self, what: &str) {
        let active = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        assert_eq!(self.stream.capture_status(), Ok(active), "{what}");
    }

    fn end(self) -> CudaGraph {
        self.assert_active("at the end");
        self.stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph")
    }
}

fn ways() -> impl Iterator<Item = (usize, bool)> {
    (0..MODES.len()).flat_map(|mode| [(mode, false), (mode, true)])
}

fn two_streams(machine: &Machine) -> [DeviceStream; 2] {
    [(); 2].map(|()| machine.device.create_stream().unwrap())
}

fn write(machine: &Machine, stream: &DeviceStream, block: &Block) {
    let run = KernelRun::new("write").writes(block.as_ptr().as_ptr().addr(), block.len());
    machine.run_kernel(handle(stream), run.takes(Duration::from_millis(5))).unwrap();
}

fn is_refused<T>(result: Result<T, Error>) -> bool {
    let error = result.map(drop).unwrap_err();
    matches!(error.backend_error(), Some(CudaError::Capturing { .. }))
}

/// A copy of pinned memory is a node of the graph; the block is dropped in the capture.
#[test]
fn pinned_memory_is_used_in_a_capture() {
    for (mode, is_marked) in ways() {
        let machine = Machine::new(&SimulationConfig::new());
        let [one, _] = two_streams(&machine);
        let (ops, pinned) = (CudaOps::new(&machine.device), PinnedAllocator::new(&machine.device).into_ref());
        let gpu = caching_allocator(&machine.device).unwrap().into_ref();
        let to = gpu.allocate(&Request::new(BYTES).stream(one.id())).unwrap();
        let from = pinned.allocate(&Request::new(BYTES)).unwrap();
        let capture = Capture::begin(&machine, one.cudarc(), mode, is_marked);
        // SAFETY: both have these bytes, and are kept until the graph has run.
        unsafe { ops.copy(to.device_ptr(), DevicePtr::kept(from.as_ptr()), BYTES, one.id()) }.unwrap();
        from.record_stream(one.id()).unwrap();
        let first = from.as_ptr();
        drop(from);
        capture.assert_active("after the drop of a block that the graph reads");
        let second = pinned.allocate(&Request::new(BYTES)).unwrap();
        assert_ne!(second.as_ptr(), first, "it is not reused in the capture");
        capture.assert_active("after a request");
        let graph = capture.end();
        graph.launch().unwrap();
        one.synchronize().unwrap();
        let (third, fourth) = (pinned.allocate(&Request::new(BYTES)), pinned.allocate(&Request::new(BYTES)));
        let reused = [third.unwrap(), fourth.unwrap()].iter().any(|block| block.as_ptr() == first);
        assert!(reused, "it is reused after the capture, {mode} {is_marked}");
        assert_eq!(machine.races(), []);
        assert_eq!(gpu.device_stats().num_failed_calls, 0);
    }
}

/// The last handle of a stream is dropped while the stream captures; a block names it.
#[test]
fn a_stream_is_dropped_in_its_capture() {
    for (mode, is_marked) in ways() {
        let machine = Machine::new(&SimulationConfig::new());
        let [two, _] = two_streams(&machine);
        let stream = machine.device.context().new_stream().unwrap();
        let one = machine.device.adopt_stream(stream.clone()).unwrap();
        let allocator = caching_allocator(&machine.device).unwrap().into_ref();
        let request = Request::new(BYTES).stream(two.id());
        let block = allocator.allocate(&request).unwrap();
        block.record_stream(one.id()).unwrap();
        let capture = Capture::begin(&machine, &stream, mode, is_marked);
        let id = one.id();
        drop(one);
        capture.assert_active("after the drop of its handle");
        drop(machine.device.create_stream().unwrap());
        drop(block);
        drop(allocator.allocate(&request).unwrap());
        capture.assert_active("after the drop of a block that it used");
        drop(capture.end());
        // The id means the stream, or its last event, as before.
        two.wait_for(id).unwrap();
        allocator.trim(0);
        assert_eq!(allocator.usage().reserved, 0, "what it used is given back");
        assert_eq!(machine.races(), []);
        drop(stream);
    }
}

/// An owned stream of this crate is destroyed after its capture.
#[test]
fn the_last_handle_of_a_created_stream_is_dropped_in_its_capture() {
    let machine = Machine::new(&SimulationConfig::new());
    let [one, two] = two_streams(&machine);
    let raw = one.cudarc().cu_stream();
    one.cudarc().begin_capture(MODES[1]).unwrap();
    drop(one);
    assert_eq!(machine.counts().streams, 2, "destroying it would end the capture");
    // SAFETY: the stream exists, as was just seen.
    let again = unsafe { machine.device.context().wrap_borrowed_stream(raw) };
    assert!(again.end_capture(CUgraphInstantiate_flags(0)).unwrap().is_some());
    drop(again);
    drop(two);
    assert_eq!(machine.counts().streams, 0);
}

/// Memory of a pool of the driver would become the graph's; memory of others cannot be freed in a capture.
#[test]
fn the_drivers_allocators_wait_for_the_end_of_a_capture() {
    for (mode, is_marked) in ways() {
        for is_direct in [true, false] {
            let machine = Machine::new(&SimulationConfig::new().bytes_per_microsecond(100));
            let [one, two] = two_streams(&machine);
            let allocator = match is_direct {
                true => DriverAllocator::direct(&machine.device),
                false => DriverAllocator::stream_ordered(&machine.device).unwrap(),
            };
            let allocator = allocator.into_ref();
            let request = |stream: &DeviceStream| Request::new(BYTES).stream(stream.id());
            let [own, other] = [&one, &two].map(|stream| allocator.allocate(&request(stream)).unwrap());
            other.record_stream(one.id()).unwrap();
            let capture = Capture::begin(&machine, one.cudarc(), mode, is_marked);
            let in_capture = allocator.allocate(&request(&one)).map(drop);
            assert!(if is_direct { in_capture.is_ok() } else { is_refused(in_capture) });
            drop((own, other));
            capture.assert_active("after frees");
            drop(allocator.allocate(&request(&two)).unwrap());
            assert!(allocator.usage().reserved >= 2 << 20, "both are counted");
            allocator.trim(0);
            capture.assert_active("after a trim");
            drop(capture.end());
            // Tried again at the next call.
            drop(allocator.allocate(&request(&two)).unwrap());
            machine.device.context().synchronize().unwrap();
            allocator.trim(0);
            assert_eq!((allocator.usage().reserved, machine.used_memory(0)), (0, 0), "{mode} {is_direct}");
            assert_eq!(machine.races(), []);
        }
    }
}

/// Requests, frees and figures of a caching allocator while a stream that it serves captures.
#[test]
fn a_caching_allocator_leaves_captures_whole() {
    for (mode, is_marked) in ways() {
        for policy in [Policy::orlop(), Policy::orlop_without_pages(), Policy::torch(&"".parse().unwrap())] {
            let machine = Machine::new(&SimulationConfig::new().memory(256 << 20));
            let [one, two] = two_streams(&machine);
            let allocator = caching_allocator_with(&machine.device, policy).unwrap().into_ref();
            let request = |stream: &DeviceStream| Request::new(BYTES).stream(stream.id());
            let both = allocator.allocate(&request(&two)).unwrap();
            write(&machine, &two, &both);
            one.wait_for(two.id()).unwrap();
            both.record_stream(one.id()).unwrap();
            write(&machine, &one, &both);
            let capture = Capture::begin(&machine, one.cudarc(), mode, is_marked);
            let kept = allocator.allocate(&request(&one)).unwrap();
            write(&machine, &one, &kept);
            let first = both.as_ptr();
            drop(both);
            capture.assert_active("after a free");
            for stream in [&one, &two, &one] {
                assert_ne!(allocator.allocate(&request(stream)).unwrap().as_ptr(), first);
            }
            let large = allocator.allocate(&Request::new(400 << 20).stream(two.id())).unwrap_err();
            assert!(large.is_out_of_memory() || large.to_string().contains("captures"), "{large}");
            allocator.trim(0);
            allocator.verify().unwrap();
            capture.assert_active("after a request that failed, and a trim");
            let graph = capture.end();
            graph.launch().unwrap();
            one.synchronize().unwrap();
            drop((graph, kept));
            allocator.trim(0);
            assert_eq!(allocator.usage().reserved, 0, "{mode} {is_marked}");
            assert_eq!(allocator.device_stats().num_failed_calls, 0);
            assert_eq!(machine.races(), []);
        }
    }
}

#[test]
fn a_block_of_a_slice_is_dropped_in_a_capture() {
    for (mode, is_marked) in ways() {
        for is_shared in [false, true] {
            let machine = Machine::new(&SimulationConfig::new());
            let [one, two] = two_streams(&machine);
            let slice = one.cudarc().alloc_zeros::<u8>(BYTES).unwrap();
            let mut block = machine.device.block_of_slice(slice).unwrap();
            if is_shared {
                BlockSlice::<u8>::of(&mut block, &two).unwrap();
            }
            machine.device.context().synchronize().unwrap();
            let capture = Capture::begin(&machine, one.cudarc(), mode, is_marked);
            drop(block);
            drop(capture.end());
            assert_eq!(machine.device.context().check_err(), Ok(()));
            // A stream that is dropped looks after what waits.
            drop(two);
            one.synchronize().unwrap();
            assert_eq!(machine.used_memory(0), 0, "{mode} {is_marked} {is_shared}");
        }
    }
}

#[test]
fn what_would_end_a_capture_is_refused() {
    let machine = Machine::new(&SimulationConfig::new());
    let [one, two] = two_streams(&machine);
    let (ops, gpu) = (CudaOps::new(&machine.device), caching_allocator(&machine.device).unwrap().into_ref());
    let mut of_two = gpu.allocate(&Request::new(BYTES).stream(two.id())).unwrap();
    let mut of_one = gpu.allocate(&Request::new(BYTES).stream(one.id())).unwrap();
    let capture = Capture::begin(&machine, one.cudarc(), 1, false);
    assert!(matches!(one.synchronize(), Err(CudaError::Capturing { .. })));
    assert!(is_refused(ops.synchronize(one.id())));
    assert!(matches!(one.wait_for(two.id()), Err(CudaError::Capturing { .. })));
    assert!(is_refused(BlockSlice::<u8>::of(&mut of_two, &one)));
    assert!(is_refused(of_two.zero_by(&ops, one.id())));
    assert!(is_refused(KernelPointer::<u8>::of(&of_two, &one)));
    {
        // cudarc's function on the other stream has no address: neither stream can wait for the other.
        let mut slice = BlockSlice::<u8>::of(&mut of_one, &one).unwrap();
        assert!(two.cudarc().memset_zeros(&mut slice).is_err());
    }
    capture.assert_active("after all of them");
    drop(capture.end());
    two.synchronize().unwrap();
}

/// A graph would repeat copies of host memory that is gone, and cudarc makes a slice's stream wait for events
/// from before the capture.
#[test]
fn copies_of_buffers_and_slices_leave_a_capture_whole() {
    for (mode, is_marked) in ways() {
        let machine = Machine::new(&SimulationConfig::new());
        let [one, _two] = two_streams(&machine);
        let gpu = caching_allocator(&machine.device).unwrap().into_ref();
        let buffer = DeviceBuffer::from_slice(&gpu, &one, &[7_u32; 100]).unwrap();
        let slice = one.cudarc().alloc_zeros::<u8>(BYTES).unwrap();
        machine.device.context().synchronize().unwrap();
        let capture = Capture::begin(&machine, one.cudarc(), mode, is_marked);
        assert!(is_refused(buffer.to_vec()));
        assert!(is_refused(DeviceBuffer::from_slice(&gpu, &one, &[7_u32; 100])));
        assert!(is_refused(machine.device.block_of_slice(slice)));
        drop(capture.end());
        assert_eq!(buffer.to_vec().unwrap(), [7; 100], "{mode} {is_marked}");
        assert_eq!(machine.races(), []);
    }
}

/// A stream that waits for one that captures becomes a part of the capture, and so does their memory.
#[test]
fn streams_are_ordered_in_a_capture() {
    let machine = Machine::new(&SimulationConfig::new());
    let [one, two] = two_streams(&machine);
    let gpu = caching_allocator(&machine.device).unwrap().into_ref();
    let block = gpu.allocate(&Request::new(BYTES).stream(one.id())).unwrap();
    let third = machine.device.create_stream().unwrap();
    let other = Capture::begin(&machine, third.cudarc(), 2, true);
    let capture = Capture::begin(&machine, one.cudarc(), 2, true);
    write(&machine, &one, &block);
    KernelPointer::<u8>::of(&block, &two).unwrap();
    write(&machine, &two, &block);
    one.wait_for(two.id()).unwrap();
    write(&machine, &one, &block);
    // Two captures cannot become one.
    assert!(matches!(third.wait_for(one.id()), Err(CudaError::Capturing { .. })));
    other.assert_active("the other one");
    drop(other.end());
    let graph = capture.end();
    graph.launch().unwrap();
    one.synchronize().unwrap();
    assert_eq!(machine.races(), []);
}
