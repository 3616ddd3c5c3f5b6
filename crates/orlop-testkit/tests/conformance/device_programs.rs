//! Random programs for the device engine: `ORLOP_CONFORMANCE_CASES` sets their number.

use orlop_alloc::{Allocator, Request};
use orlop_core::{Device, StreamId};
use orlop_device::{
    BackingError, DeviceAllocator, DeviceError, DeviceRequest, Engine, HostPages, NullDevice, Policy,
    TorchConf,
};
use orlop_testkit::device::{
    DeviceCall, DeviceProgram, MockDevice, ProgramEnd, Random, WatchedDevice, policies, states,
};
use orlop_testkit::suite::cases;
use orlop_testkit::{ConformanceFault, SuiteProfile, conformance};

const STEPS: usize = 400;

/// Returns a device in which some calls fail, and some panic.
fn device(random: &mut Random, seed: u64) -> MockDevice {
    let memory = random.pick(&[24 << 20, 64 << 20, 256 << 20, 1 << 30, 8 << 30]).unwrap();
    let device = MockDevice::new(memory, !random.one_in(5), seed);
    for call in [DeviceCall::Allocate, DeviceCall::Reserve, DeviceCall::Map, DeviceCall::Remap] {
        device.fail_one_in(call, random.pick(&[0, 0, 40, 8, 3]).unwrap());
    }
    device.fail_one_in(DeviceCall::Query, random.pick(&[0, 2, 20, 1]).unwrap());
    device.panic_one_in(random.pick(&[0, 0, 300, 30, 4]).unwrap());
    device
}

fn run(policy: Policy, seed: u64) -> Result<(), ConformanceFault> {
    let mut random = Random::new(seed ^ 0x5eed);
    let device = device(&mut random, seed);
    let mut program = DeviceProgram::new(Engine::new(device.clone(), policy), seed, []);
    program.run(STEPS)?;
    device.panic_one_in(0);
    program.finish(if random.one_in(2) { ProgramEnd::Drop } else { ProgramEnd::Empty })?;
    Ok(device.check_end()?)
}

fn run_all(programs: u64, policy: impl Fn(&mut Random) -> Policy) {
    for seed in 0..programs * u64::from(cases()) {
        let policy = policy(&mut Random::new(seed));
        run(policy.clone(), seed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}; {policy:?}"));
    }
}

#[test]
fn policies_that_are_shipped() {
    run_all(12, policies::shipped);
}

#[test]
fn policies_with_any_fields() {
    run_all(24, policies::any);
}

#[test]
fn pairs_of_settings() {
    let steps = usize::try_from(10 * cases()).unwrap();
    let memory = [64 << 20, 1 << 30, 1 << 36].into_iter().cycle();
    for ((seed, text), memory) in (0..).zip(policies::pairs_of_settings()).zip(memory) {
        let Ok(conf) = text.parse::<TorchConf>() else { continue };
        assert_eq!(conf.to_string().parse::<TorchConf>().as_ref(), Ok(&conf), "{text}");
        let device = MockDevice::new(memory, true, seed);
        let mut program = DeviceProgram::new(Engine::new(device.clone(), Policy::torch(&conf)), seed, []);
        let result = program.run(steps).and_then(|()| program.finish(ProgramEnd::Empty));
        result.unwrap_or_else(|fault| panic!("{text}: {fault}"));
        device.check_end().unwrap_or_else(|fault| panic!("{text}: {fault}"));
    }
}

/// Policies that search again after a wait, on a device without failures: they refuse a request only if
/// nothing fits.
#[test]
fn refusals_on_a_device_that_never_fails() {
    let policies = [Policy::orlop(), Policy::orlop_without_pages()];
    for seed in 0..24 * u64::from(cases()) {
        let mut random = Random::new(seed);
        let memory = random.pick(&[64 << 20, 200 << 20, 1 << 30]).unwrap();
        let device = NullDevice::new(Device::cuda(0), memory);
        // If not, events are complete only after a wait.
        device.set_events_done(random.one_in(2));
        let policy = policies[random.below(2)].clone();
        let name = policy.name;
        let mut program = DeviceProgram::new(Engine::new(device, policy), seed, []);
        let result = program.run(STEPS).and_then(|()| program.finish(ProgramEnd::Empty));
        result.unwrap_or_else(|fault| panic!("seed {seed}, {name}: {fault}"));
    }
}

