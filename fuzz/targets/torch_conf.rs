//! Settings of PyTorch's allocator.
#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::run("torch_conf", bytes));
