//! Writing a profile of steps: a slice for each step, and the live bytes at its ends.

use super::super::Format;
use super::entry::{ArgumentValue, EntryWriter, PerfettoEntry};
use crate::{Result, TraceError};
use orlop_context::profile::StepMemory;
use orlop_core::MemoryKind;
use std::io::{self, Write};
use std::time::Duration;

/// The number of the process that the steps are shown under.
const PROCESS: u32 = 0;

/// Writes the finished steps of a profile, as [`MemorySteps::finished`] returns them: for each one a slice on
/// the track of its thread, which has its time on the host, and two samples of the counter `live bytes`, at
/// its start and at its end, with a series for each memory kind. Times are relative to the start of the
/// profile. The rows of a grouped table are sums, and no spans of time: do not write them.
///
/// | argument of a slice | unit |
/// |---|---|
/// | `host_ns` | nanoseconds, nested steps included |
/// | `device_ns` | nanoseconds on the device, of a step whose time there was measured |
/// | `allocations`, `frees` | blocks |
/// | `allocated_bytes`, `freed_bytes` | bytes, after rounding, as all below |
/// | `live_before`, `live_after`, `peak_bytes` | live bytes of all kinds |
/// | `order` | the index of the step, in order of start |
/// | `at` | file and line where the step starts |
///
/// [`MemorySteps::finished`]: orlop_context::profile::MemorySteps::finished
///
/// ```
/// use orlop_alloc::Request;
/// use orlop_context::{Context, profile::MemorySteps};
/// use orlop_core::Device;
/// use orlop_trace::formats::perfetto;
///
/// let context = Context::new();
/// let steps = MemorySteps::on(&context);
/// let step = steps.step("load");
/// let _weights = context.allocate(Device::CPU, &Request::new(1 << 20))?;
/// drop(step);
/// let mut json = Vec::new();
/// perfetto::write_steps(&steps.finished(), &mut json)?;
/// assert!(String::from_utf8_lossy(&json).contains(r#""name":"load","ph":"X""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`TraceError::Write`].
pub fn write_steps(steps: &[StepMemory], writer: impl Write) -> Result<()> {
    try_write(steps, writer).map_err(TraceError::write(Format::Perfetto))
}

fn try_write(steps: &[StepMemory], writer: impl Write) -> io::Result<()> {
    let mut out = EntryWriter::new(writer, 0)?;
    let name = ArgumentValue::Text("steps");
    out.put(PerfettoEntry::metadata("process_name", PROCESS).with("name", name))?;
    for step in steps {
        let at = format!("{}:{}", step.at.file(), step.at.line());
        out.put(slice(step, &at))?;
    }
    let mut samples: Vec<(u64, &StepMemory, bool)> = Vec::with_capacity(steps.len() * 2);
    for step in steps {
        samples.push((nanoseconds(step.begun), step, false));
        samples.push((nanoseconds(step.begun.saturating_add(step.host_time)), step, true));
    }
    samples.sort_by_key(|(time, ..)| *time);
    let kinds: Vec<MemoryKind> = MemoryKind::ALL.into_iter().filter(|&kind| is_used(steps, kind)).collect();
    for (time, step, is_end) in samples {
        let counter = PerfettoEntry::counter("live bytes", PROCESS, time);
        out.put(kinds.iter().fold(counter, |entry, &kind| {
            let stats = step.kind(kind);
            let live = if is_end { stats.live_after } else { stats.live_before };
            entry.with(kind.name(), ArgumentValue::Number(live))
        }))?;
    }
    out.finish()
}

fn slice<'a>(step: &'a StepMemory, at: &'a str) -> PerfettoEntry<'a> {
    let (begun, time) = (nanoseconds(step.begun), nanoseconds(step.host_time));
    let entry = PerfettoEntry::slice(&step.name, PROCESS, step.thread, begun, time);
    let numbers = [
        ("host_ns", time),
        ("allocations", step.all.allocations),
        ("frees", step.all.frees),
        ("allocated_bytes", step.all.allocated_bytes),
        ("freed_bytes", step.all.freed_bytes),
        ("live_before", step.all.live_before),
        ("live_after", step.all.live_after),
        ("peak_bytes", step.all.peak_bytes),
        ("order", step.order),
    ];
    let on_device = step.device_time.map(|time| ("device_ns", nanoseconds(time)));
    let put = |entry: PerfettoEntry<'a>, (name, number)| entry.with(name, ArgumentValue::Number(number));
    numbers.into_iter().chain(on_device).fold(entry, put).with("at", ArgumentValue::Text(at))
}

/// Returns `true` if a step used memory of this kind. The first kind is always written, so that the track is
/// there.
fn is_used(steps: &[StepMemory], kind: MemoryKind) -> bool {
    kind == MemoryKind::Default || steps.iter().any(|step| step.kind(kind).peak_bytes > 0)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
