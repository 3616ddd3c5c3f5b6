//! Malicious files: no crashes, hangs or excessive memory, and a precise error for each.

use super::{GPT, unpacked};
use flate2::Compression;
use flate2::read::GzEncoder;
use orlop_trace::TraceError;
use orlop_trace::formats::snapshot::write_pickle;
use orlop_trace::history::History;
use proptest::prelude::*;
use std::io::Read;

fn packed(reader: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzEncoder::new(reader, Compression::best()).read_to_end(&mut bytes).expect("reading does not fail");
    bytes
}

/// Returns the error of reading these bytes.
fn wrong(bytes: &[u8]) -> TraceError {
    match History::parse(bytes) {
        Err(error) => error,
        Ok(_) => panic!("it was read"),
    }
}

fn pickle(parts: &[&[u8]]) -> Vec<u8> {
    [b"\x80\x04", &parts.concat()[..]].concat()
}

#[test]
fn no_code_is_run() {
    for (opcode, name) in [
        (&b"cos\nsystem\n"[..], "GLOBAL"),
        (b"\x8c\x02os\x8c\x06system\x93", "STACK_GLOBAL"),
        (b"NNR", "REDUCE"),
        (b"NNb", "BUILD"),
        (b"(ios\nsystem\n", "INST"),
        (b"(No", "OBJ"),
        (b"NN\x81", "NEWOBJ"),
        (b"NNN\x92", "NEWOBJ_EX"),
        (b"\x82\x01", "EXT1"),
        (b"\x83\x01\x00", "EXT2"),
        (b"\x84\x01\x00\x00\x00", "EXT4"),
        (b"P1\n", "PERSID"),
        (b"NQ", "BINPERSID"),
    ] {
        let error = wrong(&pickle(&[b"N0", opcode, b"."]));
        assert!(matches!(error, TraceError::RunsCode { opcode, .. } if opcode == name), "{name}: {error}");
    }
    let error = wrong(&pickle(&[b"N0cos\nsystem\n(tR."]));
    assert_eq!(
        error.to_string(),
        "offset 4: GLOBAL would run code: snapshots are plain data, this file is not"
    );
}

#[test]
fn malformed_pickles_are_reported_with_their_offset() {
    for (body, message) in [
        (&b"}"[..], "the file is cut off: what follows byte 3 is incomplete"),
        (b"\x8b\xff\xff\xff\x7f", "the file is cut off: what follows byte 7 is incomplete"),
        (
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc",
            "the file is cut off: what follows byte 14 is incomplete",
        ),
        (b"X\xff\xff\xff\xffabc.", "the file is cut off: what follows byte 11 is incomplete"),
        (b"\x8b\xff\xff\xff\xff.", "offset 2: the value is malformed"),
        (b".", "offset 2: the operands of opcode 0x2e are missing or of the wrong type"),
        (b"e", "offset 2: the operands of opcode 0x65 are missing or of the wrong type"),
        (b"(e", "offset 3: the operands of opcode 0x65 are missing or of the wrong type"),
        (b"N(Ne", "offset 5: the operands of opcode 0x65 are missing or of the wrong type"),
        (b"}(Nu", "offset 5: the operands of opcode 0x75 are missing or of the wrong type"),
        (b"](NNu", "offset 6: the operands of opcode 0x75 are missing or of the wrong type"),
        (b"N(00e", "offset 5: the operands of opcode 0x30 are missing or of the wrong type"),
        (b"NN\x87", "offset 4: the operands of opcode 0x87 are missing or of the wrong type"),
        (b"a", "offset 2: the operands of opcode 0x61 are missing or of the wrong type"),
        (b"h\x00", "offset 2: memo 0 is invalid"),
        (b"Nr\xff\xff\xff\xff", "offset 3: memo 4294967295 is invalid"),
        (b"Np-1\n", "offset 3: the value is malformed"),
        (b"\xff", "offset 2: opcode 0xff does not occur in snapshots"),
        (b"\x8f", "offset 2: opcode 0x8f does not occur in snapshots"),
        (b"\x80\x06", "pickle protocol 6 is unknown"),
        (b"N.", "expected a snapshot, found another type"),
        (b"}.", "neither segments nor device_traces: this is not a memory snapshot"),
        (b"}\x8c\x08segmentsK\x01s.", "expected a list of records, found another type"),
        (b"}\x8c\x08segments](Nes.", "expected a segment, found another type"),
        (b"}\x8c\x08segments](}es.", "a segment has no address or a number in it, or an invalid one"),
    ] {
        assert_eq!(wrong(&pickle(&[body])).to_string(), message, "{}", body.escape_ascii());
    }
}

