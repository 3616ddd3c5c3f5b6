//! Failures of a device: every call of a random program fails in turn, with every kind of error.
//!
//! After each failure the program goes on. Its checks and those of the mock device then say that no block and
//! no memory is lost, nothing is reused early, and nothing is released that may be in use.

use orlop_alloc::{Allocator, Request};
use orlop_core::StreamId;
use orlop_device::{BackingError, DeviceAllocator, DeviceError, DeviceRequest, Engine, Policy, TorchConf};
use orlop_testkit::ConformanceFault;
use orlop_testkit::device::{
    DeviceCall, DeviceProgram, INJECTED, MockDevice, ProgramEnd, Random, WatchedDevice,
};
use orlop_testkit::suite::cases;

const STEPS: usize = 60;

const ERRORS: [BackingError; 6] = [
    BackingError::OutOfMemory,
    BackingError::Unsupported,
    BackingError::Capturing,
    BackingError::Failed(INJECTED),
    BackingError::Lost(INJECTED),
    BackingError::Panicked,
];

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().unwrap())
}

fn policies() -> [Policy; 6] {
    [
        Policy::orlop(),
        Policy::orlop_without_pages(),
        Policy::orlop_bounded_waste(),
        torch(""),
        torch("expandable_segments:True"),
        torch("max_split_size_mb:20,garbage_collection_threshold:0.5,per_process_memory_fraction:0.6"),
    ]
}

/// Runs a program in which the `n`th call fails with an error. Returns the number of calls.
fn run(policy: &Policy, seed: u64, failure: Option<(u64, BackingError)>) -> Result<u64, ConformanceFault> {
    let mut random = Random::new(seed);
    let memory = random.pick(&[24 << 20, 64 << 20, 256 << 20]).unwrap();
    let device = MockDevice::new(memory, !random.one_in(5), seed);
    device.fail_one_in(DeviceCall::Query, random.pick(&[0, 2, 1]).unwrap());
    if let Some((n, error)) = failure {
        device.fail_nth(n, error);
    }
    let mut program = DeviceProgram::new(Engine::new(device.clone(), policy.clone()), seed, []);
    program.run(STEPS)?;
    let calls = device.calls();
    let engine = program.engine();
    if let Some((n, error)) = failure.filter(|&(n, _)| n <= calls) {
        let is_typed =
            |found: DeviceError| matches!(found, DeviceError::Backing { error: of, .. } if of == error);
        // The device answers that it has no memory, or not this call, or not in a capture.
        let is_answer = [BackingError::OutOfMemory, BackingError::Unsupported, BackingError::Capturing];
        let is_failure = !is_answer.contains(&error);
        let known = engine.last_failure().is_some_and(is_typed);
        assert_eq!(known, is_failure, "call {n}: {:?}", engine.last_failure());
        assert_eq!(engine.stats().num_failed_calls, u64::from(is_failure), "call {n}");
        assert_eq!(engine.loss().is_some(), matches!(error, BackingError::Lost(_)), "call {n}");
    }
    program.finish(if seed.is_multiple_of(2) { ProgramEnd::Drop } else { ProgramEnd::Empty })?;
    let is_refused = |(n, error): (u64, BackingError)| n > calls && error != BackingError::Lost(INJECTED);
    // What a dropped engine could not release, it left.
    if failure.is_some_and(is_refused) {
        device.fault()?;
    } else {
        device.check_end()?;
    }
    Ok(device.calls())
}

#[test]
fn every_call_fails_in_turn() {
    for policy in policies() {
        for seed in 0..u64::from(cases().div_ceil(4)) {
            let calls = run(&policy, seed, None).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            for (n, error) in (1..=calls).flat_map(|n| ERRORS.map(|error| (n, error))) {
                run(&policy, seed, Some((n, error))).unwrap_or_else(|fault| {
                    panic!("{}, seed {seed}, call {n}, {error:?}: {fault}", policy.name)
                });
            }
        }
    }
}

