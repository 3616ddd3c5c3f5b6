//! The verdict at the top of a page.

use crate::browser::Browser;
use crate::pages::{Page, churn};
use crate::report::{holds, small};
use orlop_trace::history::{EventAction, HistoryEvent};

/// Of two devices, a request failed on the second.
#[test]
fn the_page_opens_on_the_device_that_failed_with_its_verdict() {
    let Some(mut browser) = Browser::start(1400, 900) else { return };
    let mut history = churn(500);
    let mut failed = small().devices.remove(0);
    failed.device = 3;
    let smaller = HistoryEvent::new(EventAction::OutOfMemory, 1 << 20, 20 << 20);
    failed.events.insert(2, HistoryEvent { time: failed.events[2].time, ..smaller });
    history.devices.push(failed);
    Page::with_verdicts(&history).open(&mut browser);
    assert_eq!(browser.evaluate("document.getElementById('device').selectedOptions[0].textContent"), "3");
    let verdict = browser.text("#verdict");
    holds(&verdict, &["device 3 ran out of memory: 64.0 MiB requested", "orlop what-if test.pickle"]);
    // The card is about the same request.
    holds(&browser.text("#cards"), &["2 times", "up to 64.0 MiB requested"]);
    browser.evaluate(
        "(() => { const list = document.getElementById('device'); list.value = 0; \
         list.dispatchEvent(new Event('change')); })()",
    );
    holds(&browser.text("#verdict"), &["device 0 "]);
}