#[test]
fn odd_but_plain_pickles_are_read() {
    let segment = b"(S'x'\n"; // A string with escapes: not plain.
    assert!(matches!(wrong(&pickle(&[segment])), TraceError::Opcode { opcode: b'S', .. }));
    // Protocols 0 and 1: numbers and memos in text form, marks.
    let old =
        b"(dp0\nVsegments\np1\n(lp2\nsVdevice_traces\n(lp3\n(lp4\n(dVaction\nValloc\nsVaddr\nI512\nsVsize\n\
            L700L\n\
        sVtime_us\nF1.5\nsVstream\nI00\nsaas.";
    let history = History::parse(&old[..]).expect("it is plain");
    assert_eq!((history.devices[0].events[0].address, history.devices[0].events[0].bytes), (512, 700));
    // Unused values in every form.
    let odd = pickle(&[
        b"}(\x8c\x08segments)\x8c\x01a(K\x01NtK\x02\x8c\x01bK\x01\x85\x8c\x01cC\x01xX\x01\x00\x00\x00dB\x01\
          \x00\x00\x00x",
        b"J\xff\xff\xff\xff\x8b\x09\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x01\x88\x89",
        b"G\x3f\xf0\x00\x00\x00\x00\x00\x00(N1N20\x8a\x00u.",
    ]);
    assert_eq!(History::parse(&odd[..]).expect("it is plain").devices.len(), 0);
}

#[test]
fn deep_nesting_is_cheap() {
    // A million nested lists and tuples.
    let lists = pickle(&[&b"]".repeat(1 << 20), &b"a".repeat((1 << 20) - 1), b"."]);
    assert!(matches!(wrong(&lists), TraceError::WrongType { .. }));
    let tuples = pickle(&[b"N", &b"\x85".repeat(1 << 20), b"."]);
    assert!(matches!(wrong(&tuples), TraceError::WrongType { .. }));
    let field = pickle(&[b"}\x8c\x08segments", &b"]".repeat(1 << 20), &b"a".repeat((1 << 20) - 1), b"s."]);
    assert!(matches!(wrong(&field), TraceError::WrongType { expected: "a segment" }));
    for key in ["segments", "unknown", "external_annotations"] {
        let json = format!("{{\"{key}\": {}", "[".repeat(1 << 20));
        assert!(matches!(wrong(json.as_bytes()), TraceError::Json { .. }));
        let json = format!("{{\"{key}\": {}", "{\"frames\":".repeat(1 << 18));
        assert!(matches!(wrong(json.as_bytes()), TraceError::Json { .. }));
    }
}

/// Lists of two, each with the previous one twice: 2^n values in few bytes.
fn doubled(times: usize, last: &[u8]) -> Vec<u8> {
    let mut bytes = [last, b"\x94"].concat();
    for memo in 0..times {
        let memo = u8::try_from(memo).expect("few");
        bytes.extend([b'0', b']', b'\x94', b'(', b'h', memo, b'h', memo, b'e']);
    }
    bytes
}

#[test]
fn shared_values_are_not_multiplied() {
    // Frames that contain frames are invalid; nested lists are read only as deep as a snapshot.
    let bomb = doubled(100, b"}");
    let site = pickle(&[b"}\x8c\x0ddevice_traces](](}\x8c\x06frames", &bomb, b"seees."]);
    let _ = History::parse(&site[..]);
    // A thousand devices that share a list of a thousand events.
    let event = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01u\x94";
    let events = [b"](", &event[..], &b"h\x00".repeat(999), b"e\x94"].concat();
    let traces = pickle(&[b"}\x8c\x0ddevice_traces](", &events, &b"h\x01".repeat(999), b"es."]);
    let error = wrong(&traces);
    assert!(
        matches!(error, TraceError::ExcessiveSharing { bytes, .. } if bytes == traces.len() as u64),
        "{error}"
    );
    // A thousand segments that share a record of a thousand keys.
    let keys = b"\x8c\x01xN".repeat(999);
    let wide = [b"}(\x8c\x07addressK\x01", &keys[..], b"u\x94"].concat();
    let shared = pickle(&[b"}\x8c\x08segments](", &wide, &b"h\x00".repeat(999), b"es."]);
    assert!(matches!(wrong(&shared), TraceError::ExcessiveSharing { .. }));
    // Such an event is converted once.
    let wide = [b"}(\x8c\x06action\x8c\x08snapshot", &keys[..], b"u\x94"].concat();
    let shared = pickle(&[b"}\x8c\x0ddevice_traces](](", &wide, &b"h\x00".repeat(999), b"ees."]);
    assert_eq!(History::parse(&shared[..]).unwrap().devices[0].events.len(), 1000);
    // One long name that many frames share is stored and hashed once.
    let name = [b"X\x00\x00\x01\x00", &[b'n'; 1 << 16][..], b"\x94"].concat();
    let frames = b"}\x8c\x04nameh\x00s".repeat(1000);
    let deep = pickle(&[
        &name,
        b"0}\x8c\x0ddevice_traces](](}(\x8c\x06action\x8c\x08snapshot\x8c\x06frames](",
        &frames,
        b"eueees.",
    ]);
    let deep = History::parse(&deep[..]);
    assert!(deep.is_err() || deep.is_ok_and(|history| history.sites.len() == 2));
}