/// A request that gets no memory because a call fails says so, and the next one is served. Only a device
/// that has no memory makes it wait for streams and release memory.
#[test]
fn a_request_fails_with_the_error_of_the_device() {
    for policy in policies() {
        for error in ERRORS {
            let device = MockDevice::new(256 << 20, true, 0);
            let mut engine = Engine::new(device.clone(), policy.clone());
            let request = DeviceRequest::new(3 << 20, StreamId::from_raw(0));
            let kept = engine.allocate(request).unwrap();
            device.fail_nth(1, error);
            let large = DeviceRequest::new(30 << 20, StreamId::from_raw(0));
            let refused = engine.allocate(large).map_err(|error| match error {
                DeviceError::Backing { error, .. } => error,
                _ => BackingError::OutOfMemory,
            });
            let name = policy.name;
            match error {
                // There is room for another attempt.
                BackingError::OutOfMemory => assert!(refused.is_ok(), "{name}"),
                BackingError::Unsupported => assert_eq!(refused, Err(BackingError::OutOfMemory), "{name}"),
                error => assert_eq!(refused, Err(error), "{name}"),
            }
            if error != BackingError::OutOfMemory {
                assert_eq!(engine.stats().num_sync_all_streams, 0, "{name}, {error:?}");
            }
            assert_eq!(engine.allocate(large).is_ok(), engine.loss().is_none(), "{name}, {error:?}");
            engine.free(kept).unwrap();
            engine.verify().unwrap();
            device.fault().unwrap();
        }
    }
}

/// Once the device is lost, blocks can be dropped; nothing is reused or released; every call says why.
#[test]
fn a_lost_device() {
    for policy in policies() {
        let device = MockDevice::new(64 << 20, true, 0);
        let allocator = DeviceAllocator::new(device.clone(), policy).into_ref();
        let request = Request::new(8 << 20);
        let (first, second) = (allocator.allocate(&request).unwrap(), allocator.allocate(&request).unwrap());
        second.record_stream(StreamId::from_raw(7)).unwrap();
        device.fail_nth(1, BackingError::Lost(INJECTED));
        let loss = DeviceError::Backing { call: "zero", error: BackingError::Lost(INJECTED) };
        let refused = allocator.allocate(&Request::new(1000).zeroed());
        let reserved = allocator.device_stats().reserved_bytes.all.current;
        let refused = match refused {
            Ok(_) => panic!("a lost device does not zero"),
            Err(error) => error,
        };
        assert!(matches!(
            refused.backend_error::<DeviceError>(),
            Some(DeviceError::Backing { error: BackingError::Lost(_), .. })
        ));
        let loss = allocator.loss().unwrap_or(loss);
        drop((first, second));
        let error = allocator.allocate(&request).unwrap_err();
        assert_eq!(error.backend_error(), Some(&loss));
        assert_eq!(allocator.empty_cache(), Err(loss));
        assert_eq!(allocator.trim(0), 0);
        let stats = allocator.device_stats();
        assert_eq!((stats.allocation.all.current, stats.num_failed_calls), (0, 1));
        assert_eq!(stats.reserved_bytes.all.current, reserved);
        allocator.verify().unwrap();
        drop(allocator);
        device.check_end().unwrap();
    }
}

/// A block that another stream uses is neither lost nor reused early, whichever call fails after its free.
#[test]
fn a_block_whose_events_fail_is_free_in_the_end() {
    for policy in policies() {
        for (n, error) in (1..8).flat_map(|n| ERRORS.map(|error| (n, error))) {
            if matches!(error, BackingError::Lost(_)) {
                continue;
            }
            let device = MockDevice::new(256 << 20, true, 0);
            let mut engine = Engine::new(device.clone(), policy.clone());
            let [own, other] = [1, 2].map(StreamId::from_raw);
            let block = engine.allocate(DeviceRequest::new(3 << 20, own)).unwrap();
            engine.record_stream(block, other).unwrap();
            device.begin_use(engine.address(block), engine.size(block), own);
            device.go_on(engine.address(block), engine.size(block), other);
            device.fail_nth(n, error);
            engine.free(block).unwrap();
            let first = engine.empty_cache();
            let is_answer = matches!(error, BackingError::OutOfMemory | BackingError::Unsupported);
            assert!(first.is_ok() || !is_answer, "{}, call {n}, {error:?}: {first:?}", policy.name);
            engine.empty_cache().unwrap();
            engine.verify().unwrap();
            let stats = engine.stats();
            assert_eq!(stats.active.all.current, 0, "{}, call {n}, {error:?}", policy.name);
            assert_eq!(stats.reserved_bytes.all.current, stats.leaked_bytes);
            drop(engine);
            device.check_end().unwrap();
        }
    }
}
