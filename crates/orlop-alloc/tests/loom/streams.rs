//! `streams.push`, `streams.walk`, `streams.again`, `streams.iter`: a stream is in the set once, and a thread
//! that finds a node sees its contents.

use loom::sync::Arc;
use loom::thread;
use orlop_alloc::StreamUses;
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
