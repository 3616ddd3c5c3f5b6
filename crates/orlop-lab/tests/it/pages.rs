//! Histories to display, their pages on disk, and the duration of frames.

use crate::browser::Browser;
use orlop_lab::analyze::{DeviceInfo, SiteNaming, SnapshotInfo};
use orlop_lab::report::{DeviceVerdict, ReportData, ReportRow};
use orlop_lab::verdict::{RunVerdict, most_urgent_first};
use orlop_trace::history::{DeviceHistory, EventAction, History, HistoryEvent, SiteId};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const BASE: u64 = 0x7f12_0000_0000;
/// The size of a segment of the synthetic run.
pub(crate) const REGION: u64 = 128 * MIB;

/// A page on disk.
pub(crate) struct Page {
    folder: TempDir,
}

impl Page {
    pub(crate) fn of(history: &History, rows: &[ReportRow]) -> Self {
        Self::with(&ReportData::new(history).title("A <test>").source("test.pickle").what_if(rows))
    }

    /// A page with the verdicts on all devices.
    pub(crate) fn with_verdicts(history: &History) -> Self {
        let mut infos = SnapshotInfo::of(history, SiteNaming::default()).devices;
        most_urgent_first(&mut infos);
        let verdict = |info: &DeviceInfo| DeviceVerdict {
            device: info.device,
            verdict: RunVerdict::on_page(info, None, "test.pickle"),
        };
        let verdicts: Vec<_> = infos.iter().map(verdict).collect();
        Self::with(&ReportData::new(history).verdicts(&verdicts))
    }

    fn with(report: &ReportData<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let file = File::create(folder.path().join("report.html")).expect("a file");
        report.write(file).expect("a page");
        Self { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("report.html")
    }

    pub(crate) fn open(&self, browser: &mut Browser) {
        browser.open(&self.path());
    }

    pub(crate) fn bytes(&self) -> u64 {
        std::fs::metadata(self.path()).expect("a file").len()
    }
}

/// A synthetic run: blocks of all sizes and lifetimes, many sites, segments reserved on demand.
pub(crate) fn churn(events: usize) -> History {
    let mut history = History::default();
    let sites: Vec<SiteId> = (0..400)
        .map(|line| {
            let frames: Vec<u32> = (0..20)
                .map(|depth| {
                    history.sites.frame(&format!("f{}", line % (depth * 7 + 3)), "/x/model.py", line)
                })
                .collect();
            history.sites.stack(&frames)
        })
        .collect();
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let (mut device, mut users) = (DeviceHistory::default(), HashMap::new());
    let (mut live, mut end, mut held, mut time) = (Vec::new(), BASE, BASE, 0);
    while device.events.len() < events {
        time += 500 + random(5000);
        let site = sites[usize::try_from(random(400)).expect("small")];
        let at =
            |action, address, bytes| HistoryEvent { time, site, ..HistoryEvent::new(action, address, bytes) };
        let most = 20 + events / 300;
        if live.len() < most / 20 || (live.len() < most && random(100) < 53) {
            let bytes = 1 + match random(20) {
                0 => random(64 << 20),
                1..=4 => random(4 << 20),
                _ => random(200_000),
            };
            if end + bytes > held {
                device.events.push(at(EventAction::RegionReserved, held, REGION));
                (end, held) = (held, held + REGION);
            }
            device.events.push(at(EventAction::Allocate, end, bytes));
            live.push((end, bytes));
            *users.entry((end - BASE) / REGION).or_insert(0) += 1;
            end += bytes.next_multiple_of(512);
        } else {
            let reach = if random(3) > 0 { live.len().min(30) } else { live.len() };
            let back = usize::try_from(random(reach as u64)).expect("small");
            let (address, bytes) = live.remove(live.len() - 1 - back);
            device.events.push(at(EventAction::FreeRequested, address, bytes));
            device.events.push(at(EventAction::FreeCompleted, address, bytes));
            let region = (address - BASE) / REGION;
            let left = users.entry(region).and_modify(|left: &mut u32| *left -= 1).or_insert(0);
            if *left == 0 && BASE + (region + 1) * REGION != held {
                device.events.push(at(EventAction::RegionReleased, BASE + region * REGION, REGION));
            }
        }
    }
    history.devices.push(device);
    history
}

/// Run it alone: `cargo test --release -p orlop-lab --test it -- --ignored --nocapture frames`.
#[test]
#[ignore = "timed: the machine must have nothing else to do"]
fn frames_come_fast_enough() {
    let Some(mut browser) = Browser::start(1400, 900) else { return };
    for (events, limit) in [(100_000, 33.0), (1_000_000, 200.0)] {
        let page = Page::of(&churn(events), &[]);
        page.open(&mut browser);
        for mode in ["blocks", "areas"] {
            browser.evaluate(&format!("document.querySelector('[data-mode={mode}]').click()"));
            let result = browser.evaluate("orlopReport.bench(90)");
            println!("{events} events, page of {} bytes, {mode}: {result}", page.bytes());
            let median = result["frame"]["median"].as_f64().expect("a time");
            assert!(median <= limit, "{median} ms a frame, and not {limit}");
        }
    }
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}
