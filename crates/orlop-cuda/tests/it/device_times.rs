//! The times of a profile's steps on the device.

use crate::machine::{Machine, handle};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use orlop_context::Context;
use orlop_context::profile::{MemorySteps, StepOrder};
use orlop_cuda::{DeviceStream, StreamClock};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use std::time::Duration;

fn work(machine: &Machine, stream: &DeviceStream, milliseconds: u64) {
    let run = KernelRun::new("work").takes(Duration::from_millis(milliseconds));
    machine.run_kernel(handle(stream), run).unwrap();
}

/// Steps are sorted by the time of their work, whatever the host did meanwhile.
#[test]
fn steps_have_the_time_of_their_streams_work() {
    let machine = Machine::new(&SimulationConfig::new());
    let [stream, other] = [(); 2].map(|()| machine.device.create_stream().unwrap());
    let steps = MemorySteps::on(&Context::new()).time_on(StreamClock::new(&stream));
    for (name, milliseconds) in [("short", 5), ("long", 40), ("middle", 10)] {
        let _step = steps.step(name);
        work(&machine, &stream, milliseconds);
        work(&machine, &other, 500);
    }
    let empty = steps.step("empty").finish();
    let table = steps.table().sort_by(StepOrder::DeviceTime);
    let rows: Vec<_> =
        table.rows().iter().map(|step| (step.name.clone(), step.device_time.unwrap())).collect();
    let names: Vec<_> = rows.iter().map(|(name, _)| name.as_ref()).collect();
    assert_eq!(names, ["long", "middle", "short", "empty"]);
    for ((_, time), milliseconds) in rows.iter().zip([40, 10, 5, 0]) {
        let expected = Duration::from_millis(milliseconds);
        assert!((expected..expected + Duration::from_millis(2)).contains(time), "{rows:?}");
    }
    assert_eq!(empty.device_time, Some(rows[3].1));
    assert!(table.to_string().contains("device time"));
    let grouped = steps.table().grouped();
    assert_eq!(grouped.rows().len(), 4);
}

/// A capture is left whole, and its steps have no time on the device; the next ones have.
#[test]
fn steps_of_a_capture_have_no_device_time() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let steps = MemorySteps::on(&Context::new()).time_on(StreamClock::new(&stream));
    stream.cudarc().begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    let step = steps.step("captured");
    work(&machine, &stream, 1);
    assert_eq!(step.finish().device_time, None);
    let begun_inside = steps.step("begun inside");
    let graph = stream.cudarc().end_capture(CUgraphInstantiate_flags(0)).unwrap();
    assert!(graph.is_some());
    drop(begun_inside);
    assert_eq!(steps.finished()[1].device_time, None);
    assert!(!steps.table().to_string().contains("device time"));
    assert!(steps.step("after").finish().device_time.is_some());
    // Nothing keeps events of spans.
    drop(steps);
    let (created, destroyed) = (machine.calls("cuEventCreate"), machine.calls("cuEventDestroy_v2"));
    assert!(created >= 2 && created == destroyed, "{created} {destroyed}");
}

/// A program that never reads the times keeps a bounded number of events.
#[test]
fn unread_times_are_bounded() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let steps = MemorySteps::on(&Context::new()).time_on(StreamClock::new(&stream));
    for _ in 0..3000 {
        drop(steps.step("one of many"));
        let events = machine.calls("cuEventCreate") - machine.calls("cuEventDestroy_v2");
        assert!(events <= 2 * 1024 + 2, "{events}");
    }
    let finished = steps.finished();
    assert_eq!(finished.iter().filter(|step| step.device_time.is_some()).count(), 3000);
}

/// An event that cannot be read is no failure of the program.
#[test]
fn a_time_that_fails_is_left_out() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let steps = MemorySteps::on(&Context::new()).time_on(StreamClock::new(&stream));
    let step = steps.step("lost");
    machine.fail("cuEventElapsedTime_v2", 1, 999).unwrap();
    assert_eq!(step.finish().device_time, None);
    assert!(steps.step("next").finish().device_time.is_some());
}
