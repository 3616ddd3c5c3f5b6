//! The table of steps: sorted, cut, grouped.

use super::shapes::{ShapeStats, ShapeTotals};
use super::step::{StepMemory, StepStats};
use super::table::Table;
use crate::context::sum_bytes;
use orlop_core::{ByteSize, MemoryKind};
use std::cmp::Reverse;
use std::fmt;
use std::mem;

/// The columns of the table, and which of them is hidden without device times.
const COLUMNS: usize = 12;
const DEVICE_TIME: usize = 4;

/// The sort order of rows: by time or by statistics over all memory kinds, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StepOrder {
    /// In the order in which they started, nested steps indented.
    #[default]
    Begun,
    /// By the time on the host.
    HostTime,
    /// By the time on the device. Steps without one are last.
    DeviceTime,
    /// By the peak of live bytes.
    Peak,
    /// By the growth of live bytes.
    Growth,
    /// By allocated bytes.
    Allocated,
    /// By the number of allocations.
    Allocations,
}

/// The table of a [`MemorySteps`](super::MemorySteps). `orlop_trace::formats::perfetto::write_steps` writes
/// the steps for ui.perfetto.dev and chrome://tracing.
///
/// ```
/// use orlop_context::profile::{MemorySteps, StepOrder};
/// use orlop_alloc::Request;
/// use orlop_context::Context;
/// use orlop_core::Device;
///
/// let (context, mut kept) = (Context::new(), Vec::new());
/// let steps = MemorySteps::on(&context);
/// for layer in 0..3 {
///     let _step = steps.step("layer");
///     kept.push(context.allocate(Device::CPU, &Request::new(1 << 20 << layer))?);
/// }
/// let table = steps.table().sort_by(StepOrder::Growth).top(1);
/// assert_eq!(table.rows()[0].order, 2);
/// assert!(table.to_string().contains("4.00 MiB"));
/// assert_eq!(steps.table().grouped().rows()[0].times, 3);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct StepTable {
    steps: Vec<StepMemory>,
    order: StepOrder,
    top: Option<usize>,
    by_kind: bool,
    shapes: usize,
}

impl StepTable {
    /// Creates a table of steps, which are in the order in which they started.
    pub(super) fn new(steps: Vec<StepMemory>) -> Self {
        Self { steps, order: StepOrder::Begun, top: None, by_kind: false, shapes: 0 }
    }

    /// Sorts the rows.
    pub fn sort_by(mut self, order: StepOrder) -> Self {
        self.order = order;
        self
    }

    /// Limits the table to `rows` rows.
    pub fn top(mut self, rows: usize) -> Self {
        self.top = Some(rows);
        self
    }

    /// Adds a row for each memory kind below that of each step.
    pub fn by_kind(mut self) -> Self {
        self.by_kind = true;
        self
    }

    /// Adds rows for the `max` largest shapes below that of each step, and one for the remaining shapes. They
    /// are sorted by bytes, or by allocations if the steps are. Shapes are known with
    /// [`MemorySteps::record_shapes`](super::MemorySteps::record_shapes).
    pub fn by_shape(mut self, max: usize) -> Self {
        self.shapes = max;
        self
    }

    /// Merges steps of the same name, place and depth into one row: sums, the time too, the highest peak, the
    /// live bytes before the first and after the last.
    pub fn grouped(mut self) -> Self {
        let mut groups: Vec<StepMemory> = Vec::new();
        for step in self.steps {
            let like = |group: &&mut StepMemory| {
                (&group.name, group.at, group.depth) == (&step.name, step.at, step.depth)
            };
            match groups.iter_mut().find(like) {
                Some(group) => {
                    group.times += step.times;
                    group.host_time = group.host_time.saturating_add(step.host_time);
                    let both = group.device_time.zip(step.device_time);
                    group.device_time = both.map(|(sum, time)| sum.saturating_add(time));
                    let mut shapes = ShapeTotals::default();
                    shapes.add_all(mem::take(&mut group.shapes));
                    shapes.add_all(step.shapes);
                    group.shapes = shapes.sorted();
                    group.all.merge(&step.all);
                    for (sum, stats) in group.kinds.iter_mut().zip(&step.kinds) {
                        sum.merge(stats);
                    }
                }
                None => groups.push(step),
            }
        }
        self.steps = groups;
        self
    }

