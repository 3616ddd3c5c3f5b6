//! Segments for PyTorch's own allocator.

use crate::machine::{MEMORY, Machine, handle, last_error, pointer};
use cudarc::driver::result::stream;
use cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
use orlop_torch::orlop_torch_segment_free;

#[test]
fn a_segment_is_reused_after_all_work_of_the_device() {
    let machine = Machine::new(8);
    let (main, side) = (machine.device.create_stream().unwrap(), machine.device.create_stream().unwrap());
    let allocate = |stream| machine.segment(20 << 20, handle(stream));
    let free = |address, stream| {
        orlop_torch_segment_free(pointer(address), 20 << 20, machine.number, handle(stream));
    };
    for _ in 0..20 {
        let segment = allocate(&main);
        assert_ne!(segment, 0);
        machine.write(&main, segment, 10 << 20);
        // PyTorch gives other streams a part.
        machine.write(&side, segment + (10 << 20), 10 << 20);
        free(segment, &main);
        let other = allocate(&side);
        assert_eq!(other, segment);
        machine.write(&side, other, 20 << 20);
        free(other, &side);
    }
    assert_eq!(machine.driver.races(), []);
    assert_eq!(machine.segment(isize::MAX.unsigned_abs(), handle(&main)), 0);
    assert_eq!(machine.segment(2 * MEMORY, handle(&main)), 0);
    assert!(last_error().contains("out of memory"), "{}", last_error());
    free(12345, &main);
    assert!(last_error().contains("0x3039"), "{}", last_error());
}

#[test]
fn a_segment_that_is_freed_in_a_capture_is_kept_until_after_it() {
    let machine = Machine::new(12);
    // A stream of PyTorch, which the library knows by the request only.
    let raw = machine.create_raw_stream();
    let free = |address| {
        orlop_torch_segment_free(pointer(address), 20 << 20, machine.number, raw.cast());
    };
    let segment = machine.segment(20 << 20, raw.cast());
    // SAFETY: the stream exists until the end of the process.
    unsafe { stream::begin_capture(raw, CU_STREAM_CAPTURE_MODE_GLOBAL) }.unwrap();
    free(segment);
    assert!(last_error().contains("captur"), "{}", last_error());
    let other = machine.segment(20 << 20, raw.cast());
    assert!(other != 0 && other != segment);
    // SAFETY: as above. An invalid capture is an error.
    let graph = unsafe { stream::end_capture(raw) }.unwrap();
    // SAFETY: the graph is used no more.
    unsafe { cudarc::driver::result::graph::destroy(graph) }.unwrap();
    free(other);
    free(segment);
    assert!(last_error().contains("is not the address of a live block"), "{}", last_error());
    assert_eq!(machine.stat("allocation.all.current"), 0);
}
