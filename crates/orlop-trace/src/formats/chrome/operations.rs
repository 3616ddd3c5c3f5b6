//! The call sites of a trace: the operations that were open on a thread when it allocated or freed.
//!
//! Memory events have no stacks. But the operations of a thread are complete events, nested in each other:
//! `aten::empty` in `aten::addmm` in `aten::linear` in the function that called it. The frames of a memory
//! event are the operations that are open at its time on its thread.
//!
//! The operations are sorted by time, and opened and closed once each while the memory events are processed.
//! They are expected to nest. If two overlap, because times are rounded or wrong, the later one is nested in
//! the earlier one if most of it is, and follows it otherwise.

use super::events::ChromeEvent;
use crate::history::{SiteId, Sites};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The maximum number of frames of a call site, the innermost: those of operators, and of Python up to a line
/// of the program.
const FRAMES: usize = 32;

/// The maximum number of open operations on a thread; deeper ones are ignored. Python's own limit is similar.
const OPEN: usize = 1024;

/// An operation of a thread, with its time.
#[derive(Debug, Clone, Copy)]
struct TimedOperation {
    begin: u64,
    end: u64,
    thread: u32,
    frame: u32,
}

/// The operations in the order of the file.
#[derive(Debug, Default)]
pub(super) struct OperationList {
    list: Vec<TimedOperation>,
}

/// The operations in order of time, with those open on each thread.
#[derive(Debug)]
pub(super) struct NestedOperations {
    list: Vec<TimedOperation>,
    threads: HashMap<u32, ThreadOperations>,
}

/// The operations of a thread.
#[derive(Debug)]
struct ThreadOperations {
    /// The index of the first operation that has not begun, and the end of the list.
    next: usize,
    end: usize,
    /// The end and the frame of each open operation, the outermost first. None ends later than one before it.
    open: Vec<(u64, u32)>,
}

impl OperationList {
    /// Adds an operation of a thread.
    pub(super) fn take(&mut self, entry: &ChromeEvent, thread: u32, sites: &mut Sites) {
        if !entry.name.is_empty() {
            let (begin, end) = (entry.time, entry.time.saturating_add(entry.duration));
            self.list.push(TimedOperation { begin, end, thread, frame: frame(&entry.name, sites) });
        }
    }

    /// Sorts the operations.
    pub(super) fn nested(self) -> NestedOperations {
        let mut list = self.list;
        // Of operations that begin together, the longest encloses the others.
        list.sort_by_key(|operation| (operation.thread, operation.begin, Reverse(operation.end)));
        let mut threads = HashMap::new();
        let mut next = 0;
        for of_thread in list.chunk_by(|a, b| a.thread == b.thread) {
            let end = next + of_thread.len();
            if let Some(operation) = of_thread.first() {
                threads.insert(operation.thread, ThreadOperations { next, end, open: Vec::new() });
            }
            next = end;
        }
        NestedOperations { list, threads }
    }
}

impl NestedOperations {
    /// Returns the operations that are open on a thread at a time, as a call site. For each thread the times
    /// must be in order.
    pub(super) fn site(&mut self, thread: u32, time: u64, sites: &mut Sites) -> SiteId {
        let Some(lane) = self.threads.get_mut(&thread) else { return SiteId::UNKNOWN };
        let waiting = self.list.get(lane.next..lane.end).unwrap_or_default();
        for operation in waiting.iter().take_while(|operation| operation.begin <= time) {
            lane.begin(operation);
            lane.next += 1;
        }
        while lane.open.pop_if(|(end, _)| *end < time).is_some() {}
        let frames: Vec<u32> = lane.open.iter().rev().take(FRAMES).map(|&(_, frame)| frame).collect();
        sites.stack(&frames)
    }
}

impl ThreadOperations {
    fn begin(&mut self, operation: &TimedOperation) {
        let &TimedOperation { begin, end, frame, .. } = operation;
        let is_over = |last: &mut (u64, u32)| {
            let within = last.0.saturating_sub(begin);
            within == 0 || within < end.saturating_sub(last.0)
        };
        while self.open.pop_if(is_over).is_some() {}
        let end = self.open.last().map_or(end, |&(around, _)| end.min(around));
        if self.open.len() < OPEN {
            self.open.push((end, frame));
        }
    }
}

