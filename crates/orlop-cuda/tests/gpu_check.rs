//! The program of `cargo xtask gpu`, on the simulated driver.

#[path = "../examples/gpu.rs"]
#[allow(dead_code, reason = "`main` reads the arguments of the program")]
mod gpu;

#[test]
fn its_checks_pass_on_the_simulated_driver() {
    assert!(gpu::run(true, true).expect("the simulated driver is built"), "a check failed: see the output");
}
