//! One function reads all formats.

use orlop_trace::formats::{binary, csv};
use orlop_trace::history::{DeviceHistory, EventAction, History};
use std::path::{Path, PathBuf};

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

/// A recording is the same after conversion to an orlop file, including everything beside the events.
#[test]
fn snapshots_survive_orlops_own_file() {
    for name in ["gpt-medium_128_training", "gpt-medium_512_inference", "mosaic-sample"] {
        let history = History::read(testdata().join(format!("torch-snapshots/{name}.pickle.gz"))).unwrap();
        let mut file = Vec::new();
        binary::write_binary(&history, &mut file).unwrap();
        let again = History::parse(&file[..]).unwrap();
        assert_eq!(again, history, "{name}");
        assert_eq!(again.warnings, history.warnings);
        assert_eq!(again.annotations.len(), history.annotations.len());
    }
}

#[test]
fn events_survive_a_table() {
    let path = testdata().join("torch-snapshots/gpt-medium_256_inference.pickle.gz");
    let history = History::read(path).unwrap();
    let mut table = Vec::new();
    csv::write_csv(&history, &mut table).unwrap();
    let again = History::parse(&table[..]).unwrap();
    let key = |history: &History| -> Vec<(EventAction, u64, u64)> {
        history.devices[0].events.iter().map(|event| (event.action, event.address, event.bytes)).collect()
    };
    assert_eq!(key(&again), key(&history));
}

#[test]
fn all_shipped_traces_are_read_through_it() {
    for entry in std::fs::read_dir(testdata().join("traces")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            continue;
        }
        let history = History::read(&path).unwrap();
        // A profile has the blocks at one instant, and no events.
        let has_memory = |device: &DeviceHistory| !(device.events.is_empty() && device.unplaced.is_empty());
        assert!(history.devices.iter().any(has_memory), "{}", path.display());
    }
}
