//! Mapped files and other external memory: in a recording, but no request of an allocator.

use orlop_core::torch::TorchConf;
use orlop_lab::analyze::{SiteNaming, SnapshotInfo};
use orlop_lab::simulate::{AllocatorRules, Simulation};
use orlop_lab::what_if::WhatIf;
use orlop_trace::history::{History, Workload};

const HEAD: &str = "device,time_ns,action,address,bytes,kind\n\
    0,1,region_gained,0x10000000,2097152,default\n";
const MAPPED: &str = "0,2,external_adopted,0x70000000,1073741824,persistent\n";
const BLOCKS: &str = "0,3,allocate,0x10000000,1000000,default\n\
    0,4,free_requested,0x10000000,1000000,default\n\
    0,5,free_completed,0x10000000,1000000,default\n";
const UNMAPPED: &str = "0,6,external_freed,0x70000000,1073741824,persistent\n";

fn parse(parts: &[&str]) -> History {
    History::parse(parts.concat().as_bytes()).expect("a table")
}

#[test]
fn mapped_files_are_no_requests() {
    let [with, without] = [parse(&[HEAD, MAPPED, BLOCKS, UNMAPPED]), parse(&[HEAD, BLOCKS])];
    let info = SnapshotInfo::of(&with, SiteNaming::default());
    let device = &info.devices[0];
    assert!(info.warnings.is_empty(), "{:?}", info.warnings);
    assert_eq!((device.allocations, device.peak.live.bytes, device.peak.outside), (1, 1_000_000, 0));
    assert_eq!((device.ignored_events, device.peak_reserved), (0, Some(2 << 20)));
    assert_eq!((device.external.peak_bytes, device.external.end_bytes), (1 << 30, 0));
    assert_eq!((device.external.adopted, device.external.end_blocks), (1, 0));

    let works = [&with, &without].map(|history| Workload::of(&history.devices[0]));
    assert_eq!(works[0].blocks.len(), works[1].blocks.len());
    let rules = AllocatorRules::Torch(TorchConf::default());
    let outcomes = works.each_ref().map(|work| Simulation::new(work).run(&rules));
    assert_eq!(outcomes[0].peak_reserved, outcomes[1].peak_reserved);
    let reports = [(&works[0], &with), (&works[1], &without)]
        .map(|(work, history)| WhatIf::recorded(work, history, &history.devices[0]).run());
    assert_eq!(reports[0].peak_live, reports[1].peak_live);
    let reserved =
        |at: usize| -> Vec<_> { reports[at].rows.iter().map(|row| row.outcome.peak_reserved).collect() };
    assert_eq!(reserved(0), reserved(1));
}
