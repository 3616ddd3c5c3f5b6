//! The figures of an out-of-memory report: bins, chunks, the largest free chunk, fragmentation, the hint.

use orlop_alloc::backing::System;
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::{Allocator, Block, Error, Refusal, Request};

#[test]
fn a_fragmented_pool_is_described_by_bins() {
    let policy = BfcPolicy::tensorflow_fixed();
    let allocator = Bfc::builder(System::new()).policy(policy).limit(1 << 20).build().into_ref();
    // Sixteen blocks fill the pool; every other one is freed.
    let blocks: Vec<Block> = (0..16).map(|_| allocator.allocate(&Request::new(65_000)).unwrap()).collect();
    let live: Vec<Block> = blocks.into_iter().step_by(2).collect();
    let Err(Error::OutOfMemory(report)) = allocator.allocate(&Request::new(100_000)) else { panic!() };
    let chunk = live[0].capacity();
    assert_eq!((report.requested, report.live), (100_000, 8 * chunk as u64));
    assert_eq!((report.free, report.reserved), ((1 << 20) - report.live, 1 << 20));
    assert!(report.refusal == Refusal::Limit || report.refusal == Refusal::Full, "{:?}", report.refusal);
    let used: Vec<_> = report.bins.iter().filter(|bin| bin.used_chunks > 0).collect();
    let [bin] = used[..] else { panic!("{used:?}") };
    assert_eq!((bin.used_chunks, bin.used_bytes, bin.requested_bytes), (8, 8 * chunk, 8 * 65_000));
    assert!((bin.from_bytes..2 * bin.from_bytes).contains(&chunk), "{bin:?}");
    let free = |count: fn(&orlop_alloc::BinUse) -> usize| report.bins.iter().map(count).sum::<usize>();
    assert_eq!((free(|bin| bin.free_chunks), free(|bin| bin.free_bytes) as u64), (8, report.free));
    assert!(report.largest_free >= chunk as u64 && report.largest_free < 100_000);
    let expected = 1.0 - report.largest_free as f64 / report.free as f64;
    assert!((report.fragmentation() - expected).abs() < 1e-9 && expected > 0.8);
    assert!(report.hint().contains("due to fragmentation"), "{}", report.hint());
    let text = report.report();
    for part in ["8 used", "7 free", "1 free", "hint: ", "fragmented"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // What the hint says: in one piece the free bytes suffice.
    drop(live);
    drop(allocator.allocate(&Request::new(100_000)).unwrap());
}
