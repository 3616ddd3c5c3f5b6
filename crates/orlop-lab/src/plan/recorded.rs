//! The planning problem of a recording.

use crate::analyze::{LIVE_AT_START, SiteName};
use orlop_plan::{Buffer, Problem, ProblemBuilder, ProblemError};
use orlop_trace::history::{DeviceHistory, History, SiteId, WorkStep, Workload};
use std::collections::HashMap;

/// Returns the problem whose buffers are the allocations of a device, with the names of their tags or call
/// sites.
///
/// Times are events, counted from 1; at 0 are the blocks that were live before. What is never freed is live
/// to the end, and a block that a stream still uses after its free is live until that is complete. Requests
/// that failed are no buffers.
///
/// # Errors
///
/// [`ProblemError`] if the sizes exceed 64 bits.
pub fn recorded_problem(history: &History, device: &DeviceHistory) -> Result<Problem, ProblemError> {
    let work = Workload::of(device);
    let time = |step: usize| u64::from(work.events[step]) + 1;
    let end = device.events.len() as u64 + 1;
    let mut completed: HashMap<u32, u64> = HashMap::new();
    for (step, what) in work.steps.iter().enumerate() {
        if let WorkStep::Completed(block) = *what {
            completed.insert(block, time(step));
        }
    }
    let mut names: HashMap<SiteId, String> = HashMap::new();
    let mut builder = ProblemBuilder::new();
    for (id, block) in (0..).zip(&work.blocks) {
        let stop = match block.died {
            Some(_) if block.stays_pending => completed.get(&id).copied(),
            died => died.map(time),
        };
        let start = block.born.map_or(0, time);
        let buffer = Buffer::new(start..stop.unwrap_or(end), block.bytes);
        let tag = history.sites.name(block.text);
        let site = || SiteName::of(&history.sites, block.site);
        let name = if block.born.is_none() && tag.is_empty() && site().is_empty() {
            LIVE_AT_START
        } else if tag.is_empty() {
            names.entry(block.site).or_insert_with(|| site().display(&history.sites).to_string())
        } else {
            tag
        };
        builder.push_named(name, buffer)?;
    }
    Ok(builder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_trace::history::{EventAction, HistoryEvent};

    #[test]
    fn buffers_are_allocations_with_their_events() {
        use EventAction::{Allocate, FreeCompleted, FreeRequested, OutOfMemory, Use};
        let events = [
            (Allocate, 0, 512),
            (OutOfMemory, 0, 9999),
            (Allocate, 4096, 100),
            (Use, 4096, 100),
            (FreeRequested, 0, 512),
            (FreeCompleted, 0, 512),
            (FreeRequested, 4096, 100),
            (Allocate, 0, 7),
            (FreeCompleted, 4096, 100),
        ];
        let events = events.map(|(action, address, bytes)| HistoryEvent::new(action, address, bytes));
        let mut history = History::default();
        let tag = history.sites.text("weights");
        let mut device = DeviceHistory::from_events(events.to_vec());
        device.events[0].text = tag;
        let problem = recorded_problem(&history, &device).unwrap();
        let times: Vec<_> =
            problem.buffers().iter().map(|buffer| (buffer.start, buffer.end, buffer.size)).collect();
        // The second waits for its stream; the third is never freed.
        assert_eq!(times, [(1, 5, 512), (3, 9, 100), (8, 10, 7)]);
        assert_eq!(problem.name(0), Some("weights"));
    }
}