fn restore(seed: u64, is_changed: bool) -> Result<bool, ConformanceFault> {
    let mut random = Random::new(seed);
    let policy = policies::shipped(&mut random);
    let device = Device::cuda(0);
    let device = if random.one_in(2) {
        NullDevice::like_cuda(device, 1 << 40)
    } else {
        NullDevice::new(device, 1 << 40)
    };
    let mut engine = Engine::new(device, policy);
    let segments = if is_changed { states::changed } else { states::possible }(&mut random, true);
    let restored = engine.restore(&segments);
    engine.verify()?;
    let blocks = match restored {
        Ok(blocks) => blocks,
        Err(_) if is_changed && engine.backing().used() == 0 && engine.segments().is_empty() => {
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    let mut program = DeviceProgram::new(engine, seed, blocks.into_values());
    program.run(STEPS / 2)?;
    program.finish(ProgramEnd::Drop)?;
    Ok(true)
}

#[test]
fn restored_states() {
    for seed in 0..12 * u64::from(cases()) {
        restore(seed, false).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
}

#[test]
fn states_that_may_be_impossible() {
    let programs = 50 * u64::from(cases());
    let restored = |seed| restore(seed, true).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    let possible = (0..programs).filter(|&seed| restored(seed)).count() as u64;
    assert!(0 < possible && possible < programs, "{possible} of {programs} were possible");
}

/// The engine behind the trait: alignment, zeroing, threads.
#[test]
fn a_checked_device_under_the_suite() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages(), Policy::torch(&TorchConf::default())] {
        let device = MockDevice::new(1 << 40, true, 0);
        let make = || DeviceAllocator::new(device.clone(), policy.clone()).into_ref().erase();
        conformance(&format!("{} over a mock device", policy.name), SuiteProfile::strict(), make);
        device.check_end().unwrap();
    }
}

/// A backing that panics counts as failed: the request fails, the allocator works, and memory that a stream
/// may still use stays reserved.
#[test]
fn a_panic_of_the_backing_is_an_error_of_the_request() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages(), Policy::torch(&TorchConf::default())] {
        let device = MockDevice::new(64 << 20, true, 0);
        let allocator = DeviceAllocator::new(device.clone(), policy).into_ref();
        let other = StreamId::from_raw(1);
        let used_elsewhere = allocator.allocate(&Request::new(8 << 20)).unwrap();
        used_elsewhere.record_stream(other).unwrap();
        device.panic_one_in(1);
        drop(used_elsewhere);
        let refused = allocator.allocate(&Request::new(40 << 20)).map(drop).unwrap_err();
        let panicked =
            |error: &DeviceError| matches!(error, DeviceError::Backing { error: BackingError::Panicked, .. });
        assert!(refused.backend_error().is_some_and(panicked), "{refused}");
        let zeroed = allocator.allocate(&Request::new(4 << 20).zeroed());
        assert!(zeroed.is_err(), "a backing that panics has not zeroed");
        assert_eq!(allocator.trim(0), 0, "streams could not be waited for");
        allocator.verify().unwrap();
        device.fault().unwrap();
        device.panic_one_in(0);
        drop(allocator.allocate(&Request::new(40 << 20)).unwrap());
        allocator.empty_cache().unwrap();
        allocator.verify().unwrap();
        assert_eq!(device.used(), 0);
        drop(allocator);
        device.check_end().unwrap();
    }
}

/// If streams cannot be waited for when the engine is dropped, they may use its memory for ever: it is
/// leaked, not released.
#[test]
fn an_engine_that_cannot_wait_in_the_end_gives_nothing_back() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages()] {
        let device = MockDevice::new(64 << 20, true, 0);
        let mut engine = Engine::new(device.clone(), policy);
        engine.allocate(DeviceRequest::new(8 << 20, StreamId::default_of(Device::cuda(0)))).unwrap();
        device.panic_one_in(1);
        drop(engine);
        device.fault().unwrap();
        assert_eq!(device.used(), 8 << 20);
    }
}

/// Contents, which the suite writes and checks.
#[test]
fn contents_under_any_policy() {
    if let Err(error) = HostPages::new(0) {
        eprintln!("skipped: {error}");
        return;
    }
    for seed in 0..u64::from(cases().div_ceil(2)) {
        let mut policy = policies::any(&mut Random::new(1000 + seed));
        // The suite needs memory.
        policy.fraction = policy.fraction.filter(|&share| share > 0.2);
        let over = || {
            let pages = HostPages::new(256 << 20).unwrap();
            DeviceAllocator::new(pages, policy.clone()).into_ref().erase()
        };
        conformance(
            &format!("seed {seed} over host pages: {policy:?}"),
            SuiteProfile::strict().limited(),
            over,
        );
    }
}
