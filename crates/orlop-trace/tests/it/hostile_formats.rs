//! Untrusted files: no panics, no excessive memory.

use crate::histories::history;
use flate2::Compression;
use flate2::read::GzEncoder;
use orlop_trace::formats::text::Operations;
use orlop_trace::formats::{binary, chrome, csv, rmm};
use orlop_trace::history::{History, Workload};
use orlop_trace::{Result, TraceError};
use proptest::prelude::*;
use std::io::Read;

type Reader = fn(&[u8]) -> Result<History>;

const READERS: [Reader; 4] = [
    |bytes| binary::read_binary(bytes),
    |bytes| csv::read_csv(bytes),
    |bytes| rmm::read_rmm(bytes),
    |bytes| chrome::read_chrome(bytes),
];

fn packed(reader: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzEncoder::new(reader, Compression::fast()).read_to_end(&mut bytes).expect("reading does not fail");
    bytes
}

/// Reads with all readers, and uses the results.
fn read_all(bytes: &[u8]) {
    for read in READERS {
        if let Ok(history) = read(bytes) {
            for device in &history.devices {
                let _ = Workload::of(device);
            }
            binary::write_binary(&history, std::io::sink()).expect("what was read can be written");
            csv::write_csv(&history, std::io::sink()).expect("what was read can be written");
        }
    }
}

#[test]
fn bombs_are_refused() {
    // Slightly more than the longest row, and the longest JSON string.
    let sevens = || std::io::repeat(b'7').take(1 << 20);
    let long = || std::io::repeat(b'7').take(17 << 20);
    let header = &b"device,time_ns,action,address,bytes\n"[..];
    assert!(csv::read_csv(&packed(sevens())[..]).is_err());
    assert!(csv::read_csv(&packed(header.chain(sevens()))[..]).is_err());
    assert!(rmm::read_rmm(&packed(sevens())[..]).is_err());
    assert!(rmm::read_rmm(&packed(std::io::repeat(b',').take(1 << 20))[..]).is_err());
    assert!(chrome::read_chrome(&packed(b"[{\"name\":\"".chain(long()))[..]).is_err());
    assert!(chrome::read_chrome(&packed(std::io::repeat(b'[').take(1 << 20))[..]).is_err());
    // A block of the maximum length with invalid contents.
    let magic = [&[0x8e][..], b"ORLT\r\n\x1a\x01\0\0\0\xff\xff\xff\x0f\0\0\0\0"].concat();
    let damaged = binary::read_binary(&packed(magic.chain(sevens()))[..]).unwrap();
    assert_eq!((damaged.devices.len(), damaged.warnings.len()), (0, 1));
}

/// Without a limit, each of these would be read to its end and fill the memory.
#[test]
fn decompression_bombs_are_refused_by_every_reader() {
    let repeated = |head: &[u8], again: &[u8]| {
        let body = again.repeat((24 << 20) / again.len());
        let mut bytes = Vec::new();
        GzEncoder::new(head.chain(&body[..]), Compression::best())
            .read_to_end(&mut bytes)
            .expect("it is read");
        bytes
    };
    let long = [b'x'; (1 << 14) - 1];
    let with_long = |head: &[u8], tail: &[u8]| [head, &long, tail].concat();
    let text = with_long(b"\x0f\xff\x7f", b"");
    let (header, block) = (with_payload(&[])[..12].to_vec(), with_payload(&text)[12..].to_vec());
    let ours = repeated(&header, &block);
    let packed: [(&[u8], Reader); 5] = [
        (&ours, |bytes| binary::read_binary(bytes)),
        (&ours, |bytes| {
            let mut reader = binary::BinaryReader::new(bytes)?;
            while reader.next_record(&mut Vec::new())?.is_some() {}
            Ok(History::default())
        }),
        (
            &repeated(b"device,time_ns,action,address,bytes,more\n", &with_long(b"0,1,use,16,32,", b"\n")),
            |bytes| csv::read_csv(bytes),
        ),
        (
            &repeated(
                b"Thread,Time,Action,Pointer,Size,Stream,More\n",
                &with_long(b"1,0:0:1:0,free,0x10,256,0,", b"\n"),
            ),
            |bytes| rmm::read_rmm(bytes),
        ),
        (&repeated(b"[{\"ph\": 1},", &with_long(b"\"", b"\",")), |bytes| chrome::read_chrome(bytes)),
    ];
    for (bytes, read) in packed {
        for read in [read, |bytes| History::parse(bytes)] {
            let error = read(bytes).map(drop).unwrap_err();
            assert!(matches!(error, TraceError::Bomb { .. }), "{error}");
        }
    }
    let lines = repeated(b"f,1\n", &with_long(b"#", b"\n"));
    let error = Operations::new(&lines[..]).unwrap().find_map(Result::err);
    assert!(matches!(error, Some(TraceError::Bomb { .. })), "{error:?}");
}

