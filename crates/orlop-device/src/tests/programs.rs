//! Random programs: after each step everything adds up, under any policy.

use crate::{DeviceBlock, DeviceRequest, Engine, Growth, NullDevice, Policy, StreamFilter, TorchConf};
use orlop_core::{Device, StreamId};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Step {
    Allocate(usize, u64),
    Free(usize),
    Use(usize, u64),
    EventsDone(bool),
    Empty,
    Capture(u64),
    EndCapture,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1_usize..4096, 1_usize..(3 << 20), 1_usize..(40 << 20)];
    let step = prop_oneof![
        10 => (bytes, 0_u64..4).prop_map(|(bytes, stream)| Step::Allocate(bytes, stream)),
        8 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), 0_u64..70).prop_map(|(which, stream)| Step::Use(which, stream)),
        1 => any::<bool>().prop_map(Step::EventsDone),
        1 => Just(Step::Empty),
        1 => (1_u64..3).prop_map(Step::Capture),
        1 => Just(Step::EndCapture),
    ];
    prop::collection::vec(step, 0..160)
}

fn policies() -> impl Strategy<Value = Policy> {
    let torch = |conf: &str| Policy::torch(&conf.parse::<TorchConf>().expect("it holds"));
    prop_oneof![
        Just(torch("")),
        Just(torch("expandable_segments:True")),
        Just(torch("max_split_size_mb:20,roundup_power2_divisions:8")),
        Just(torch("garbage_collection_threshold:0.5,per_process_memory_fraction:0.8")),
        Just(Policy::orlop()),
        Just(Policy::orlop_without_pages()),
    ]
}

fn run(policy: Policy, memory: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let ours = policy.extensions.search_after_wait;
    let paged = matches!(policy.growth, Growth::Pages { .. });
    let mut engine = Engine::new(NullDevice::new(Device::cuda(0), memory), policy);
    // By address, so that overlaps are seen.
    let mut live: BTreeMap<usize, (usize, DeviceBlock)> = BTreeMap::new();
    let mut capturing = Vec::new();
    for step in steps {
        let pick = |which: usize| live.keys().nth(which % live.len().max(1)).copied();
        match step {
            Step::Allocate(bytes, stream) => {
                match engine.allocate(DeviceRequest::new(bytes, StreamId::new(stream))) {
                    Ok(block) => {
                        let (address, size) = (engine.address(block), engine.size(block));
                        prop_assert!(size >= bytes);
                        let before = live.range(..address + size).next_back();
                        prop_assert!(before.is_none_or(|(&at, &(size, _))| at + size <= address));
                        live.insert(address, (size, block));
                    }
                    Err(_) if ours && capturing.is_empty() => {
                        let size = bytes.next_multiple_of(512) as u64;
                        let stats = engine.stats();
                        prop_assert_eq!(
                            stats.active.all.current,
                            stats.allocation.all.current,
                            "all frees were waited for"
                        );
                        prop_assert!(engine.largest_fit(bytes) < size);
                        if paged && bytes > 1 << 20 {
                            let left = memory - engine.stats().reserved_bytes.all.current;
                            prop_assert!(engine.whole_free_pages() + left < size + (2 << 20));
                        }
                    }
                    Err(_) => {}
                }
            }
            Step::Free(which) => {
                if let Some(address) = pick(which) {
                    let (_, block) = live[&address];
                    live.remove(&address);
                    engine.free(block).expect("it holds");
                    prop_assert!(engine.free(block).is_err());
                }
            }
            Step::Use(which, stream) => {
                if let Some(address) = pick(which) {
                    engine.record_stream(live[&address].1, StreamId::new(stream)).expect("it holds");
                }
            }
            Step::EventsDone(done) => engine.backing().set_events_done(done),
            Step::Empty if capturing.is_empty() => engine.empty_cache(),
            Step::Empty => {}
            Step::Capture(number) => {
                let id = (0, number);
                let streams = StreamFilter::only([StreamId::new(number)]);
                engine.begin_allocate_to_pool(id, streams).expect("it holds");
                capturing.push(id);
            }
            Step::EndCapture => {
                if let Some(id) = capturing.pop() {
                    engine.end_allocate_to_pool(id).expect("it holds");
                    engine.release_pool(id).expect("it holds");
                }
            }
        }
        engine.verify().expect("it holds");
        let used = engine.backing().used();
        prop_assert_eq!(used, engine.stats().reserved_bytes.all.current);
    }
    while let Some(id) = capturing.pop() {
        engine.end_allocate_to_pool(id).expect("it holds");
        engine.release_pool(id).expect("it holds");
    }
    for (_, (_, block)) in live {
        engine.free(block).expect("it holds");
    }
    engine.empty_cache();
    engine.verify().expect("it holds");
    prop_assert_eq!(engine.backing().used(), 0);
    Ok(())
}

proptest! {
    #[test]
    fn everything_adds_up(
        policy in policies(),
        memory in prop_oneof![Just(64_u64 << 20), Just(200 << 20), Just(64 << 30)],
        steps in steps(),
    ) {
        run(policy, memory, steps)?;
    }
}
