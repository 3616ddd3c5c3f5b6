//! Pages of plans as users see them: opened in a browser, zoomed, hovered and clicked.

use crate::browser::Browser;
use orlop_lab::plan::{PlanPage, Unplanned};
use orlop_plan::{Buffer, Plan, Planner, Problem, ProblemBuilder};
use serde_json::{Value, json};
use std::fs::File;

const MIB: u64 = 1 << 20;

/// The place of the plot in the chart, without the axes.
const LEFT: u32 = 78;
const TOP: u32 = 8;

/// A name that would do harm if it were not text.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// 40 layers: each has a buffer that lives into the next, and two small ones.
fn layers() -> Problem {
    let mut builder = ProblemBuilder::new();
    builder.push_named(HOSTILE, Buffer::new(0..400, 8 * MIB)).expect("a buffer");
    for layer in 0..40 {
        let start = layer * 10;
        for (name, from, to, size) in [("residual", 0, 15, 4), ("hidden", 2, 6, 16), ("act", 5, 9, 8)] {
            let lifetime = start + from..(start + to).min(400);
            builder
                .push_named(&format!("{name}_{layer}"), Buffer::new(lifetime, size * MIB))
                .expect("a buffer");
        }
    }
    builder.finish()
}

struct PlanOnScreen {
    browser: Browser,
    problem: Problem,
    plan: Plan,
    _folder: tempfile::TempDir,
}

impl PlanOnScreen {
    fn open(problem: Problem) -> Option<Self> {
        let mut browser = Browser::start(1300, 800)?;
        let folder = tempfile::tempdir().expect("a directory");
        let plan = Planner::new().plan(&problem);
        let path = folder.path().join("plan.html");
        PlanPage::new(&problem, &plan)
            .title("A <plan>")
            .source("layers.onnx")
            .time_unit("step")
            .unplanned(Unplanned::of(&problem))
            .write(File::create(&path).expect("a file"))
            .expect("a page");
        browser.open(&path);
        Some(Self { browser, problem, plan, _folder: folder })
    }

    fn buffer(&self, name: &str) -> usize {
        let named = |&index: &usize| self.problem.name(index) == Some(name);
        (0..self.problem.len()).find(named).expect("a buffer of this name")
    }

    /// Returns the middle of a buffer's box, from the plan and what the axes show.
    fn middle(&mut self, name: &str) -> [f64; 2] {
        let index = self.buffer(name);
        let buffer = self.problem.buffers()[index];
        let time = (buffer.start + buffer.end) as f64 / 2.0;
        let offset = self.plan.offsets()[index] as f64 + buffer.size as f64 / 2.0;
        let place = self.browser.evaluate(&format!(
            "(() => {{ const box = document.getElementById('chart').getBoundingClientRect(); \
             const {{ view }} = orlopPlan; \
             return [box.x + {LEFT} + view.x({time}), box.y + {TOP} + view.y({offset})]; }})()"
        ));
        [0, 1].map(|part| place[part].as_f64().expect("a place"))
    }

    /// Returns the colour of the canvas at a place.
    fn colour(&mut self, [x, y]: [f64; 2]) -> Value {
        self.browser.evaluate(&format!(
            "(() => {{ const box = document.getElementById('chart').getBoundingClientRect(); \
             return [...document.getElementById('canvas').getContext('2d')\
             .getImageData({x} - box.x, {y} - box.y, 1, 1).data]; }})()"
        ))
    }

    /// Returns the length of the visible time, and of the visible offsets.
    fn spans(&mut self) -> [f64; 2] {
        let spans =
            self.browser.evaluate("(({ view }) => [view.x1 - view.x0, view.y1 - view.y0])(orlopPlan)");
        [0, 1].map(|part| spans[part].as_f64().expect("a length"))
    }
}

#[test]
fn a_plan_is_shown_and_explored() {
    let Some(mut page) = PlanOnScreen::open(layers()) else { return };
    assert_eq!(page.browser.text("#title"), "A <plan>");
    let cards = page.browser.text("#cards");
    for expected in ["36.0 MiB", "optimal", "121 buffers", "× the plan"] {
        assert!(cards.contains(expected), "{expected:?} in {cards}");
    }
    // Names that differ in a number are one group.
    let legend = page.browser.text("#legend");
    assert!(["residual", "hidden", "act", HOSTILE].iter().all(|name| legend.contains(name)), "{legend}");
    assert_eq!(legend.matches("hidden").count(), 1);

    // What is drawn is where the plan says, and names are texts.
    let at = page.middle(HOSTILE);
    page.browser.moves(at[0], at[1]);
    let tip = page.browser.text("#tip");
    assert!(
        tip.contains(HOSTILE) && tip.contains("8.00 MiB") && tip.contains("step 0 to 399 (400)"),
        "{tip}"
    );
    assert_eq!(page.browser.evaluate("document.images.length"), json!(0));
    for name in ["hidden_7", "residual_39", "act_20"] {
        let at = page.middle(name);
        page.browser.moves(at[0], at[1]);
        assert!(page.browser.text("#tip").contains(name), "{name}");
        assert_ne!(page.colour(at), json!([0, 0, 0, 0]), "{name} is drawn");
    }

    // The wheel zooms around the pointer; keys and buttons zoom and go back.
    let (all, at) = (page.spans(), page.middle("hidden_7"));
    page.browser.wheel(at[0], at[1], -600.0);
    let zoomed = page.spans();
    assert!(zoomed[0] < all[0] / 2.0 && zoomed[1] < all[1] / 2.0, "{all:?} to {zoomed:?}");
    let after = page.middle("hidden_7");
    // The pointer is at a whole pixel, from which the zoom moves away.
    assert!((after[0] - at[0]).abs() < 6.0 && (after[1] - at[1]).abs() < 6.0, "{at:?} to {after:?}");
    page.browser.key("+");
    assert!(page.spans()[0] < zoomed[0]);
    page.browser.key("0");
    assert_eq!(page.spans(), all);
    page.browser.clicks_on("#closer");
    assert!(page.spans()[0] < all[0]);
    page.browser.clicks_on("#fit");
    page.browser.frame();
    assert_eq!(page.spans(), all);

    // A click keeps a buffer; the buttons beside it lead to those that have its bytes before and after.
    let at = page.middle("hidden_7");
    page.browser.clicks(at[0], at[1]);
    let details = page.browser.text("#details");
    assert!(details.contains("hidden_7") && details.contains("16.0 MiB") && details.contains("bytes after"));
    page.browser.clicks_on("#details button");
    assert!(!page.browser.text("#details .what").contains("hidden_7"));

    // A search and a group dim the others.
    let at = page.middle("act_20");
    let before = page.colour(at);
    page.browser.key("/");
    page.browser.types("residual");
    page.browser.frame();
    assert_eq!(page.browser.text("#found"), "40 buffers");
    assert_ne!(page.colour(at), before, "what does not match is dimmed");
    assert_eq!(page.browser.complaints(), [""; 0]);
}

#[test]
fn plans_without_names_and_without_bytes_are_shown() {
    let unnamed =
        Problem::new((0..50).map(|at| Buffer::unaligned(at..at + 3, 1000 + at))).expect("a problem");
    let Some(mut page) = PlanOnScreen::open(unnamed) else { return };
    assert!(page.browser.text("#legend").contains("up to 1.00 KiB"));
    assert_eq!(page.browser.complaints(), [""; 0]);
    let nothing = Problem::new([Buffer::unaligned(3..4, 0)]).expect("a problem");
    let Some(page) = PlanOnScreen::open(nothing) else { return };
    assert_eq!(page.browser.complaints(), [""; 0]);
}
