//! The programs for a machine with a GPU, on the simulated driver.

#[path = "../examples/gpu.rs"]
#[allow(dead_code, reason = "`main` reads the arguments of the program")]
mod gpu;

#[path = "../examples/gpu_costs/main.rs"]
#[allow(dead_code, reason = "as above")]
mod gpu_costs;

/// One test: each program uses the whole device.
#[test]
fn they_run_on_the_simulated_driver() {
    assert!(gpu::run(true, true).expect("the simulated driver is built"), "a check failed: see the output");
    let failed = gpu_costs::run(true, true, &[]).expect("the simulated driver is built");
    assert_eq!(failed, 0, "a section failed: see the output");
}
