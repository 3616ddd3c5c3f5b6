//! Traces of `torch.profiler`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_trace::formats::{chrome, csv, perfetto};
use orlop_trace::history::Workload;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(history) = chrome::read_chrome(bytes) {
        for device in &history.devices {
            let _ = Workload::of(device);
        }
        csv::write_csv(&history, std::io::sink()).expect("what was read can be written");
        perfetto::write_perfetto(&history, std::io::sink()).expect("what was read can be written");
    }
});
