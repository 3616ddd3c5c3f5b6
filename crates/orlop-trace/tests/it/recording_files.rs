//! Recordings that are written while the program runs.

use orlop_alloc::Request;
use orlop_context::Context;
use orlop_core::Device;
use orlop_trace::history::{EventAction, History, HistoryWarning};
use orlop_trace::recorder::{Recorder, RecordingFile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

fn allocate(recording: &RecordingFile, count: usize) {
    let context = Context::new();
    context.add_observer(recording.observer());
    for bytes in 1..=count {
        drop(context.allocate(Device::CPU, &Request::new(bytes)).expect("memory"));
    }
    context.remove_observer(&recording.observer());
}

fn allocations(history: &History) -> usize {
    let events = history.devices.iter().flat_map(|device| &device.events);
    events.filter(|event| event.action == EventAction::Allocate).count()
}

#[test]
fn what_happened_before_a_panic_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.orlop");
    let run = || {
        let recording = Recorder::to_file(&path).unwrap();
        allocate(&recording, 100);
        recording.annotate("the last words");
        panic!("as planned");
    };
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    let history = History::read(&path).unwrap();
    assert_eq!((allocations(&history), &history.warnings[..]), (100, &[][..]));
    let last = history.devices[0].events.last().unwrap();
    assert_eq!(history.sites.name(last.text), "the last words");
}

/// Returns the history of the file when it has this many allocations: the thread writes every few
/// milliseconds.
fn read_when(path: &Path, count: usize) -> History {
    let start = Instant::now();
    loop {
        let history = History::read(path).expect("a recording");
        if allocations(&history) == count || start.elapsed() > Duration::from_secs(60) {
            return history;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a killed program leaves: the file has no end, and everything up to the last interval.
#[test]
fn a_file_without_an_end_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.orlop");
    let recording = Recorder::to_file(&path).unwrap();
    allocate(&recording, 100);
    let history = read_when(&path, 100);
    assert_eq!(allocations(&history), 100);
    assert!(matches!(history.warnings[..], [HistoryWarning::CutOff { .. }]), "{:?}", history.warnings);
    let report = recording.finish().unwrap();
    assert_eq!(report.lost, 0);
    assert!(History::read(&path).unwrap().warnings.is_empty());
}

#[test]
fn a_file_is_bounded_and_says_what_it_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.orlop");
    let recording = Recorder::builder().max_file_bytes(1000).to_file(&path).unwrap();
    let mut total = 0;
    for _ in 0..5 {
        allocate(&recording, 500);
        total += 500;
        std::thread::sleep(Duration::from_millis(60));
    }
    let report = recording.finish().unwrap();
    let history = History::read(&path).unwrap();
    let events: usize = history.devices.iter().map(|device| device.events.len()).sum();
    assert_eq!(report.events, events as u64);
    assert!(report.lost > 0 && allocations(&history) < total);
    assert_eq!(history.warnings, [HistoryWarning::EventsLost { count: report.lost }]);
}

#[test]
fn a_folder_that_does_not_exist_is_an_error() {
    assert!(Recorder::to_file("/nowhere/at/all/run.orlop").is_err());
}
