//! What addresses, contexts and symbols are, asked of the driver and the runtime.

use super::process::Process;
use super::{is_dry, run_dry, settings};

/// Returns an attribute of an address; bytes of the value that are not written are ones.
fn attribute(process: &Process, attribute: usize, address: usize) -> Result<u64, i32> {
    let mut value = u64::MAX;
    let at = (&raw mut value).expose_provenance();
    match process.call4("cuPointerGetAttribute", at, attribute, address, 0) {
        0 => Ok(value),
        code => Err(code),
    }
}

#[test]
fn attributes_of_an_address_are_written_in_their_size() {
    if !is_dry() {
        run_dry("driver::attributes_of_an_address_are_written_in_their_size", &settings());
        return;
    }
    let process = Process::new();
    let start = process.allocate(4 << 20).expect("it fits");
    let inside = start + 100;
    for (number, expected) in [(3, inside), (7, start), (11, start), (12, 4 << 20), (14, 0)] {
        assert_eq!(attribute(&process, number, inside), Ok(expected as u64), "{number}");
    }
    assert_eq!(attribute(&process, 2, inside), Ok(u64::from(u32::MAX) << 32 | 2));
    assert_eq!(attribute(&process, 8, inside), Ok(u64::MAX << 8));
    assert!(attribute(&process, 1, inside).expect("a context") < u64::from(u32::MAX));
    // It has no address on the host, and what is next to it is nothing.
    assert_eq!(attribute(&process, 4, inside), Err(1));
    assert_eq!(attribute(&process, 11, start + (4 << 20)), Err(1));
    let mut pinned = 0_usize;
    assert_eq!(process.call2("cudaMallocHost", (&raw mut pinned).expose_provenance(), 100), 0);
    assert_eq!(attribute(&process, 4, pinned + 7), Ok(pinned as u64 + 7));
    assert_eq!(attribute(&process, 12, pinned + 7), Ok(100));
}

#[test]
fn contexts_are_a_stack() {
    if !is_dry() {
        let mut two = settings();
        two.devices = 2;
        run_dry("driver::contexts_are_a_stack", &two);
        return;
    }
    let process = Process::new();
    let retained = |device| {
        let mut context = 0_usize;
        let at = (&raw mut context).expose_provenance();
        assert_eq!(process.call2("cuDevicePrimaryCtxRetain", at, device), 0);
        context
    };
    let current = || process.created("cuCtxGetCurrent");
    let contexts = [retained(0), retained(1)];
    assert_eq!(current(), contexts[0]);
    assert_eq!(process.call1("cuCtxPushCurrent_v2", contexts[1]), 0);
    assert_eq!(current(), contexts[1]);
    assert_eq!((process.created("cuCtxPopCurrent_v2"), current()), (contexts[1], contexts[0]));
    let mut popped = 0_usize;
    assert_eq!(process.call1("cuCtxPopCurrent_v2", (&raw mut popped).expose_provenance()), 201);
}

#[test]
fn a_symbol_has_one_address() {
    if !is_dry() {
        run_dry("driver::a_symbol_has_one_address", &settings());
        return;
    }
    let process = Process::new();
    let address = |symbol| {
        let mut address = 0_usize;
        let at = (&raw mut address).expose_provenance();
        assert_eq!(process.call2("cudaGetSymbolAddress", at, symbol), 0);
        address
    };
    assert_eq!(address(0x10), address(0x10));
    assert_ne!(address(0x10), address(0x20));
}

#[test]
fn what_triton_calls_by_name_succeeds() {
    if !is_dry() {
        run_dry("driver::what_triton_calls_by_name_succeeds", &settings());
        return;
    }
    let process = Process::new();
    assert_eq!(process.call2("cuCtxSetLimit", 1, 1 << 20), 0);
    assert!(process.created("cuCtxGetLimit") > 0);
    assert_ne!(process.created("cuModuleLoad"), process.created("cuModuleLoad"));
}

#[test]
fn properties_have_the_form_of_the_version() {
    if !is_dry() {
        run_dry("driver::properties_have_the_form_of_the_version", &settings());
        return;
    }
    let process = Process::new();
    let forms = [("cudaGetDeviceProperties", 1008, 384), ("cudaGetDeviceProperties_v2", 1032, 388)];
    for (name, bytes, multiprocessors) in forms {
        let mut properties = [7_u8; 1040];
        assert_eq!(process.call2(name, properties.as_mut_ptr().expose_provenance(), 0), 0);
        assert_eq!(properties[multiprocessors..multiprocessors + 4], 132_u32.to_le_bytes());
        assert_eq!((properties[bytes - 1], properties[bytes]), (0, 7), "{name}");
    }
}

#[test]
fn captures_are_told_in_the_form_of_each_version() {
    if !is_dry() {
        run_dry("driver::captures_are_told_in_the_form_of_each_version", &settings());
        return;
    }
    let process = Process::new();
    let stream = process.created("cudaStreamCreate");
    let mut written = [u64::MAX; 6];
    let start = written.as_mut_ptr().expose_provenance();
    let [status, id, graph, nodes, edges, count] = [0, 1, 2, 3, 4, 5].map(|index| start + 8 * index);
    assert_eq!(process.call("cudaStreamBeginCapture", [stream, 0]), 0);
    for name in ["cudaStreamGetCaptureInfo", "cudaStreamGetCaptureInfo_v3"] {
        assert_eq!(process.call(name, [stream, status, id, graph, nodes, edges, count]), 0);
        assert_eq!((written[1], &written[3..]), (1, &[0; 3][..]), "{name}");
        written.fill(u64::MAX);
    }
    assert_eq!(process.call("cudaStreamGetCaptureInfo_v2", [stream, status, id, graph, nodes, count]), 0);
    assert_eq!((written[1], written[3], written[4], written[5]), (1, 0, u64::MAX, 0));
}

#[test]
fn the_version_of_cudnn_is_set() {
    if !is_dry() {
        run_dry("driver::the_version_of_cudnn_is_set", &settings());
        return;
    }
    let process = Process::new();
    assert_eq!(process.call0("cudnnGetVersion"), 91_900);
    for (version, parts) in [(92_001, [9, 20, 1]), (8902, [8, 9, 2])] {
        process.call1("orlop_dry_run_set_cudnn_version", version);
        assert_eq!(process.call0("cudnnGetVersion"), i32::try_from(version).expect("few digits"));
        let read = [0, 1, 2].map(|part| {
            let mut value = -1_i32;
            assert_eq!(process.call2("cudnnGetProperty", part, (&raw mut value).expose_provenance()), 0);
            value
        });
        assert_eq!(read, parts);
    }
}

#[test]
fn transforms_have_plans() {
    if !is_dry() {
        run_dry("driver::transforms_have_plans", &settings());
        return;
    }
    let process = Process::new();
    let mut plan = 0_i32;
    assert_eq!(process.call1("cufftCreate", (&raw mut plan).expose_provenance()), 0);
    let plan = usize::try_from(plan).expect("a handle");
    assert!(plan != 0);
    assert_eq!([process.call("cufftXtExec", [plan, 0, 0, 0]), process.call1("cufftDestroy", plan)], [0, 0]);
}
