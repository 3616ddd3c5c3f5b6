//! Reports as users see them: created here, opened in a browser, clicked and read.

use crate::browser::Browser;
use crate::pages::{BASE, MIB, Page, churn};
use orlop_core::{MemoryKind, StreamId};
use orlop_lab::analyze::Fragmentation;
use orlop_lab::report::{ReportRow, WhatIfVerdict};
use orlop_trace::history::Timeline;
use orlop_trace::history::{
    Annotation, AnnotationStage, BlockState, DeviceHistory, EventAction, History, HistoryEvent, Segment,
    SegmentBlock, SiteId, Workload,
};
use serde_json::Value;

fn piece(offset: u64, bytes: u64, state: BlockState) -> SegmentBlock {
    SegmentBlock { address: BASE + offset, bytes, requested: bytes, state, site: SiteId::UNKNOWN }
}

/// 16 MiB, of which four are live from the beginning; blocks of two and six are allocated and freed, and a
/// request of 64 fails.
pub(crate) fn small() -> History {
    let mut history = History::default();
    let sites = &mut history.sites;
    let forward = [
        sites.frame("c10::cuda::CUDACachingAllocator::malloc()", "??", 0),
        sites.frame("attend", "/work/model.py", 10),
        sites.frame("main", "/work/train.py", 3),
    ];
    let backward = [sites.frame("sweep", "/work/loss.py", 77), sites.frame("main", "/work/train.py", 4)];
    let (forward, backward) = (sites.stack(&forward), sites.stack(&backward));
    let cache = sites.text("cache of layer 3");
    let first = HistoryEvent {
        site: forward,
        text: cache,
        kind: MemoryKind::KvCache,
        ..HistoryEvent::new(EventAction::Allocate, BASE + 4 * MIB, 2 * MIB)
    };
    let second =
        HistoryEvent { site: backward, ..HistoryEvent::new(EventAction::Allocate, BASE + 6 * MIB, 6 * MIB) };
    let mut device = DeviceHistory::default();
    device.start = vec![Segment {
        address: BASE,
        bytes: 16 * MIB,
        stream: StreamId::from_raw(0),
        small: false,
        expandable: false,
        pool: (0, 0),
        site: SiteId::UNKNOWN,
        blocks: vec![piece(0, 4 * MIB, BlockState::Live), piece(4 * MIB, 12 * MIB, BlockState::Free)],
    }];
    device.events = vec![
        first,
        second,
        HistoryEvent::new(EventAction::OutOfMemory, MIB, 64 * MIB),
        HistoryEvent { action: EventAction::FreeRequested, ..first },
        HistoryEvent { action: EventAction::FreeCompleted, ..first },
        HistoryEvent { action: EventAction::FreeRequested, ..second },
        HistoryEvent { action: EventAction::FreeCompleted, ..second },
    ];
    for (time, event) in (0..).zip(&mut device.events) {
        event.time = 1_000_000 * time;
    }
    history.devices.push(device);
    history
}

fn what_if() -> Vec<ReportRow> {
    let row = |name: &str, reserved: Option<u64>, smallest, verdict| ReportRow {
        name: name.to_owned(),
        settings: "expandable_segments:True".to_owned(),
        peak_reserved: reserved,
        ratio: Some(1.25),
        without_retry: reserved,
        smallest_memory: smallest,
        verdict,
        note: String::new(),
    };
    vec![
        row("recorded", Some(16 * MIB), Some(20 * MIB), WhatIfVerdict::Recorded),
        row("other", Some(14 * MIB), Some(30 * MIB), WhatIfVerdict::Better),
        row("third", None, None, WhatIfVerdict::DoesNotFit),
    ]
}

/// Returns the screen position of an instant and a height of the stack.
fn place(browser: &mut Browser, moment: u64, bytes: u64) -> (f64, f64) {
    point(browser.evaluate(&format!(
        "(() => {{ const {{ chart, view }} = orlopReport.app, \
                 box = chart.raster.canvas.getBoundingClientRect(); \
         return [box.x + chart.momentX({moment}) + 1, box.y + view.y({bytes})]; }})()"
    )))
}

fn point(value: Value) -> (f64, f64) {
    let [x, y] = [0, 1].map(|part| value[part].as_f64().expect("a place"));
    (x, y)
}

