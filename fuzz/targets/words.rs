//! Sizes, dtypes, devices, kinds and formats on the command line.
#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::run("words", bytes));
