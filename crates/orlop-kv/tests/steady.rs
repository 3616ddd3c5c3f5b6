//! A step of running sequences allocates nothing once it is warm.

use orlop_alloc::bare::GlobalAllocator;
use orlop_kv::{AdmissionRequest, ChainFields, KvGeometry, KvPool, LayerGroup, Sequence, Tenant};

/// Counts what is allocated.
#[global_allocator]
static GLOBAL: GlobalAllocator = GlobalAllocator;

#[test]
fn a_step_allocates_nothing() {
    let geometry = KvGeometry::new(vec![
        LayerGroup::full("full", 4, 64),
        LayerGroup::window("window", 4, 64, 128),
        LayerGroup::state("state", 2, 4096),
    ]);
    let mut pool = KvPool::builder(geometry.unwrap()).bytes(1 << 30).build_detached().unwrap();
    let fields = ChainFields::new(Tenant::Shared, "weights", "");
    let start = |family: u32| -> Sequence {
        let prompt: Vec<u32> = (0..100).map(|at| family * 1000 + at).collect();
        let admission = pool.admit(&AdmissionRequest::new(fields, &prompt, 8000)).unwrap();
        pool.append(&admission.sequence, 100).unwrap();
        admission.sequence
    };
    let sequences: Vec<Sequence> = (0..64).map(start).collect();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    let mut row = vec![0; 512];
    let mut run = |token: u32| {
        for sequence in &sequences {
            pool.append(sequence, 1).unwrap();
        }
        for sequence in &sequences {
            pool.write_block_table(sequence, 0, 0, u32::MAX, &mut row).unwrap();
            assert!(pool.state_page(sequence, 2, 0).unwrap().is_some());
        }
        let step = pool.close_step();
        pool.settle(step).unwrap();
        for sequence in &sequences {
            let (len, _) = pool.len(sequence).unwrap();
            pool.push_tokens(sequence, len - 1, &[token]).unwrap();
        }
    };
    (0..500).for_each(&mut run);
    let allocations = || GlobalAllocator::stats().totals.all.allocations;
    // Tables double now and then, and the harness allocates, too: 100 steps without any are proof.
    let is_steady = (0..20).any(|window| {
        let before = allocations();
        (0..100).for_each(|at| run(window * 100 + at));
        allocations() == before
    });
    assert!(is_steady);
}