#[test]
fn a_large_length_allocates_nothing() {
    let bytes = [&[0x8e][..], b"ORLT\r\n\x1a\x01\0\0\0\xff\xff\xff\x0f\0\0\0\0abc"].concat();
    assert_eq!(binary::read_binary(&bytes[..]).unwrap().warnings.len(), 1);
    // A payload with a valid checksum, and length fields of a long text and of many frames.
    for payload in
        [&b"\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], b"\x2f\xff\xff\xff\xff\xff\xff\xff\x7f"]
    {
        let length = u32::try_from(payload.len()).unwrap();
        let file =
            [&bytes[..12], &length.to_le_bytes(), &crc32fast::hash(payload).to_le_bytes(), payload].concat();
        assert_eq!(binary::read_binary(&file[..]).unwrap().warnings.len(), 1);
    }
}

/// A binary file of one block with a valid checksum.
fn with_payload(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload");
    let header = [&[0x8e][..], b"ORLT\r\n\x1a\x01\0\0\0"].concat();
    [&header, &length.to_le_bytes()[..], &crc32fast::hash(payload).to_le_bytes(), payload].concat()
}

proptest! {
    #[test]
    fn any_bytes_are_a_history_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all(&bytes);
        read_all(&packed(&bytes[..]));
        read_all(&[&[0x1f, 0x8b][..], &bytes].concat());
        read_all(&with_payload(&bytes));
    }

    #[test]
    fn any_records_are_a_history_or_a_warning(
            bytes in prop::collection::vec(
                prop_oneof![
                    0_u8..8,
                    prop::sample::select(&[0x0f, 0x1f, 0x2f, 0x3f, 0x6f, 0x7f][..]),
                    any::<u8>()
                ],
                0..200
            )
        ) {
        // After a device, so that more records are valid.
        read_all(&with_payload(&[&[0x3f, 1][..], &bytes].concat()));
    }

    #[test]
    fn damaged_files_are_a_history_or_an_error(history in history(), place: prop::sample::Index, byte: u8) {
        let (mut bytes, mut text) = (Vec::new(), Vec::new());
        binary::write_binary(&history, &mut bytes).unwrap();
        csv::write_csv(&history, &mut text).unwrap();
        for mut bytes in [bytes, text] {
            *place.get_mut(&mut bytes) = byte;
            read_all(&bytes);
            read_all(&bytes[..place.index(bytes.len())]);
        }
    }

    #[test]
    fn anything_like_rows_is_a_history_or_an_error(
        text in "(device,time_ns,action,address,bytes\n)?([0-9a-fx:.]{0,6},[0-9:.]{0,9},(allocate|free|use)?,\
                         [0-9a-fx]{0,6},[0-9]{0,20}[,\"\r]?[0-9]?\n){0,20}"
    ) {
        read_all(text.as_bytes());
    }

    #[test]
    fn anything_like_json_is_a_history_or_an_error(
        text in "(\\[|\\{\"traceEvents\":\\[)(\\{(\"name\":(\"\\[memory\\]\"|[0-9]{1,3}),?)?\
                         (\"ts\":[\"0-9.e-]{1,6},?)?\
                         (\"args\":\\{\"(Addr|Bytes|Device Id)\":-?[0-9]{1,25}\\})?\\}[,\\]]?){0,10}\\]?\\}?"
    ) {
        read_all(text.as_bytes());
    }
}

/// Records of the start must not follow an event.
#[test]
fn late_events_are_damage() {
    let device = &b"\x3f\0"[..];
    let (held, event) = (&b"\xbf\x08\x04\x04\0"[..], &b"\0\x02\x02\x04"[..]);
    let segment = &b"\x6f\0\x10\x04\0\0\0\0\x7f\0\x04\x04\0\0"[..];
    for (records, devices, warnings) in [
        (&[device, held, segment, event][..], 1, 0),
        (&[device, held, event, &b"\x3f\x01"[..], held, segment, event], 2, 0),
        (&[device, event, held], 1, 1),
        (&[device, event, segment], 1, 1),
        (&[device, segment, event, &b"\x7f\0\x04\x04\0\0"[..]], 1, 1),
        (&[device, event, &b"\x3f\x01"[..], held, device, held], 2, 1),
    ] {
        let file = with_payload(&records.concat());
        let end =
            [&[0; 4][..], &crc32fast::hash(&count(records, event)).to_le_bytes(), &count(records, event)];
        let file = [file, end.concat()].concat();
        let history = binary::read_binary(&file[..]).unwrap();
        assert_eq!((history.devices.len(), history.warnings.len()), (devices, warnings), "{records:?}");
    }
}

/// Encodes the number of records that are events, as at the end of a file.
fn count(records: &[&[u8]], event: &[u8]) -> [u8; 8] {
    records.iter().filter(|record| **record == event).count().to_le_bytes()
}
