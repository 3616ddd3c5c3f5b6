//! Profiles of steps as traces.

use orlop_alloc::Request;
use orlop_context::Context;
use orlop_context::profile::MemorySteps;
use orlop_core::{Device, MemoryKind};
use orlop_trace::formats::{chrome, perfetto};
use serde_json::Value as Json;

#[test]
fn steps_are_slices_with_times_and_bytes() {
    let context = Context::new();
    let steps = MemorySteps::on(&context);
    let forward = steps.step("forward \"1\"");
    let request = Request::new(1 << 16).kind(MemoryKind::Persistent);
    let weights = context.allocate(Device::CPU, &request).unwrap();
    let inner = steps.step("layer");
    drop(context.allocate(Device::CPU, &Request::new(1 << 12)).unwrap());
    let (inner, forward) = (inner.finish(), forward.finish());

    let mut json = Vec::new();
    perfetto::write_steps(&steps.finished(), &mut json).unwrap();
    let trace: Json = serde_json::from_slice(&json).unwrap();
    let entries = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| entries.iter().filter(|entry| entry["ph"] == phase).collect::<Vec<_>>();
    for (entry, step) in of("X").into_iter().zip([&forward, &inner]) {
        assert_eq!(entry["name"], *step.name);
        assert_eq!((&entry["tid"], &entry["cat"]), (&step.thread.into(), &"user_annotation".into()));
        let close = |json: &Json, time: std::time::Duration| {
            (json.as_f64().unwrap() * 1000.0 - time.as_nanos() as f64).abs() < 1.0
        };
        assert!(close(&entry["ts"], step.begun) && close(&entry["dur"], step.host_time), "{entry}");
        let arguments = &entry["args"];
        assert_eq!(arguments["host_ns"], u64::try_from(step.host_time.as_nanos()).unwrap());
        for (name, expected) in [
            ("allocations", step.all.allocations),
            ("frees", step.all.frees),
            ("allocated_bytes", step.all.allocated_bytes),
            ("freed_bytes", step.all.freed_bytes),
            ("live_before", step.all.live_before),
            ("live_after", step.all.live_after),
            ("peak_bytes", step.all.peak_bytes),
            ("order", step.order),
        ] {
            assert_eq!(arguments[name], expected, "{name} of {}", step.name);
        }
        assert_eq!(arguments["at"], format!("{}:{}", step.at.file(), step.at.line()));
    }
    assert_eq!(of("X").len(), 2);

    let counters = of("C");
    let series = |name: &str| -> Vec<u64> {
        counters.iter().map(|entry| entry["args"][name].as_u64().unwrap()).collect()
    };
    let kept = weights.capacity() as u64;
    assert_eq!(series(MemoryKind::Persistent.name()), [0, kept, kept, kept]);
    assert_eq!(series(MemoryKind::Default.name()), [0; 4]);
    assert!(counters.is_sorted_by_key(|entry| entry["ts"].as_f64().unwrap()));

    // The reader takes the slices for operations of a program without memory events.
    assert!(matches!(chrome::read_chrome(json.as_slice()), Err(orlop_trace::TraceError::NoMemoryEvents)));
    assert!(chrome::sniff(&json));
}

#[test]
fn a_profile_without_steps_is_a_valid_trace() {
    let mut json = Vec::new();
    perfetto::write_steps(&[], &mut json).unwrap();
    let trace: Json = serde_json::from_slice(&json).unwrap();
    assert_eq!(trace["traceEvents"].as_array().unwrap().len(), 1);
}
