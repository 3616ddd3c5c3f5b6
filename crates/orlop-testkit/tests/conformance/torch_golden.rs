//! The recorded programs of PyTorch's caching allocator: every address, and every statistic at the end.

use orlop_testkit::golden::testdata;
use orlop_testkit::torch::{OPERATIONS, TorchComparison, TorchProgram};
use std::fs;
use std::path::{Path, PathBuf};

/// Programs whose counts of splits depend on the order in which PyTorch polls the events of several streams.
const BY_EVENT_ORDER: [&str; 2] = ["x-many-streams", "x-tiny-device"];

fn agree(folder: &str, count: usize) {
    let entries = fs::read_dir(testdata(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut programs: Vec<PathBuf> =
        paths.filter(|path| path.to_string_lossy().ends_with(OPERATIONS)).collect();
    programs.sort();
    assert_eq!(programs.len(), count);
    let failures: Vec<String> = programs.iter().filter_map(|path| failure(path)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs a program. Returns the first differences, if there are any.
fn failure(path: &Path) -> Option<String> {
    let program = TorchProgram::read(path).unwrap();
    let comparison = match program.compare() {
        Ok(comparison) => comparison,
        Err(error) => return Some(format!("{}: {error}", program.name)),
    };
    let TorchComparison { answers, mut differences, by_event_order } = comparison;
    if by_event_order.is_empty() == BY_EVENT_ORDER.contains(&&*program.name) {
        differences.push(format!("counts of splits: {by_event_order:?}"));
    }
    let count = differences.len();
    differences.truncate(5);
    (count > 0).then(|| format!("{}: {count} of {answers}: {differences:#?}", program.name))
}

#[test]
fn settings_one_by_one() {
    agree("torch-golden", 12);
}

#[test]
fn other_orders_of_addresses() {
    agree("torch-golden-order", 4);
}

#[test]
fn the_release_that_orders_by_creation() {
    agree("torch-golden-212", 4);
}

#[test]
fn nested_routes_and_pools_that_lend_their_memory() {
    agree("torch-golden-pools", 16);
}

#[test]
fn settings_together_and_private_pools() {
    agree("torch-golden-more", 17);
}
