//! What refused a request, and what became of it: recorded, written and read.

use orlop_alloc::{RefusalCause, Request};
use orlop_context::{Budget, Context};
use orlop_core::{Device, MemoryKind};
use orlop_trace::formats::binary::{BinaryWriter, EventOrder, read_binary, write_binary};
use orlop_trace::formats::csv::{read_csv, write_csv};
use orlop_trace::history::{EventAction, History, RefusalOutcome, WorkStep, Workload};
use orlop_trace::recorder::Recorder;
use std::sync::{Arc, Mutex};

/// A budget refuses a request that a callback makes room for, then one that nothing makes room for; then the
/// system refuses one.
fn run(recorder: &Recorder) {
    let context = Context::new();
    context.add_observer(recorder.observer());
    let kind = MemoryKind::KvCache;
    context.set_budget(Device::CPU, kind, Budget::hard(64 << 10).strict()).expect("it succeeds");
    let held = context.allocate(Device::CPU, &Request::new(48 << 10).kind(kind)).expect("it succeeds");
    let held = Mutex::new(Some(held));
    let evict = move |_: &_| {
        drop(held.lock().expect("no panic").take());
        0
    };
    context.on_pressure(kind, Arc::new(evict));
    drop(context.allocate(Device::CPU, &Request::new(32 << 10).kind(kind)).expect("it succeeds"));
    assert!(context.allocate(Device::CPU, &Request::new(1 << 20).kind(kind)).is_err());
    assert!(context.allocate(Device::CPU, &Request::new(1 << 62)).is_err());
    context.remove_observer(&recorder.observer());
}

/// Returns the refusals with the requested bytes and the names of the refusers.
fn refusals(history: &History) -> Vec<(EventAction, u64, RefusalCause, RefusalOutcome)> {
    let device = &history.devices[0];
    let with_event = device.refusals.iter().map(|refusal| {
        let event = &device.events[refusal.event as usize];
        let is_budget = refusal.cause == RefusalCause::Budget;
        assert_eq!(history.sites.name(refusal.refuser) == "kv_cache", is_budget);
        (event.action, event.bytes, refusal.cause, refusal.outcome)
    });
    with_event.collect()
}

fn check(history: &History) {
    let found = refusals(history);
    let of = |bytes: u64| found.iter().filter(move |refusal| refusal.1 == bytes).copied().collect::<Vec<_>>();
    let served = (EventAction::Refused, 32 << 10, RefusalCause::Budget, RefusalOutcome::Served);
    assert_eq!(of(32 << 10), [served]);
    assert!(of(1 << 20).iter().all(|refusal| refusal.0 == EventAction::Refused));
    assert_eq!(of(1 << 20).last().expect("it succeeds").3, RefusalOutcome::Failed);
    let last = *of(1 << 62).last().expect("it succeeds");
    assert_eq!(last, (EventAction::OutOfMemory, 1 << 62, RefusalCause::Device, RefusalOutcome::Failed));
    // A replay makes the one request that the device failed to serve.
    let steps = Workload::of(&history.devices[0]).steps;
    let failed = steps.iter().filter(|step| matches!(step, WorkStep::Failed(..))).count();
    assert_eq!(failed, 1);
}

#[test]
fn only_what_the_device_refused_at_last_is_out_of_memory() {
    let recorder = Recorder::new();
    run(&recorder);
    let history = recorder.history();
    check(&history);
    let mut file = Vec::new();
    write_binary(&history, &mut file).unwrap();
    let read = read_binary(&file[..]).unwrap();
    assert_eq!(read, history);
    check(&read);
    let mut table = Vec::new();
    write_csv(&history, &mut table).unwrap();
    check(&read_csv(&table[..]).unwrap());
}

#[test]
fn a_drained_file_has_the_outcomes() {
    let recorder = Recorder::new();
    let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly).unwrap();
    run(&recorder);
    // What no event settled is written by the second drain.
    let events = (0..2).map(|_| recorder.drain(&mut file).unwrap().events).sum::<u64>();
    let history = read_binary(&file.finish().unwrap()[..]).unwrap();
    assert_eq!(events, history.devices.iter().map(|device| device.events.len() as u64).sum::<u64>());
    check(&history);
    assert_eq!(refusals(&history), refusals(&recorder.history()));
}
