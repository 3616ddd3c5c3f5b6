//! Injected failures.

use crate::support::{OK, allocate, start};
use cudarc::driver::{result, sys};
use sys::CUresult::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};

#[test]
fn the_nth_call_fails_and_others_do_not() {
    let (driver, _context) = start();
    driver.fail("cuMemAlloc_v2", 2, 2).expect("ok");
    let mut address = 0;
    let codes: Vec<_> = (0..3).map(|_| cu!(cuMemAlloc_v2(&raw mut address, 64))).collect();
    assert_eq!(codes, [OK, CUDA_ERROR_OUT_OF_MEMORY, OK]);
    driver.fail_times("cuMemAlloc_v2", 1, 2, 1).expect("ok");
    let codes: Vec<_> = (0..3).map(|_| cu!(cuMemAlloc_v2(&raw mut address, 64))).collect();
    assert_eq!(codes, [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, OK]);
    // A failed call did nothing.
    assert_eq!(driver.live_allocations().len(), 3);
    driver.fail("*", 3, 2).expect("ok");
    assert!(result::mem_get_info().is_ok());
    assert!(result::mem_get_info().is_ok());
    assert_eq!(cu!(cuMemFree_v2(address)), CUDA_ERROR_OUT_OF_MEMORY);
    driver.fail("*", 1, 2).expect("ok");
    driver.clear_faults();
    assert_eq!(cu!(cuMemFree_v2(address)), OK);
}

#[test]
fn a_sticky_code_stays() {
    let (driver, context) = start();
    let address = allocate(64);
    driver.fail("cuMemFree_v2", 1, 700).expect("ok");
    assert_eq!(cu!(cuMemFree_v2(address)), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuMemFree_v2(address)), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(context.new_stream().is_err());
    driver.poison(0, 0).expect("a device");
    assert_eq!(cu!(cuMemFree_v2(address)), OK);
    driver.poison(0, 719).expect("a device");
    assert_eq!(cu!(cuCtxSynchronize()), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    assert!(driver.poison(1, 719).is_err());
}

#[test]
fn every_call_is_counted() {
    let (driver, _context) = start();
    drop(driver.take_calls());
    allocate(64);
    allocate(64);
    let calls: Vec<(String, u64)> = driver.all_calls().into_iter().collect();
    assert_eq!(calls, [("cuMemAlloc_v2".to_owned(), 2)]);
    assert_eq!(driver.calls("cuMemFree_v2"), 0);
}