#[track_caller]
pub(crate) fn holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn a_page_shows_the_history() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    Page::of(&small(), &what_if()).open(&mut browser);
    assert_eq!(browser.text("#title"), "A <test>");
    holds(
        &browser.text("#cards"),
        &[
            "12.0 MiB",
            "event 2",
            "16.0 MiB",
            "1.333 × peak live",
            "4.00 MiB",
            "7",
            "1 time",
            "64.0 MiB requested",
        ],
    );
    holds(
        &browser.text("#legend"),
        &["(held before the recording)", "model.py:10 attend", "loss.py:77 sweep"],
    );
    holds(
        &browser.text("#moment-figures"),
        &["12.0 MiB live in 16.0 MiB reserved", "4.00 MiB free in 1 hole"],
    );

    let (x, y) = place(&mut browser, 2, 5 * MIB);
    browser.moves(x, y);
    holds(
        &browser.text("#tip"),
        &["2.00 MiB", "cache of layer 3", "kv_cache", "model.py:10 attend", "event 1 to 4", "3.00 ms"],
    );
    browser.clicks(x, y);
    browser.moves(5.0, 5.0);
    let details = browser.text("#details");
    holds(&details, &["2,097,152 bytes", "0x7f1200400000", "/work/train.py:3", "main", "cache of layer 3"]);

    let (x, y) = place(&mut browser, 2, 13 * MIB);
    browser.clicks(x, y);
    holds(&browser.text("#details"), &["The largest", "6.00 MiB", "loss.py:77 sweep"]);
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn holes_are_shown_at_any_moment() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    Page::of(&small(), &[]).open(&mut browser);
    browser.clicks_on("#chart");
    for _ in 0..8 {
        browser.key(",");
    }
    holds(&browser.text("#moment"), &["event 0 of 7"]);
    for _ in 0..5 {
        browser.key(".");
    }
    holds(&browser.text("#moment"), &["event 5 of 7", "4.00 ms", "free completed", "2.00 MiB"]);
    holds(
        &browser.text("#moment-figures"),
        &["6.00 MiB free in 2 holes, largest 4.00 MiB, fragmentation 33 %"],
    );
    let hole = "(() => { const { map } = orlopReport.app, box = map.canvas.getBoundingClientRect(), \
                    part = map.parts[0]; \
                return [box.x + part.x + 5 * 1048576 * part.scale % box.width, \
                  box.y + part.y + map.row / 2 \
                  + Math.floor(5 * 1048576 * part.scale / box.width) * (map.row + 4)]; })()";
    let (x, y) = point(browser.evaluate(hole));
    browser.moves(x, y);
    holds(&browser.text("#tip"), &["hole of 2.00 MiB", "large segment of 16.0 MiB", "6.00 MiB free"]);
    browser.key("o");
    holds(&browser.text("#moment"), &["event 3 of 7", "out of memory"]);
    browser.clicks_on("#step-on");
    holds(&browser.text("#moment"), &["event 4 of 7"]);
    holds(&browser.text("#moment-figures"), &["2.00 MiB freed, in use by a stream"]);
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn the_view_follows_wheel_mouse_and_keys() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    let page = Page::of(&churn(3000), &[]);
    page.open(&mut browser);
    let span =
        |browser: &mut Browser| point(browser.evaluate("[orlopReport.app.view.x0, orlopReport.app.view.x1]"));
    let all = span(&mut browser);
    let (x, y) = place(&mut browser, 1500, MIB);
    browser.wheel(x, y, -500.0);
    let near = span(&mut browser);
    assert!(near.0 > all.0 && near.1 < all.1 && near.0 < 1500.0 && near.1 > 1500.0, "{near:?}");
    browser.press(x, y);
    browser.moves(x + 100.0, y);
    browser.release(x + 100.0, y);
    let dragged = span(&mut browser);
    assert!(dragged.0 < near.0 && dragged.1 < near.1, "{dragged:?}");
    browser.evaluate("document.getElementById('chart').focus()");
    browser.key("ArrowRight");
    assert!(span(&mut browser).0 > dragged.0);
    browser.key("0");
    assert_eq!(span(&mut browser), all);
    browser.key("t");
    assert_eq!(browser.evaluate("document.querySelector('[data-axis=time]').ariaChecked"), "true");
    browser.key("a");
    let (x, y) = place(&mut browser, 2000, MIB / 2);
    browser.moves(x, y);
    holds(&browser.text("#tip"), &["the other", "MiB live", "reserved"]);
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn blocks_are_searched_and_tables_sorted() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    Page::of(&small(), &what_if()).open(&mut browser);
    browser.key("/");
    browser.types("LOSS.PY");
    assert_eq!(browser.text("#found"), "1 block, 6.00 MiB now");
    let wanted = browser.evaluate("Array.from(orlopReport.app.wanted)");
    assert_eq!(wanted, serde_json::json!([0, 0, 1]));
    browser.key("Escape");
    assert_eq!(browser.evaluate("orlopReport.app.wanted"), Value::Null);
    browser.clicks_on("#legend li:nth-child(2) button");
    assert_eq!(browser.evaluate("orlopReport.app.wanted.filter((one) => one).length"), 1);

    browser.clicks_on("#tab-whatif");
    let names =
        "Array.from(document.querySelectorAll('#whatif tbody tr td:first-child'), (cell) => cell.innerText)";
    assert_eq!(browser.evaluate(names), serde_json::json!(["other", "recorded", "third"]));
    // By the memory without a retry, then by the smallest memory.
    browser.clicks_on("#whatif th:nth-child(5) button");
    assert_eq!(browser.evaluate(names), serde_json::json!(["other", "recorded", "third"]));
    browser.clicks_on("#whatif th:nth-child(6) button");
    assert_eq!(browser.evaluate(names), serde_json::json!(["recorded", "other", "third"]));
    browser.clicks_on("#whatif th:nth-child(6) button");
    assert_eq!(browser.evaluate(names), serde_json::json!(["third", "other", "recorded"]));
    holds(&browser.text("#whatif"), &["does not fit", "expandable_segments:True", "14.0 MiB", "1.250"]);
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn each_device_has_its_own_view() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    let mut history = small();
    let mut other = churn(500).devices.remove(0);
    other.device = 3;
    history.devices.push(other);
    let name = history.sites.text("evaluation");
    let mark = |time, stage| Annotation { time, device: Some(0), name, stage };
    history.annotations =
        vec![mark(1_000_000, AnnotationStage::Begin), mark(4_000_000, AnnotationStage::End)];
    Page::of(&history, &[]).open(&mut browser);
    let bands = "orlopReport.app.notes.bands.map(({ from, to, text }) => [from, to, text])";
    assert_eq!(browser.evaluate(bands), serde_json::json!([[1, 5, "evaluation"]]));
    browser.key("t");
    browser.evaluate(
        "(() => { const list = document.getElementById('device'); list.value = 1; \
                 list.dispatchEvent(new Event('change')); })()",
    );
    browser.frame();
    assert_eq!(browser.evaluate("document.getElementById('device').selectedOptions[0].textContent"), "3");
    assert!(!browser.text("#cards").contains("12.0 MiB"));
    assert_eq!(browser.evaluate("document.querySelector('[data-axis=event]').ariaChecked"), "true");
    assert_eq!(browser.evaluate(bands), serde_json::json!([]));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn odd_histories_are_shown() {
    let Some(mut browser) = Browser::start(1000, 700) else { return };
    let device = |events: Vec<HistoryEvent>| {
        let mut history = History::default();
        history.devices.push(DeviceHistory::default());
        history.devices[0].events = events;
        history
    };
    let mut quiet = small();
    quiet.devices[0].events.clear();
    let hostile = vec![
        HistoryEvent::new(EventAction::Allocate, u64::MAX, u64::MAX),
        HistoryEvent::new(EventAction::Allocate, 0, 0),
        HistoryEvent { time: u64::MAX, ..HistoryEvent::new(EventAction::RegionReserved, 5, u64::MAX) },
        HistoryEvent::new(EventAction::Mapped, 1 << 40, 1 << 62),
        HistoryEvent::new(EventAction::Unmapped, 0, u64::MAX),
        HistoryEvent::new(EventAction::FreeCompleted, u64::MAX, 1),
        HistoryEvent::new(EventAction::FreeRequested, 77, 1),
        HistoryEvent::new(EventAction::OutOfMemory, u64::MAX, u64::MAX),
        HistoryEvent::new(EventAction::Snapshot, 0, 0),
    ];
    let one = vec![HistoryEvent::new(EventAction::Allocate, 0, 1)];
    for history in [History::default(), device(vec![]), device(one), device(hostile), quiet] {
        Page::of(&history, &[]).open(&mut browser);
        for key in ["p", "o", "t", "a", "f", "b", ".", "0", "?", "Escape"] {
            browser.key(key);
        }
        browser.clicks(400.0, 300.0);
        browser.wheel(400.0, 300.0, -300.0);
    }
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

/// A profiler's trace has no segments: only its totals are shown.
#[test]
fn a_history_without_segments_shows_none() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/traces/profiler-gpt2.json.gz");
    let history = History::read(file).expect("a trace");
    Page::of(&history, &[]).open(&mut browser);
    let peak = browser.evaluate("(({ live, peak }) => live[peak])(orlopReport.app.device)");
    assert_eq!(peak.as_u64(), Some(3_098_553_856));
    let cards = browser.text("#cards");
    holds(&cards, &["2.89 GiB", "4.53 GiB", "as counted by the source, 1.571 × peak live"]);
    assert!(!cards.contains("hole"), "{cards}");
    holds(&browser.text("#legend"), &["(held before the recording)", "aten::dropout < aten::native_dropout"]);
    holds(&browser.text("#device"), &["0", "cpu"]);
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

/// Gaps are computed twice: by this crate, event by event, and by the page, from the blocks at an instant.
#[test]
fn pages_of_real_runs_agree_with_the_lab() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/torch-snapshots");
    for name in ["128_training", "512_training", "256_inference", "512_inference"] {
        let history = History::read(format!("{folder}/gpt-medium_{name}.pickle.gz")).expect("a snapshot");
        let device = &history.devices[0];
        let work = Workload::of(device);
        Page::of(&history, &[]).open(&mut browser);
        let peak = browser.evaluate("(({ live, peak }) => live[peak])(orlopReport.app.device)");
        assert_eq!(peak.as_u64(), Some(work.peak().0), "{name}");
        let (moments, events) = (Timeline::new(device), device.events.len());
        for moment in [0, 1, events / 3, events / 2, events - 1, events] {
            let segments = moments.after(moment);
            let lab = Fragmentation::of(&segments);
            let page = browser.evaluate(&format!("orlopReport.app.device.mapAt({moment}).sums"));
            let page = ["reserved", "free", "holes", "largest", "rests", "pending"]
                .map(|figure| page[figure].as_u64().expect("a number"));
            let free = lab.split + lab.cached;
            let lab = [lab.reserved, free, lab.free_blocks, lab.largest_free, lab.rounding, lab.pending];
            assert_eq!(page, lab, "{name}, after {moment} events");
        }
    }
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

/// Refused requests are marked by what refused them, with a legend that leads to them.
#[test]
fn refusals_are_marked_with_a_legend() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    let table = "device,time_ns,action,address,bytes,refusal\n\
        0,1,allocate,0x100,1048576,\n\
        0,2,refused,0x0,4096,budget|kv_cache|retried\n\
        0,3,refused,0x0,4096,budget|kv_cache|served\n\
        0,4,refused,0x400,8192,limit|bfc|served\n\
        0,5,out_of_memory,0x0,65536,device|caching|failed\n\
        0,6,free_requested,0x100,1048576,\n";
    Page::of(&History::parse(table.as_bytes()).unwrap(), &[]).open(&mut browser);
    holds(
        &browser.text("#refusals"),
        &[
            "refused by device, failed: 1",
            "refused by limit, served: 1",
            "refused by budget, retried: 1",
            "refused by budget, served: 1",
        ],
    );
    // The marks are drawn in the colours of their causes, at the upper edge of the plot.
    for (moment, colour) in [(4, "limit"), (5, "bad")] {
        let drawn = browser.evaluate(&format!(
            "(() => {{ const {{ chart }} = orlopReport.app, {{ over, top }} = chart; \
             const probe = document.createElement('i'), x = 74 + Math.round(chart.momentX({moment})); \
             probe.style.color = 'var(--{colour})'; document.body.append(probe); \
             const wanted = getComputedStyle(probe).color.match(/\\d+/g).slice(0, 3).join(); \
             const image = over.getImageData(x - 6, top, 13, 12).data; \
             for (let at = 0; at < image.length; at += 4) \
             if (image.slice(at, at + 3).join() === wanted) return true; \
             return false; }})()"
        ));
        assert_eq!(drawn, Value::Bool(true), "the mark of {colour}");
    }
    browser.clicks_on("#refusals button:nth-child(2)");
    holds(
        &browser.text("#moment"),
        &["event 4", "8.00 KiB refused by the limit of bfc, 1.00 KiB left: served"],
    );
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    Page::of(&small(), &[]).open(&mut browser);
    assert_eq!(browser.evaluate("document.querySelector('#refusals').hidden"), Value::Bool(true));
}
