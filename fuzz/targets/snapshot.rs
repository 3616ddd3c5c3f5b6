//! Memory snapshots, pickle and JSON, plain and packed; and what is written of them.
#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::run("snapshot", bytes));
