//! A page that shows a plan: time to the right, offsets upwards, a box for each buffer.
//!
//! Like the reports, it is one file without references to others, and computes everything from columns of
//! numbers.

use super::Unplanned;
use crate::html::PageTemplate;
use crate::{LabError, Result};
use orlop_plan::{Plan, Problem};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{BufWriter, Write};

const PAGE: PageTemplate = PageTemplate {
    html: include_str!("page/index.html"),
    // The style of the reports, and what is different here.
    styles: &[include_str!("../report/page/style.css"), include_str!("page/style.css")],
    scripts: &[
        include_str!("../report/page/format.js"),
        include_str!("page/packing.js"),
        include_str!("page/chart.js"),
        include_str!("page/main.js"),
    ],
};

/// The contents and options of a page that shows a plan.
///
/// ```
/// use orlop_lab::plan::PlanPage;
/// use orlop_plan::{Buffer, Problem, Planner};
///
/// let problem = Problem::new([Buffer::new(0..2, 1000), Buffer::new(1..3, 500)])?;
/// let mut page = Vec::new();
/// PlanPage::new(&problem, &Planner::new().plan(&problem)).title("Two buffers").write(&mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct PlanPage<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    title: &'a str,
    source: &'a str,
    time_unit: &'a str,
    unplanned: Option<Unplanned>,
}

/// What the page is made from.
#[derive(Serialize)]
struct PageData<'a> {
    title: &'a str,
    source: &'a str,
    unit: &'a str,
    peak: u64,
    bound: u64,
    verdict: String,
    unplanned: Option<Unplanned>,
    names: Vec<&'a str>,
    /// By buffer, the index of its name.
    name: Vec<usize>,
    start: Vec<u64>,
    end: Vec<u64>,
    size: Vec<u64>,
    offset: &'a [u64],
}

impl<'a> PlanPage<'a> {
    /// Creates a page that shows a plan of this problem.
    #[must_use]
    pub fn new(problem: &'a Problem, plan: &'a Plan) -> Self {
        Self { problem, plan, title: "Memory plan", source: "", time_unit: "time", unplanned: None }
    }

    /// Sets the title of the page.
    #[must_use]
    pub fn title(mut self, title: &'a str) -> Self {
        self.title = title;
        self
    }

    /// Sets the source of the problem: a file name, and what is known about it.
    #[must_use]
    pub fn source(mut self, source: &'a str) -> Self {
        self.source = source;
        self
    }

    /// Sets what a unit of time is, such as `step`.
    #[must_use]
    pub fn time_unit(mut self, unit: &'a str) -> Self {
        self.time_unit = unit;
        self
    }

    /// Adds what the buffers take without a plan.
    #[must_use]
    pub fn unplanned(mut self, unplanned: Unplanned) -> Self {
        self.unplanned = Some(unplanned);
        self
    }

    /// Writes the page.
    ///
    /// # Errors
    ///
    /// [`LabError::Write`]
    pub fn write(&self, writer: impl Write) -> Result<()> {
        // No text ends the element.
        let data = |out: &mut BufWriter<_>| {
            out.write_all(serde_json::to_string(&self.data())?.replace('<', "\\u003c").as_bytes())
        };
        PAGE.write(self.title, writer, data).map_err(|error| LabError::Write { error })
    }

    fn data(&self) -> PageData<'a> {
        let (mut names, mut index_of) = (Vec::new(), HashMap::new());
        let mut number = |index: usize| {
            let name = self.problem.name(index).unwrap_or_default();
            *index_of.entry(name).or_insert_with(|| {
                names.push(name);
                names.len() - 1
            })
        };
        let buffers = self.problem.buffers();
        let name = (0..buffers.len()).map(&mut number).collect();
        PageData {
            title: self.title,
            source: self.source,
            unit: self.time_unit,
            peak: self.plan.height(),
            bound: self.plan.lower_bound(),
            verdict: self.plan.verdict().to_string(),
            unplanned: self.unplanned,
            names,
            name,
            start: buffers.iter().map(|buffer| buffer.start).collect(),
            end: buffers.iter().map(|buffer| buffer.end).collect(),
            size: buffers.iter().map(|buffer| buffer.size).collect(),
            offset: self.plan.offsets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_plan::{Buffer, Planner, ProblemBuilder};

    #[test]
    fn a_page_is_self_contained_and_escapes_texts() {
        let mut builder = ProblemBuilder::new();
        builder.push_named("</script><script>alert(1)</script>", Buffer::new(0..1, 8)).unwrap();
        let problem = builder.finish();
        let plan = Planner::new().plan(&problem);
        let mut page = Vec::new();
        PlanPage::new(&problem, &plan).title("a <b> & \"c\"").source("</title>").write(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"));
        assert_eq!(page.matches("</script>").count(), 2, "one of the data, one of the program");
        for outside in ["http://", "https://", "@import", "src=", "orlop:"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
