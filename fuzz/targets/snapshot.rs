//! Memory snapshots, pickle and JSON, plain and compressed, and writing the result.
#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::run("snapshot", bytes));
