//! Histories as CSV.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_trace::formats::{csv, perfetto};
use orlop_trace::history::Workload;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(history) = csv::read_csv(bytes) {
        for device in &history.devices {
            let _ = Workload::of(device);
        }
        csv::write_csv(&history, std::io::sink()).expect("what was read can be written");
        perfetto::write_perfetto(&history, std::io::sink()).expect("what was read can be written");
    }
});
