//! The check against a brute-force model: every pair of accesses, and a graph of what is ordered.

use orlop_race::{AccessKind, AccessMap, HOST_QUEUE, VectorClock, WorkOrder};

/// A small pseudo-random generator, so that the crate has no dependencies.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % end
    }
}

/// Accesses and waits as a graph: `before[i]` are the nodes that node `i` directly follows.
#[derive(Default)]
struct Graph {
    before: Vec<Vec<usize>>,
    accesses: Vec<(usize, std::ops::Range<usize>, AccessKind)>,
}

impl Graph {
    fn add(&mut self, before: Vec<usize>) -> usize {
        self.before.push(before);
        self.before.len() - 1
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.before.len()];
        let mut open = vec![to];
        while let Some(node) = open.pop() {
            if node == from {
                return true;
            }
            if !std::mem::replace(&mut seen[node], true) {
                open.extend(&self.before[node]);
            }
        }
        false
    }

    fn races(&self, node: usize, bytes: &std::ops::Range<usize>, kind: AccessKind) -> bool {
        self.accesses.iter().any(|(earlier, other, other_kind)| {
            let conflict = kind == AccessKind::Write || *other_kind == AccessKind::Write;
            let overlap = other.start < bytes.end && bytes.start < other.end;
            conflict && overlap && !self.reaches(*earlier, node)
        })
    }
}

#[test]
fn the_first_race_of_random_programs_is_the_model_s() {
    let (mut with_race, mut without, mut reused) = (0, 0, 0);
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let (mut order, mut memory, mut graph) = (WorkOrder::new(), AccessMap::default(), Graph::default());
        let mut queues: Vec<usize> =
            std::iter::once(HOST_QUEUE).chain((0..3).map(|_| order.add_queue())).collect();
        let mut last: Vec<usize> = queues.iter().map(|_| graph.add(Vec::new())).collect();
        let mut events: Vec<(VectorClock, usize)> = Vec::new();
        let mut found = false;
        for _ in 0..40 {
            let which = numbers.below(queues.len());
            if which > 0 && numbers.below(8) == 0 {
                // The stream ends, and another begins: in its place if its number is reused.
                order.retire_queue(queues[which]);
                queues[which] = order.add_queue();
                last[which] = graph.add(Vec::new());
                reused += usize::from(queues[which] <= 3);
            }
            let queue = queues[which];
            // The host's program order comes before whatever it submits.
            let before = vec![last[which], last[0]];
            match numbers.below(5) {
                0 => {
                    let node = graph.add(before);
                    last[which] = node;
                    events.push((order.record(queue), node));
                }
                1 | 2 if !events.is_empty() => {
                    let (clock, recorded) = &events[numbers.below(events.len())];
                    order.wait(queue, clock);
                    last[which] = graph.add(vec![last[which], *recorded]);
                }
                _ => {
                    let start = numbers.below(300);
                    let bytes = start..start + 1 + numbers.below(12);
                    let kind = if numbers.below(3) == 0 { AccessKind::Write } else { AccessKind::Read };
                    let node = graph.add(before);
                    last[which] = node;
                    let expected = graph.races(node, &bytes, kind);
                    let work = order.submit(queue);
                    let race = memory.access(&order, bytes.clone(), kind, work, node);
                    assert_eq!(race.is_some(), expected, "seed {seed}, node {node}, {bytes:?} {kind:?}");
                    if let Some((range, _, earlier)) = race {
                        assert!(range.start >= bytes.start && range.end <= bytes.end && !range.is_empty());
                        assert!(!graph.reaches(earlier, node));
                        found = true;
                        break;
                    }
                    graph.accesses.push((node, bytes, kind));
                }
            }
        }
        *(if found { &mut with_race } else { &mut without }) += 1;
    }
    // Both outcomes occur, so that the check is one.
    assert!(with_race > 50 && without > 5 && reused > 50, "{with_race} {without} {reused}");
}

#[test]
fn a_retired_queue_is_reused_only_when_the_host_knows_its_work() {
    let mut order = WorkOrder::new();
    let mut memory = AccessMap::default();
    let queue = order.add_queue();
    let work = order.submit(queue);
    memory.access(&order, 0..8, AccessKind::Write, work, ());
    let done = order.record(queue);
    order.retire_queue(queue);
    let other = order.add_queue();
    assert_ne!(other, queue);
    assert!(memory.conflict(&order, 0..8, AccessKind::Read, other).is_some());
    order.wait(HOST_QUEUE, &done);
    assert!(order.host_knows(&done));
    assert_eq!(order.add_queue(), queue);
    assert_eq!(order.queues(), 3);
}

#[test]
fn forgotten_memory_has_no_past() {
    let mut order = WorkOrder::new();
    let mut memory = AccessMap::default();
    let (a, b) = (order.add_queue(), order.add_queue());
    let work = order.submit(a);
    memory.access(&order, 0..100, AccessKind::Write, work, ());
    memory.forget(10..90);
    assert_eq!(memory.segments(), 2);
    let work = order.submit(b);
    assert!(memory.access(&order, 10..90, AccessKind::Write, work, ()).is_none());
    assert!(memory.conflict(&order, 5..95, AccessKind::Read, b).is_some());
    assert!(memory.conflict(&order, 20..20, AccessKind::Write, a).is_none());
}

#[test]
fn atomic_updates_race_with_everything_but_each_other() {
    let mut order = WorkOrder::new();
    let mut memory = AccessMap::default();
    let (a, b, c) = (order.add_queue(), order.add_queue(), order.add_queue());
    let access = |memory: &mut AccessMap<&'static str>, order: &mut WorkOrder, queue, kind, tag| {
        let work = order.submit(queue);
        memory.access(order, 0..8, kind, work, tag).map(|(_, kind, tag)| (kind, tag))
    };
    use AccessKind::{Atomic, Read, Write};
    assert_eq!(access(&mut memory, &mut order, a, Atomic, "update on a"), None);
    assert_eq!(access(&mut memory, &mut order, b, Atomic, "update on b"), None);
    assert_eq!(access(&mut memory, &mut order, c, Read, "read on c"), Some((Atomic, "update on a")));
    assert_eq!(access(&mut memory, &mut order, a, Atomic, "update on a"), Some((Read, "read on c")));
    // Ordered after one of them only.
    let event = order.record(a);
    order.wait(c, &event);
    assert_eq!(access(&mut memory, &mut order, c, Write, "write on c"), Some((Atomic, "update on b")));
    assert_eq!(access(&mut memory, &mut order, b, Atomic, "update on b"), Some((Write, "write on c")));
}
