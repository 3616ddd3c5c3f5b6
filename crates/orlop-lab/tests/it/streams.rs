//! Damaged files: reading as a whole and streaming keep the same part.

use orlop_lab::simulate::{AllocatorRules, StreamedReplay};
use orlop_trace::formats::binary;
use orlop_trace::history::Workload;

/// Returns a file with one block of records.
fn file(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short");
    let header = [&[0x8e][..], b"ORLT\r\n\x1a\x01\0\0\0"].concat();
    [&header, &length.to_le_bytes()[..], &crc32fast::hash(payload).to_le_bytes(), payload].concat()
}

#[test]
fn late_events_are_omitted_by_both_readers() {
    let device = &b"\x3f\0"[..];
    let (held, event) = (&b"\xbf\x08\x04\x04\0"[..], &b"\0\x02\x02\x04"[..]);
    let segment = &b"\x6f\0\x10\x04\0\0\0\0\x7f\0\x04\x04\0\0"[..];
    for records in [
        &[device, held, segment, event][..],
        &[device, held, event, &b"\x3f\x01"[..], held, segment, event],
        &[device, event, held],
        &[device, event, segment],
        &[device, segment, event, &b"\x7f\0\x04\x04\0\0"[..]],
        &[device, event, &b"\x3f\x01"[..], held, device, held],
    ] {
        let file = file(&records.concat());
        let history = binary::read_binary(&file[..]).unwrap();
        let streamed = StreamedReplay::run(&file[..], &AllocatorRules::Orlop, None).unwrap();
        assert_eq!((streamed.devices.len(), &streamed.warnings), (history.devices.len(), &history.warnings));
        for (device, (_, outcome)) in history.devices.iter().zip(&streamed.devices) {
            assert_eq!(outcome.peak_live, Workload::of(device).peak().0, "{records:?}");
        }
    }
}

#[test]
fn decompression_bombs_are_refused() {
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;
    let text = [&b"\x0f\xff\x7f"[..], &[b'x'; (1 << 14) - 1]].concat();
    let block = file(&text).split_off(12);
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&file(&[])[..12]).unwrap();
    packed.write_all(&block.repeat((24 << 20) / block.len())).unwrap();
    let error = StreamedReplay::run(&packed.finish().unwrap()[..], &AllocatorRules::Orlop, None).unwrap_err();
    assert!(error.to_string().contains("decompresses to more than"), "{error}");
}
