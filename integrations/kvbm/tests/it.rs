//! The suite over `kvbm-logical`.

use orlop_kvbm::KvbmPool;
use orlop_testkit::kv::{KvOutcome, run_kv_suite};

/// The README's table: what it has functions for passes.
#[test]
fn what_kvbm_supports_passes() {
    let results = run_kv_suite::<KvbmPool>();
    let (mut passed, mut unsupported) = (0, 0);
    for result in &results {
        println!("{}, {} steps in flight: {:?}", result.case, result.lag, result.outcome);
        match result.outcome {
            KvOutcome::Passed { .. } => passed += 1,
            KvOutcome::Unsupported => unsupported += 1,
            KvOutcome::Failed { .. } => panic!("{result:?}"),
        }
    }
    assert_eq!((passed, unsupported), (3 * 15, 3 * 20));
}
