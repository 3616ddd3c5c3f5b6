//! What is missing: the driver, a function of it, a device. A process loads one driver, so some of these run
//! in a child.

use orlop_context::registry::Registry;
use orlop_cuda::{CudaDevice, CudaError, Driver, register};
use orlop_cudasim_control::{DriverOptions, SimulatedDriver, SimulationConfig};
use orlop_testkit::child;

fn all_fail_with(expected: CudaError) {
    // A failure is not kept, and each call fails alike.
    for _ in 0..2 {
        assert_eq!(Driver::load().map(|_| ()), Err(expected));
        assert_eq!(CudaDevice::new(0).map(|_| ()), Err(expected));
        let registry = Registry::new();
        assert_eq!(register(&registry), Err(expected));
        assert!(registry.registered().is_empty(), "nothing is registered");
    }
}

#[test]
fn no_driver_is_an_error() {
    const TEST: &str = "absent::no_driver_is_an_error";
    if !child::plays("no driver") {
        child::run(TEST, "no driver", &[]);
        return;
    }
    // SAFETY: it opens libraries with the driver's names.
    if unsafe { cudarc::driver::sys::is_culib_present() } {
        println!("this machine has a driver");
        return;
    }
    all_fail_with(CudaError::DriverNotFound);
    // A driver that is there later is found.
    SimulatedDriver::load().expect("the simulated driver is built");
    assert_eq!(CudaDevice::new(0).expect("a device").driver().device_count(), 1);
}

const SYMBOLS: [&str; 5] =
    ["cuInit", "cuMemAllocFromPoolAsync", "cuMemCreate", "cuMemcpy3DAsync_v2", "cuStreamIsCapturing"];

#[test]
fn a_driver_without_a_function_is_too_old() {
    const TEST: &str = "absent::a_driver_without_a_function_is_too_old";
    let part = |symbol: &str| format!("without {symbol}");
    let Some(symbol) = SYMBOLS.into_iter().find(|symbol| child::plays(&part(symbol))) else {
        for symbol in SYMBOLS {
            child::run(TEST, &part(symbol), &[]);
        }
        return;
    };
    SimulatedDriver::load_with(&DriverOptions::new().without_symbol(symbol)).expect("a driver");
    all_fail_with(CudaError::DriverTooOld { symbol });
}

#[test]
fn a_driver_without_a_device_is_an_error() {
    const TEST: &str = "absent::a_driver_without_a_device_is_an_error";
    if !child::plays("no device") {
        child::run(TEST, "no device", &[]);
        return;
    }
    let driver = SimulatedDriver::load().expect("the simulated driver is built");
    driver.reset(&SimulationConfig::new().devices([])).expect("valid");
    all_fail_with(CudaError::NoDevice);
    driver.reset(&SimulationConfig::new()).expect("valid");
    assert!(CudaDevice::new(0).is_ok());
}
