//! The page on a narrow screen and by keyboard, the timeline of segments, and reports that are dropped onto
//! it.

use crate::browser::Browser;
use crate::pages::{BASE, MIB, Page, churn};
use crate::report::{holds, small};
use orlop_core::StreamId;
use orlop_trace::history::{EventAction, HistoryEvent, Segment, SegmentBlock, SiteId};
use serde_json::json;

#[test]
fn a_page_has_everything_within_its_width() {
    for width in [400, 1280] {
        let Some(mut browser) = Browser::start(width, 800) else { return };
        Page::with_verdicts(&churn(3000)).open(&mut browser);
        // Lists and tables scroll on their own.
        let beyond = "[...document.querySelectorAll('body *')].filter((one) => one.offsetParent && \
                      one.getBoundingClientRect().right > Math.min(innerWidth, \
                      one.closest('.chart-pane')?.getBoundingClientRect().right ?? innerWidth) + 1 && \
                      !one.closest('.panel, .what')).map((one) => one.id || one.className)";
        assert_eq!(browser.evaluate(beyond), json!([]), "elements beyond the edge at {width}");
        assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), json!(width));
        for part in ["#verdict", "#chart", "#legend", "#details", "#map"] {
            let size = browser.evaluate(&format!(
                "(({{ width, height }}) => width > 250 && height > 40)(document.querySelector('{part}')\
                 .getBoundingClientRect())"
            ));
            assert_eq!(size, json!(true), "{part} at {width}");
        }
        assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    }
}

#[test]
fn every_control_is_reached_by_keyboard() {
    let Some(mut browser) = Browser::start(400, 800) else { return };
    Page::of(&small(), &[]).open(&mut browser);
    let mut reached = Vec::new();
    for _ in 0..40 {
        browser.key("Tab");
        let id = browser.evaluate("document.activeElement.id || document.activeElement.dataset.mode || ''");
        reached.push(id.as_str().unwrap_or_default().to_owned());
    }
    for id in ["blocks", "grouping", "search", "go-peak", "chart", "tab-regions", "scrub", "map"] {
        assert!(reached.iter().any(|one| one == id), "{id} is not among {reached:?}");
    }
    browser.evaluate("document.querySelector('[data-mode=blocks]').focus()");
    browser.key("ArrowRight");
    assert_eq!(browser.evaluate("orlopReport.app.mode"), json!("areas"));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

/// A name without room shows its end: in the list of groups, and beside the cursor's event.
#[test]
fn long_names_keep_their_end() {
    for (width, list) in [(400, "#legend .what"), (1280, "#legend .what"), (1280, "#moment .what")] {
        let Some(mut browser) = Browser::start(width, 800) else { return };
        Page::of(&small(), &[]).open(&mut browser);
        let cut = CUT.replace("LIST", list);
        assert_eq!(browser.evaluate(&cut), json!(true), "{list} at {width}");
    }
    // Annotations are drawn.
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    Page::of(&small(), &[]).open(&mut browser);
    let drawn = browser.evaluate(
        "orlopReport.shortened(document.createElement('canvas').getContext('2d'), 'a_long_name.step', 60)",
    );
    let drawn = drawn.as_str().unwrap_or_default();
    assert!(drawn.starts_with('…') && drawn.ends_with("step"), "{drawn}");
}

/// Whether the end of a long name is within the box of the first of a list.
const CUT: &str = "(() => { const name = document.querySelector('LIST'), text = name.firstChild; \
               text.textContent = 'x'.repeat(200) + ' < aten::end'; \
               const range = document.createRange(), node = text.firstChild; \
               range.setStart(node, node.length - 4); range.setEnd(node, node.length); \
               const end = range.getBoundingClientRect(), box = name.getBoundingClientRect(); \
               return end.right <= box.right + 1 && end.left >= box.left; })()";

#[test]
fn segments_and_private_pools_have_a_timeline() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    let mut history = small();
    let free = SegmentBlock::free(BASE + 64 * MIB, 8 * MIB);
    history.devices[0].start.push(Segment {
        address: BASE + 64 * MIB,
        bytes: 8 * MIB,
        stream: StreamId::from_raw(0),
        small: false,
        expandable: false,
        pool: (3, 1),
        site: SiteId::UNKNOWN,
        blocks: vec![free],
    });
    history.devices[0].events.push(HistoryEvent::new(
        EventAction::RegionReserved,
        BASE + 128 * MIB,
        32 * MIB,
    ));
    Page::of(&history, &[]).open(&mut browser);
    browser.key("s");
    browser.frame();
    holds(
        &browser.text("#legend"),
        &["large segments", "16.0 MiB", "private pool (3, 1): large segments", "8.00 MiB"],
    );
    let found = "(() => { const { segments } = orlopReport.app; \
                 return [segments.at(1, 1), segments.at(1, 17 * 1048576), segments.at(1, 25 * 1048576), \
                         segments.at(8, 25 * 1048576)]; })()";
    assert_eq!(browser.evaluate(found), json!([0, 1, -1, 2]));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn dropped_reports_join_the_list() {
    let Some(mut browser) = Browser::start(1280, 800) else { return };
    let (page, other) = (Page::of(&small(), &[]), Page::of(&churn(500), &[]));
    page.open(&mut browser);
    let text = json!(std::fs::read_to_string(other.path()).expect("a page"));
    browser.evaluate(&format!(
        "(() => {{ const data = new DataTransfer(); \
         data.items.add(new File([{text}], 'other.html')); data.items.add(new File(['x'], 'run.pickle')); \
         document.dispatchEvent(new DragEvent('drop', \
         {{ dataTransfer: data, bubbles: true, cancelable: true }})); }})()"
    ));
    browser.evaluate(
        "new Promise((done) => { const wait = () => orlopReport.app.entries.length > 1 && \
         !document.getElementById('dropped').hidden ? done(1) : setTimeout(wait, 20); wait(); })",
    );
    browser.frame();
    assert_eq!(browser.evaluate("document.querySelectorAll('#device option').length"), json!(2));
    assert_eq!(browser.evaluate("orlopReport.app.device.events"), json!(500));
    holds(&browser.text("#dropped"), &["run.pickle is not a report", "orlop report"]);
    browser.evaluate(
        "(() => { const list = document.getElementById('device'); list.value = '0'; \
         list.dispatchEvent(new Event('change')); })()",
    );
    browser.frame();
    assert_eq!(browser.evaluate("orlopReport.app.device.events"), json!(7));
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}