    /// Returns the rows, sorted and cut.
    #[must_use]
    pub fn rows(&self) -> Vec<&StepMemory> {
        let mut rows: Vec<&StepMemory> = self.steps.iter().collect();
        // Stable: equal rows stay in the order in which they started.
        match self.order {
            StepOrder::Begun => {}
            StepOrder::HostTime => rows.sort_by_key(|step| Reverse(step.host_time)),
            StepOrder::DeviceTime => rows.sort_by_key(|step| Reverse(step.device_time)),
            StepOrder::Peak => rows.sort_by_key(|step| Reverse(step.all.peak_bytes)),
            StepOrder::Growth => rows.sort_by_key(|step| Reverse(step.all.growth())),
            StepOrder::Allocated => rows.sort_by_key(|step| Reverse(step.all.allocated_bytes)),
            StepOrder::Allocations => rows.sort_by_key(|step| Reverse(step.all.allocations)),
        }
        rows.truncate(self.top.unwrap_or(usize::MAX));
        rows
    }
}

impl StepTable {
    /// Returns name, allocations and bytes of the shapes to show for a step.
    fn shape_rows(&self, step: &StepMemory) -> Vec<(String, u64, u64)> {
        let mut shapes: Vec<&ShapeStats> =
            if self.shapes == 0 { Vec::new() } else { step.shapes.iter().collect() };
        if self.order == StepOrder::Allocations {
            shapes.sort_by_key(|shape| Reverse(shape.allocations));
        }
        let others = shapes.split_off(shapes.len().min(self.shapes));
        let name = |shape: &ShapeStats| (shape.shape.to_string(), shape.allocations, shape.allocated_bytes);
        let mut rows: Vec<_> = shapes.into_iter().map(name).collect();
        if !others.is_empty() {
            let sum = |of: fn(&ShapeStats) -> u64| sum_bytes(others.iter().map(|shape| of(shape)));
            let (allocations, bytes) = (sum(|shape| shape.allocations), sum(|shape| shape.allocated_bytes));
            let more = match others.len() {
                1 => "1 more shape".to_owned(),
                more => format!("{more} more shapes"),
            };
            rows.push((more, allocations, bytes));
        }
        rows
    }
}

impl fmt::Display for StepTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(
            &[0, 1],
            [
                "step",
                "at",
                "times",
                "host time",
                "device time",
                "allocs",
                "frees",
                "allocated",
                "freed",
                "before",
                "after",
                "peak",
            ],
        );
        let rows = self.rows();
        for step in &rows {
            let depth = if self.order == StepOrder::Begun { step.depth } else { 0 };
            let indent = "  ".repeat(depth);
            let at = format!("{}:{}", step.at.file(), step.at.line());
            let device_time = step.device_time.map_or_else(String::new, |time| format!("{time:.2?}"));
            let times = [step.times.to_string(), format!("{:.2?}", step.host_time), device_time];
            table.row(cells(format!("{indent}{}", step.name), at, times, &step.all));
            let kinds = if self.by_kind { &MemoryKind::ALL[..] } else { &[] };
            for &kind in kinds.iter().filter(|kind| !step.kind(**kind).is_idle()) {
                table.row(cells(
                    format!("{indent}  · {kind}"),
                    String::new(),
                    Default::default(),
                    step.kind(kind),
                ));
            }
            for (name, allocations, bytes) in self.shape_rows(step) {
                let mut cells: [String; COLUMNS] = Default::default();
                cells[0] = format!("{indent}  · {name}");
                (cells[5], cells[7]) = (allocations.to_string(), ByteSize(bytes).to_string());
                table.row(cells);
            }
        }
        if self.steps.iter().all(|step| step.device_time.is_none()) {
            table.hide(DEVICE_TIME);
        }
        table.fmt(f)?;
        match self.steps.len() - rows.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

fn cells(
    name: String,
    at: String,
    [times, host_time, device_time]: [String; 3],
    stats: &StepStats,
) -> [String; COLUMNS] {
    let bytes = |bytes| ByteSize(bytes).to_string();
    [
        name,
        at,
        times,
        host_time,
        device_time,
        stats.allocations.to_string(),
        stats.frees.to_string(),
        bytes(stats.allocated_bytes),
        bytes(stats.freed_bytes),
        bytes(stats.live_before),
        bytes(stats.live_after),
        bytes(stats.peak_bytes),
    ]
}
