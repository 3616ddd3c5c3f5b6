//! Binary histories.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_trace::formats::binary;

fuzz_target!(|bytes: &[u8]| {
    // As it is, and as the payload of a block whose checksum is right.
    if let Ok(history) = binary::read_binary(bytes) {
        binary::write_binary(&history, std::io::sink()).expect("what was read can be written");
    }
    let length = u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes();
    let head = [&b"\x8eORLT\r\n\x1a\x01\0\0\0"[..], &length, &crc32fast::hash(bytes).to_le_bytes(), bytes].concat();
    if let Ok(history) = binary::read_binary(&head[..]) {
        binary::write_binary(&history, std::io::sink()).expect("what was read can be written");
    }
});
