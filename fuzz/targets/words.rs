//! Sizes, dtypes, devices, kinds and formats as people type them.
#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::run("words", bytes));
