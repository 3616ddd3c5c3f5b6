//! `streams.push`, `streams.walk`, `streams.again`, `streams.iter`: a stream is in the set once, and a thread
//! that finds a node sees its contents. `streams.order`, `streams.ordered`: a thread that finds a stream
//! ordered comes after the wait.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use orlop_alloc::engine_support::StreamUses;
use orlop_core::StreamId;

fn recorded(uses: &StreamUses) -> Vec<u64> {
    let mut all: Vec<u64> = uses.iter().map(StreamId::raw).collect();
    all.sort_unstable();
    all
}

#[test]
fn each_stream_is_recorded_once() {
    loom::model(|| {
        let uses = Arc::new(StreamUses::new());
        let other = {
            let uses = Arc::clone(&uses);
            thread::spawn(move || (uses.record(StreamId::from_raw(1)), uses.record(StreamId::from_raw(2))))
        };
        let mine = uses.record(StreamId::from_raw(1));
        let (theirs, second) = other.join().unwrap();
        assert!(mine ^ theirs, "exactly one of two recordings is the first");
        assert!(second);
        assert_eq!(recorded(&uses), [1, 2]);
    });
}

#[test]
fn a_reader_sees_whole_nodes() {
    loom::model(|| {
        let uses = Arc::new(StreamUses::new());
        let recorder = {
            let uses = Arc::clone(&uses);
            thread::spawn(move || uses.record(StreamId::from_raw(9)))
        };
        let reader = {
            let uses = Arc::clone(&uses);
            // Twice: loom explores more interleavings if a thread returns to the same word.
            thread::spawn(move || recorded(&uses).len() + recorded(&uses).len())
        };
        assert!(recorder.join().unwrap());
        assert!(reader.join().unwrap() <= 2);
    });
}

#[test]
fn a_stream_is_ordered_after_its_wait() {
    for is_recorded in [false, true] {
        loom::model(move || {
            let stream = StreamId::from_raw(1);
            let shared = Arc::new((StreamUses::new(), UnsafeCell::new(0)));
            if is_recorded {
                shared.0.record(stream);
            }
            assert!(!shared.0.is_ordered(stream), "recorded is not ordered");
            let waiter = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // SAFETY: the other thread reads it only after the stream is ordered.
                    shared.1.with_mut(|waited| unsafe { *waited = 1 });
                    shared.0.order(stream);
                })
            };
            if shared.0.is_ordered(stream) {
                // SAFETY: written before the stream was ordered.
                assert_eq!(shared.1.with(|waited| unsafe { *waited }), 1);
            }
            waiter.join().unwrap();
            assert!(shared.0.is_ordered(stream) && recorded(&shared.0) == [1]);
        });
    }
}
