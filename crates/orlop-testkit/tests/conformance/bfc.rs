//! The BFC engine under TensorFlow's policy gives the addresses of TensorFlow's BFC.

use orlop_alloc::backing::Null;
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::Device;
use orlop_testkit::bfc::ReferenceBfc;
use orlop_testkit::golden::{self, TraceEvent};
use orlop_testkit::program::sizes;
use proptest::prelude::*;
use std::collections::HashMap;

/// The engine and the reference, side by side.
struct EnginePair {
    engine: AllocatorRef<Bfc<Null>>,
    reference: ReferenceBfc,
}

#[derive(Debug, Clone, Copy)]
struct PairLimits {
    limit: usize,
    backing: u64,
    collects_garbage: bool,
}

impl EnginePair {
    fn new(limits: PairLimits) -> Self {
        let policy = BfcPolicy::tensorflow();
        let policy = if limits.collects_garbage { policy.releasing_when_stuck() } else { policy };
        let null = Null::with_limit(Device::CPU, limits.backing);
        let engine = Bfc::builder(null).policy(policy).limit(limits.limit).build().into_ref();
        let reference = ReferenceBfc::new(Null::FIRST_ADDRESS as u64, limits.limit as u64, limits.backing);
        let reference = if limits.collects_garbage { reference.collecting_garbage() } else { reference };
        Self { engine, reference }
    }

    /// Allocates from both. `None` if both fail.
    fn allocate(&mut self, bytes: usize) -> Result<Option<Block>, String> {
        let expected = self.reference.allocate(bytes as u64);
        let block = self.engine.allocate(&Request::new(bytes)).ok();
        let found = block.as_ref().map(|block| block.as_ptr().as_ptr().addr() as u64);
        let reserved = self.engine.stats().usage.reserved;
        if found != expected || reserved != self.reference.reserved() {
            let reference = self.reference.reserved();
            return Err(format!(
                "{bytes} bytes at {found:x?} of {reserved}, not {expected:x?} of {reference}"
            ));
        }
        Ok(block)
    }

    fn free(&mut self, block: Block) {
        assert!(self.reference.free(block.as_ptr().as_ptr().addr() as u64));
        drop(block);
    }
}

#[derive(Debug, Clone, Copy)]
enum BfcStep {
    Allocate(usize),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<BfcStep>> {
    let large = (1usize..=24).prop_map(|mebibytes| mebibytes << 20);
    let sizes = prop_oneof![8 => sizes(2 << 20).prop_map(|bytes| bytes.max(1)), 1 => large];
    let step =
        prop_oneof![3 => sizes.prop_map(BfcStep::Allocate), 2 => any::<usize>().prop_map(BfcStep::Free)];
    prop::collection::vec(step, 1..250)
}

fn limits() -> impl Strategy<Value = PairLimits> {
    let limit = prop_oneof![Just(usize::MAX >> 1), 1usize << 20..64 << 20, 1usize..1 << 20];
    let backing = prop_oneof![2 => Just(u64::MAX >> 1), 1 => 1u64 << 20..64 << 20];
    (limit, backing, any::<bool>()).prop_map(|(limit, backing, collects_garbage)| PairLimits {
        limit,
        backing,
        collects_garbage,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_get_the_same_addresses(limits in limits(), steps in steps()) {
        let mut pair = EnginePair::new(limits);
        let mut live: Vec<Block> = Vec::new();
        for step in steps {
            match step {
                BfcStep::Allocate(bytes) => live.extend(pair.allocate(bytes).map_err(TestCaseError::fail)?),
                BfcStep::Free(number) => {
                    if let Some(at) = number.checked_rem(live.len()) {
                        pair.free(live.swap_remove(at));
                    }
                }
            }
        }
        pair.engine.verify().map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}

#[test]
fn traces_of_real_models_get_the_same_addresses() {
    let traces = golden::cpu_traces().unwrap();
    assert!(traces.len() >= 6, "{} traces", traces.len());
    for trace in traces {
        let mut pair = EnginePair::new(PairLimits {
            limit: usize::MAX >> 1,
            backing: u64::MAX >> 1,
            collects_garbage: false,
        });
        let mut live: HashMap<usize, Block> = HashMap::new();
        for (line, event) in trace.events.iter().enumerate() {
            match *event {
                TraceEvent::Allocate { id, bytes, .. } => {
                    // An empty request has no address.
                    if bytes > 0 {
                        let block =
                            pair.allocate(bytes).unwrap_or_else(|e| panic!("{}:{line}: {e}", trace.name));
                        live.extend(block.map(|block| (id, block)));
                    }
                }
                TraceEvent::Free { id } => {
                    if let Some(block) = live.remove(&id) {
                        pair.free(block);
                    }
                }
            }
        }
        pair.engine.verify().unwrap();
    }
}

#[test]
fn a_chunk_is_split_at_twice_the_size_or_128_mib_of_waste() {
    const MIB: usize = 1 << 20;
    for (hole, bytes, granted) in [
        (1024, 512, 512),
        (1024, 768, 1024),
        (1024 * MIB, 600 * MIB, 600 * MIB),
        (300 * MIB, 172 * MIB, 172 * MIB),
        (300 * MIB, 173 * MIB, 300 * MIB),
    ] {
        // One region, with a hole at its start, and nothing else free.
        let limit = 4096 * MIB;
        let engine = Bfc::builder(Null::new(Device::CPU))
            .policy(BfcPolicy::tensorflow_fixed())
            .limit(limit)
            .build()
            .into_ref();
        let keep = engine.allocate(&Request::new(hole)).unwrap();
        let _rest = [256, limit - hole - 256].map(|bytes| engine.allocate(&Request::new(bytes)).unwrap());
        assert_eq!(keep.capacity(), hole);
        let address = keep.as_ptr();
        drop(keep);
        let block = engine.allocate(&Request::new(bytes)).unwrap();
        assert_eq!((block.as_ptr(), block.capacity()), (address, granted), "{bytes} in {hole}");
    }
}
