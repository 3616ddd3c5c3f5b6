//! A driver that lacks functions. A process loads one driver, so that each case runs in a process of its own.

use cudarc::driver::sys;
use orlop_cudasim_control::{DriverOptions, Error, SimulatedDriver};
use std::process::Command;

/// Runs an ignored test of this file in a process of its own.
fn in_child(name: &str) {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args([name, "--exact", "--ignored", "--nocapture"]).output();
    let output = output.expect("a process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}{:?}", output.stderr);
}

#[test]
fn a_function_can_be_missing() {
    in_child("missing::child_without_a_function");
}

#[test]
#[ignore = "runs in a process of its own: a process loads one driver"]
fn child_without_a_function() {
    let options = DriverOptions::new().without_symbol("cuMemCreate").without_symbol("cuMemAllocAsync");
    let unknown = options.clone().without_symbol("cuNoSuchFunction");
    let refused = SimulatedDriver::load_with(&unknown).map(|_| ());
    assert_eq!(refused, Err(Error::NoSymbol { symbol: "cuNoSuchFunction".to_owned() }));
    SimulatedDriver::load_with(&options).expect("a driver");
    // SAFETY: the driver is loaded.
    let library = unsafe { sys::culib() };
    let has = |name: &str| {
        // SAFETY: the symbol is not used.
        unsafe { library.get::<*const ()>(name.as_bytes()) }.is_ok()
    };
    assert!(!has("cuMemCreate") && !has("cuMemAllocAsync"));
    assert!(has("cuMemAlloc_v2") && has("cuMemRelease") && has("cuMemAllocFromPoolAsync"));
    assert_eq!(SimulatedDriver::load().map(|_| ()), Err(Error::OtherOptions));
}

#[test]
fn another_driver_is_not_replaced() {
    in_child("missing::child_after_another_driver");
}

#[test]
#[ignore = "runs in a process of its own: a process loads one driver"]
fn child_after_another_driver() {
    let path = SimulatedDriver::path().expect("the library is built with the tests");
    let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).expect("a path");
    // SAFETY: the path is a terminated string, and the library has no initializers.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    assert_eq!(SimulatedDriver::load().map(|_| ()), Err(Error::OtherDriver));
}
