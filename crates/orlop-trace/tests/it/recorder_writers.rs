//! Writers of a recorder that use the recorder, fail or panic.

use orlop_trace::TraceError;
use orlop_trace::formats::binary::{BinaryWriter, EventOrder};
use orlop_trace::recorder::Recorder;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// What the writer does with the recorder at its next write.
type Action = Box<dyn FnOnce(&Recorder) -> io::Result<()> + Send>;

#[derive(Clone)]
struct Acts {
    recorder: Recorder,
    action: Arc<Mutex<Option<Action>>>,
}

impl Write for Acts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let action = self.action.lock().map_or(None, |mut action| action.take());
        action.map_or(Ok(()), |action| action(&self.recorder))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// More events than the writer keeps before it writes.
const EVENTS: u64 = 20_000;

fn recorded(recorder: &Recorder) {
    (0..EVENTS).for_each(|step| recorder.annotate(&format!("step {step}")));
}

fn acting() -> (Recorder, Acts, BinaryWriter<Acts>) {
    let recorder = Recorder::new();
    let acts = Acts { recorder: recorder.clone(), action: Arc::default() };
    let file = BinaryWriter::new(acts.clone(), EventOrder::Nearly).expect("a header");
    (recorder, acts, file)
}

#[test]
fn a_writer_may_use_the_recorder_that_it_is_drained_from() {
    let (recorder, acts, mut file) = acting();
    recorded(&recorder);
    let seen = Arc::new(Mutex::new(None));
    let sees = Arc::clone(&seen);
    let action: Action = Box::new(move |recorder| {
        let mut inner = BinaryWriter::new(Vec::new(), EventOrder::Nearly).map_err(io::Error::other)?;
        let drained = recorder.drain(&mut inner);
        let refused = matches!(drained, Err(TraceError::Draining));
        let events = recorder.history().devices.iter().map(|device| device.events.len() as u64).sum::<u64>();
        *sees.lock().map_err(|_| io::Error::other("poisoned"))? = Some((recorder.lost(), refused, events));
        Ok(())
    });
    *acts.action.lock().unwrap() = Some(action);
    let report = recorder.drain(&mut file).unwrap();
    let (lost, refused, events) = seen.lock().unwrap().take().expect("the writer was called");
    // Events that the writer does not have yet are not lost; it may still fail.
    assert_eq!((lost, refused, events), (0, true, EVENTS));
    assert_eq!((report.events, report.lost, recorder.lost()), (EVENTS, 0, 0));
}

#[test]
fn events_of_a_writer_that_fails_or_panics_are_counted_as_lost() {
    let fails: Action = Box::new(|_| Err(io::Error::other("full")));
    let panics: Action = Box::new(|_| panic!("in the writer"));
    for (action, panics) in [(fails, false), (panics, true)] {
        let (recorder, acts, mut file) = acting();
        recorded(&recorder);
        *acts.action.lock().unwrap() = Some(action);
        let drained = catch_unwind(AssertUnwindSafe(|| recorder.drain(&mut file).is_err()));
        assert_eq!(drained.is_err(), panics);
        assert!(drained.unwrap_or(true), "a writer that fails");
        let lost = recorder.lost();
        assert!(lost > 0 && lost <= EVENTS, "{lost}");
        // The next events are written.
        recorded(&recorder);
        let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly).unwrap();
        assert_eq!(recorder.drain(&mut file).unwrap().events, EVENTS);
        assert_eq!(recorder.lost(), lost);
    }
}
