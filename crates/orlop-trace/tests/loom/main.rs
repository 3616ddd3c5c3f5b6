//! All interleavings of a ring's writer with its readers, with two slots of two words.
//!
//! Run by `cargo xtask loom`; `cargo xtask loom --mutate` weakens each named ordering in turn and expects a
//! test here to fail.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use orlop_trace::recorder::ring::Ring;

/// Returns the records from a number on, and how many there were and how many were lost.
fn read(ring: &Ring<2>, from: u64) -> (Vec<u64>, u64, u64) {
    let mut records = Vec::new();
    let seen = ring.read(from, |[first, second]| {
        assert_eq!(first, second, "a torn record");
        records.push(first);
    });
    (records, seen.until, seen.lost)
}

/// A record is its number, from 1, twice.
fn push(ring: &Ring<2>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        ring.push([number; 2]);
    }
}

/// `ring.done` with `ring.read_done`: records that are counted are written.
#[test]
fn records_are_read_as_written() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2));
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || push(&ring, 1..=2))
        };
        let (records, until, lost) = read(&ring, 0);
        assert_eq!((records, lost), ((1..=until).collect(), 0));
        writer.join().unwrap();
        assert_eq!(read(&ring, until).0, (until + 1..=2).collect::<Vec<_>>());
    });
}

/// `ring.word` with `ring.read_word`: records that are overwritten meanwhile are dropped.
#[test]
fn overwritten_records_are_dropped() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2));
        push(&ring, 1..=2);
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || push(&ring, 3..=4))
        };
        let (records, until, lost) = read(&ring, 0);
        assert_eq!(records, (lost + 1..=until).collect::<Vec<_>>());
        writer.join().unwrap();
        assert_eq!(read(&ring, 0), (vec![3, 4], 4, 2));
    });
}

/// Two threads write in turn, the second after the first.
#[test]
fn a_ring_may_change_its_thread() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2));
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                push(&ring, 1..=1);
                let ring = Arc::clone(&ring);
                thread::spawn(move || push(&ring, 2..=3)).join().unwrap();
            })
        };
        let (records, until, lost) = read(&ring, 0);
        assert_eq!(records, (lost + 1..=until).collect::<Vec<_>>());
        writer.join().unwrap();
        assert_eq!(read(&ring, 0), (vec![2, 3], 3, 1));
    });
}
