//! The programs for a machine with a GPU, on the simulated driver.

#![allow(clippy::duplicate_mod, reason = "two of the programs have the same file of calls")]

#[path = "../examples/gpu.rs"]
#[allow(dead_code, reason = "`main` reads the arguments of the program")]
mod gpu;

#[path = "../examples/gpu_costs/main.rs"]
#[allow(dead_code, reason = "as above")]
mod gpu_costs;

#[path = "../examples/gpu_facts/main.rs"]
#[allow(dead_code, reason = "as above, and the other processes are the program's own")]
mod gpu_facts;

/// One test: each program uses the whole device.
#[test]
fn they_run_on_the_simulated_driver() {
    assert!(gpu::run(true, true).expect("the simulated driver is built"), "a check failed: see the output");
    let failed = gpu_costs::run(true, true, &[]).expect("the simulated driver is built");
    assert_eq!(failed, 0, "a section failed: see the output");
    let failed = gpu_facts::run(true, &["rdma", "clock"]).expect("the simulated driver is built");
    assert_eq!(failed, 0, "a section failed: see the output");
}
