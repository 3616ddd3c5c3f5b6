//! Memory snapshots, pickle and JSON, plain and packed; and what is written of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orlop_trace::history::{History, Workload};
use orlop_trace::snapshot::{write_json, write_pickle};

fuzz_target!(|bytes: &[u8]| {
    let Ok(history) = History::parse(bytes) else { return };
    for device in &history.devices {
        let _ = Workload::of(device).peak();
    }
    // Lines have times that a snapshot cannot say.
    if bytes.starts_with(b"{") || bytes.starts_with(b"\x80") {
        let (mut pickle, mut json) = (Vec::new(), Vec::new());
        write_pickle(&history, &mut pickle).expect("what was read can be written");
        write_json(&history, &mut json).expect("what was read can be written");
        assert!(History::parse(&pickle[..]).expect("it was written") == history);
        assert!(History::parse(&json[..]).expect("it was written") == history);
    }
});
