//! Untrusted input: no panics, no excessive memory.

use flate2::Compression;
use flate2::read::GzEncoder;
use orlop_trace::TraceError;
use orlop_trace::formats::text::{MAX_LINE, Operation, Operations, Trace};
use proptest::prelude::*;
use std::io::Read;

fn packed(reader: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzEncoder::new(reader, Compression::best()).read_to_end(&mut bytes).expect("reading does not fail");
    bytes
}

#[test]
fn a_bomb_is_read_a_line_at_a_time() {
    // 64 MiB of one line in about 64 KiB, and 16 MiB of one comment.
    let long = packed(std::io::repeat(b'7').take(64 << 20));
    let error = Trace::parse(&long[..]).unwrap_err();
    assert!(matches!(error, TraceError::LineTooLong { line: 1, limit: MAX_LINE }), "{error}");
    let comment = packed(b"a,0,1\n# ".chain(std::io::repeat(b'7').take(16 << 20)));
    assert_eq!(Trace::parse(&comment[..]).unwrap().len(), 1);
}

#[test]
fn damaged_gzip_is_reported_with_its_line() {
    let text: String = (0..10_000).map(|id| format!("a,{id},{}\n", id * 7919 % 4096)).collect();
    let whole = packed(text.as_bytes());
    assert_eq!(Trace::parse(&whole[..]).unwrap().len(), 10_000);
    let error = Trace::parse(&whole[..whole.len() / 2]).unwrap_err();
    assert!(matches!(error, TraceError::ReadLine { line: 1.., .. }), "{error}");
    assert!(matches!(Trace::parse(&whole[..1]).unwrap_err(), TraceError::Unexpected { line: 1, .. }));
    assert!(matches!(Trace::parse(&whole[..5]).unwrap_err(), TraceError::ReadLine { line: 1, .. }));
    let twice = [&packed(&b"a,0,1\n"[..])[..], &packed(&b"f,0\n"[..])].concat();
    assert_eq!(Trace::parse(&twice[..]).unwrap().len(), 2);
}

#[test]
fn a_reader_ends_after_its_first_error() {
    let mut operations = Operations::new(&b"a,0,1\nx\na,1,1\n"[..]).unwrap();
    assert!(operations.next().unwrap().is_ok());
    assert!(operations.next().unwrap().is_err());
    assert!(operations.next().is_none());
    assert_eq!(operations.line(), 2);
}

#[test]
fn a_missing_file_is_named() {
    let error = Trace::read("no/such/trace.csv").unwrap_err().to_string();
    assert!(error.starts_with("no/such/trace.csv: cannot be opened: "), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_a_trace_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Trace::parse(&bytes[..]);
        let _ = Trace::parse(&packed(&bytes[..])[..]);
        let _ = Trace::parse(&[&[0x1f, 0x8b][..], &bytes].concat()[..]);
    }

    #[test]
    fn anything_like_a_trace_is_a_trace_or_an_error(
            text in "([af#]?,?[0-9]{0,3},[0-9]{0,20}[,\r]?\n){0,40}"
        ) {
        let _ = Trace::parse(text.as_bytes());
    }

    #[test]
    fn operations_survive_the_format(
            ids in proptest::collection::vec((0_u64..20, any::<u32>(), 0_u64..3), 0..200)
        ) {
        // Each id is allocated if it is not live, and freed if it is.
        let mut live = std::collections::HashSet::new();
        let operations: Vec<Operation> = ids
            .into_iter()
            .map(|(id, bytes, stream)| {
                if live.remove(&id) {
                    return Operation::Free { id };
                }
                live.insert(id);
                let stream = orlop_core::StreamId::from_raw(stream);
                Operation::Allocate { id, bytes: bytes.into(), stream }
            })
            .collect();
        let text: String = operations.iter().map(|operation| format!("{operation}\n")).collect();
        let read = Operations::new(text.as_bytes()).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        prop_assert_eq!(&read, &operations);
        let trace = Trace::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(&trace, &Trace::from_operations(operations).unwrap());
        prop_assert_eq!(trace.live_at_end().blocks, live.len());
        prop_assert!(trace.slots() <= 20);
    }
}