#[test]
fn a_list_that_contains_itself_is_no_snapshot() {
    let itself = pickle(&[b"}\x94\x8c\x08segments]\x94h\x01ash\x00\x8c\x0ddevice_tracesh\x01s."]);
    assert!(matches!(wrong(&itself), TraceError::WrongType { expected: "a segment" }));
}

#[test]
fn compressed_files_have_a_size_limit() {
    let zeros = std::io::repeat(b'N').take(32 << 20);
    let bomb = packed(b"\x80\x04(".chain(zeros));
    assert!(matches!(History::parse(&bomb[..]).unwrap_err(), TraceError::Bomb { .. }));
    let spaces = std::io::repeat(b' ').take(32 << 20);
    let bomb = packed(b"{".chain(spaces));
    let error = History::parse(&bomb[..]).unwrap_err();
    assert!(matches!(error, TraceError::Bomb { .. }), "{error}");
}

#[test]
fn inconsistent_segments_are_repaired() {
    let json = |segments: &str| format!("{{\"segments\": [{segments}]}}");
    for (segments, kept) in [
        (r#"{"address": 18446744073709551615, "total_size": 2, "blocks": []}"#, 0),
        (r#"{"address": 1, "total_size": 0, "blocks": []}"#, 0),
        (
            r#"{"address": 1, "total_size": 5, "blocks": [{"address": 0, "size": 3, "state": "inactive"},
               {"address": 18446744073709551615, "size": 18446744073709551615, "state": "inactive"}]}"#,
            1,
        ),
        (
            r#"{"address": 1, "total_size": 5, "blocks": [{"size": 5, "state": "inactive"}]},
               {"address": 5, "total_size": 5, "blocks": [{"size": 5, "state": "inactive"}]}"#,
            1,
        ),
    ] {
        let history = History::parse(json(segments).as_bytes()).expect("it is mended");
        let found: usize = history.devices.iter().map(|device| device.end.len()).sum();
        assert_eq!((found, history.warnings.is_empty()), (kept, false), "{segments}");
    }
    let device = json(r#"{"device": 4096, "address": 1, "total_size": 1, "blocks": []}"#);
    assert!(wrong(device.as_bytes()).to_string().contains("device 4096: devices are numbered below 4096"));
}

#[test]
fn a_file_that_is_cut_off_is_never_read() {
    let whole = unpacked(GPT[2]);
    // At every position in the beginning, then at many positions.
    for length in (2..3000).chain((3000..whole.len()).step_by(7919)) {
        assert!(History::parse(&whole[..length]).is_err(), "{length} bytes");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_history_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = History::parse(&bytes[..]);
        let _ = History::parse(&packed(&bytes[..])[..]);
        let _ = History::parse(&pickle(&[&bytes])[..]);
    }

    #[test]
    fn any_opcodes_are_a_history_or_an_error(
        opcodes in proptest::collection::vec(
            proptest::sample::select(&b"()]}aesuldtN\x85\x86\x87\x88\x94h\x00K\x01q\x02012."[..]), 0..200)
    ) {
        let _ = History::parse(&pickle(&[&opcodes])[..]);
        let named = [b"}\x8c\x0ddevice_traces", &opcodes[..], b"s."].concat();
        let _ = History::parse(&pickle(&[&named])[..]);
    }

    #[test]
    fn a_damaged_file_is_a_history_or_an_error(
        damage in proptest::collection::vec((0_usize..40_000, any::<u8>()), 1..20)
    ) {
        let mut bytes = pickled_head();
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Ok(history) = History::parse(&bytes[..]) {
            let mut written = Vec::new();
            write_pickle(&history, &mut written).expect("devices are numbered as in files");
            let again = History::parse(&written[..]).expect("it was written");
            prop_assert!(again == history);
        }
    }
}

/// A small file with all features of a real one.
fn pickled_head() -> Vec<u8> {
    let json = include_str!("../../data/snapshot/small.json");
    let history = History::parse(json.as_bytes()).expect("it is a snapshot");
    assert_eq!(history.warnings, []);
    let mut bytes = Vec::new();
    write_pickle(&history, &mut bytes).expect("memory takes all");
    bytes
}
