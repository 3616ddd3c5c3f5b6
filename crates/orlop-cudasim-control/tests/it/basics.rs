//! Contexts, allocations and copies.

use crate::support::start;
use cudarc::driver::result;

#[test]
fn a_round_trip_keeps_the_bytes() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let values: Vec<u32> = (0..100_000).collect();
    let device = stream.clone_htod(&values).expect("a copy");
    let back = stream.clone_dtoh(&device).expect("a copy");
    stream.synchronize().expect("a wait");
    assert_eq!(back, values);
    drop(device);
    stream.synchronize().expect("a wait");
    assert_eq!(driver.races(), []);
    assert_eq!(driver.live_allocations(), []);
    assert!(result::mem_get_info().expect("info").1 == 1 << 30);
}
