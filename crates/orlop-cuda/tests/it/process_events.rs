//! Events that processes share, as one process sees them.

use crate::machine::Machine;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use orlop_alloc::{Allocator, Request};
use orlop_cuda::{CudaDevice, CudaError, caching_allocator};
use orlop_cudasim_control::SimulationConfig;

#[test]
fn it_orders_two_streams_of_its_process() {
    let machine = Machine::new(&SimulationConfig::new());
    let [one, two] = [(); 2].map(|()| machine.device.create_stream().unwrap());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(4096).stream(one.id())).unwrap();
    let event = machine.device.create_process_event().unwrap();
    assert!(event.is_complete().unwrap(), "no record");
    for (is_ordered, races) in [(true, 0), (false, 1)] {
        one.synchronize().unwrap();
        two.synchronize().unwrap();
        machine.write(&one, &block);
        event.record(&one).unwrap();
        assert!(!event.is_complete().unwrap());
        if is_ordered {
            event.wait(&two).unwrap();
        }
        machine.write(&two, &block);
        assert_eq!(machine.take_races().len(), races);
    }
    event.synchronize().unwrap();
    assert!(event.is_complete().unwrap());
    block.record_stream(two.id()).unwrap();
}

#[test]
fn what_it_cannot_do_is_a_typed_error() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]));
    let device = &machine.device;
    let (event, stream) = (device.create_process_event().unwrap(), device.create_stream().unwrap());
    let exported = event.export().unwrap();
    assert_eq!(exported.len(), 64);
    for wrong in [&exported[..63], &[]] {
        // SAFETY: refused.
        let refused = unsafe { device.import_event(wrong) }.unwrap_err();
        assert!(matches!(refused, CudaError::NotExported { .. }), "{refused}");
    }
    // SAFETY: refused: an event of this process.
    let own = unsafe { device.import_event(&exported) }.unwrap_err();
    assert!(matches!(own, CudaError::Failed(_)), "{own}");
    for call in ["cuEventCreate", "cuIpcGetEventHandle", "cuIpcOpenEventHandle"] {
        machine.fail(call, 1, 801).unwrap();
        // SAFETY: refused.
        let refused = match call {
            "cuEventCreate" => device.create_process_event().map(|_| ()),
            "cuIpcGetEventHandle" => event.export().map(|_| ()),
            // SAFETY: refused.
            _ => unsafe { device.import_event(&exported) }.map(|_| ()),
        };
        assert!(matches!(refused, Err(CudaError::Unsupported { .. })), "{call}: {refused:?}");
    }

    let far = CudaDevice::new(1).unwrap().create_stream().unwrap();
    for refused in [event.record(&far), event.wait(&far)] {
        assert!(matches!(refused, Err(CudaError::OtherDevice { .. })), "{refused:?}");
    }

    let captured = stream.cudarc();
    captured.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    for refused in [event.record(&stream), event.wait(&stream)] {
        assert!(matches!(refused, Err(CudaError::Capturing { .. })), "{refused:?}");
    }
    assert!(event.is_complete().unwrap());
    assert!(captured.end_capture(CUgraphInstantiate_flags(0)).unwrap().is_some());
    event.record(&stream).unwrap();
    event.synchronize().unwrap();
}
