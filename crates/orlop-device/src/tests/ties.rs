//! Of free blocks of equal size: which one is taken.

use super::{MIB, on};
use crate::{Engine, NullDevice, Policy, TieRule, TorchConf};
use orlop_core::Device;

/// Runs a program whose peak depends on the rule, and returns the reserved MiB.
fn reserved(device: NullDevice, ties: TieRule) -> u64 {
    let mut engine = Engine::new(device, Policy::torch(&TorchConf::default().with_ties(ties)));
    let mut blocks = Vec::new();
    // A size in MiB, or the number of a block to free.
    for step in [Ok(16), Ok(4), Err(0), Ok(16), Ok(4), Ok(32), Err(4), Ok(16), Err(2), Ok(16), Err(5), Ok(32)]
    {
        match step {
            Ok(mib) => blocks.push(engine.allocate(on(mib, 0)).expect("there is room")),
            Err(block) => engine.free(blocks[block]).expect("a live block"),
        }
        engine.verify().expect("valid");
    }
    engine.stats().reserved_bytes.all.current / MIB as u64
}

#[test]
fn the_oldest_segment_comes_first_wherever_it_is() {
    let memory = 1 << 30;
    let devices = || {
        let device = Device::cuda(0);
        [
            NullDevice::new(device, memory),
            NullDevice::descending(device, memory),
            NullDevice::like_cuda(device, memory),
        ]
    };
    assert_eq!(devices().map(|device| reserved(device, TieRule::OldestSegment)), [68, 68, 68]);
    let [ascending, descending, _] = devices().map(|device| reserved(device, TieRule::LowestAddress));
    assert_eq!((ascending, descending), (68, 100));
}