/// Returns the frame of an operation. Python functions are named `file.py(line): function`.
fn frame(name: &str, sites: &mut Sites) -> u32 {
    let python = name.split_once("): ").and_then(|(place, function)| {
        let (file, line) = place.rsplit_once('(')?;
        Some((function, file, line.parse::<u32>().ok()?))
    });
    if let Some((function, file, line)) = python {
        return sites.frame(function, file, line);
    }
    // `<built-in method linear of type object at 0x7f…>`: the address differs between runs.
    match name.split_once(" at 0x").filter(|_| name.starts_with("<built-in ")) {
        Some((method, _)) => sites.frame(&format!("{method}>"), "??", 0),
        None => sites.frame(name, "??", 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Frame;

    /// Operations of one thread by name, time and length.
    fn nested(operations: &[(&str, u64, u64)], sites: &mut Sites) -> NestedOperations {
        let mut list = OperationList::default();
        for &(name, time, duration) in operations {
            let entry = ChromeEvent { name: name.into(), time, duration, ..ChromeEvent::default() };
            list.take(&entry, 7, sites);
        }
        list.nested()
    }

    fn named(sites: &Sites, site: SiteId) -> Vec<&str> {
        sites.frames(site).map(|frame| sites.name(frame.function)).collect()
    }

    /// Returns the operations that are open at each of these times, innermost first.
    fn at(operations: &[(&str, u64, u64)], times: &[u64]) -> Vec<String> {
        let mut sites = Sites::default();
        let mut nested = nested(operations, &mut sites);
        let open = |&time: &u64| {
            let site = nested.site(7, time, &mut sites);
            named(&sites, site).join(" ")
        };
        times.iter().map(open).collect()
    }

    #[test]
    fn the_innermost_comes_first() {
        let operations = [("b", 10, 80), ("c", 20, 10), ("d", 40, 10), ("a", 0, 100), ("e", 10, 80)];
        let open = at(&operations, &[0, 9, 15, 20, 30, 31, 45, 90, 91, 100, 101, 1000]);
        let expected =
            ["a", "a", "e b a", "c e b a", "c e b a", "e b a", "d e b a", "e b a", "a", "a", "", ""];
        assert_eq!(open, expected);
    }

    #[test]
    fn later_operations_are_not_nested() {
        // To the nanosecond, and slightly too early.
        let operations = [("a", 0, 10), ("b", 10, 10), ("c", 19, 11), ("d", 29, 1)];
        assert_eq!(at(&operations, &[5, 10, 15, 19, 25, 30]), ["a", "b", "b", "c", "c", "d c"]);
        // Slightly too long: it ends with the enclosing one.
        assert_eq!(at(&[("a", 0, 10), ("b", 2, 9)], &[10, 11]), ["b a", ""]);
    }

    #[test]
    fn deep_nesting_takes_linear_time() {
        let count = 50_000;
        // Each begins later and ends later; each begins later and ends earlier; all the same.
        for length in [|_| 1 << 30, |place| (1 << 30) - 2 * place, |_| 0] {
            let operations: Vec<_> = (0..count).map(|place| ("a", place, length(place))).collect();
            let times: Vec<u64> = (0..count).collect();
            assert_eq!(at(&operations, &times).len(), times.len());
        }
        let mut sites = Sites::default();
        let operations: Vec<_> = (0..count).map(|place| ("a", place, 2 * (count - place))).collect();
        let mut nested = nested(&operations, &mut sites);
        let site = nested.site(7, count, &mut sites);
        assert_eq!(sites.frames(site).len(), FRAMES);
        assert_eq!(nested.threads[&7].open.len(), OPEN);
        assert_eq!(nested.site(8, 0, &mut sites), SiteId::UNKNOWN);
    }

    #[test]
    fn functions_of_python_have_lines() {
        let mut sites = Sites::default();
        let names = [
            "torch/nn/modules/module.py(1518): _call_impl",
            "<string>(2): __init__",
            "<built-in method linear of type object at 0x7f31a8>",
            "aten::add(x): y",
            "step (3)",
        ];
        let frames: Vec<u32> = names.iter().map(|name| frame(name, &mut sites)).collect();
        let site = sites.stack(&frames);
        let line = |frame: Frame| match sites.name(frame.file) {
            "" | "??" => sites.name(frame.function).to_owned(),
            file => format!("{file}:{} {}", frame.line, sites.name(frame.function)),
        };
        assert_eq!(
            sites.frames(site).map(line).collect::<Vec<_>>(),
            [
                "torch/nn/modules/module.py:1518 _call_impl",
                "<string>:2 __init__",
                "<built-in method linear of type object>",
                "aten::add(x): y",
                "step (3)"
            ]
        );
    }
}
