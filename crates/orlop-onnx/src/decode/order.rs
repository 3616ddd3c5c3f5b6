//! An order in which nodes can be executed: the file's, if it is one, as ONNX requires.

use super::node::title;
use crate::OnnxError;
use crate::proto::NodeProto;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Returns the nodes' indices in such an order. `reads` has the names that each node reads, `writers` the
/// nodes that write them.
pub(super) fn sorted(
    nodes: &[NodeProto],
    reads: &[Vec<&str>],
    writers: &HashMap<&str, usize>,
) -> Result<Vec<usize>, OnnxError> {
    let writers_of = |reads: &[&str]| -> Vec<usize> {
        reads.iter().filter_map(|name| writers.get(name).copied()).collect()
    };
    let mut waits_for = Vec::with_capacity(nodes.len());
    let mut followers = vec![Vec::new(); nodes.len()];
    for (node, reads) in reads.iter().enumerate() {
        let writers = writers_of(reads);
        waits_for.push(writers.len());
        writers.iter().for_each(|&writer| followers[writer].push(node));
    }
    let first = (0..waits_for.len()).filter(|&node| waits_for[node] == 0).map(Reverse);
    let mut ready: BinaryHeap<_> = first.collect();
    let mut order = Vec::with_capacity(waits_for.len());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for &follower in &followers[node] {
            waits_for[follower] -= 1;
            if waits_for[follower] == 0 {
                ready.push(Reverse(follower));
            }
        }
    }
    let Some(mut node) = waits_for.iter().position(|&left| left > 0) else { return Ok(order) };
    // Each node that is left waits for another: against the edges, every way ends in a circle.
    let mut is_seen = vec![false; waits_for.len()];
    while !std::mem::replace(&mut is_seen[node], true) {
        let writers = writers_of(&reads[node]);
        node = writers.into_iter().find(|&writer| waits_for[writer] > 0).unwrap_or(node);
    }
    Err(OnnxError::Circle { node: title(&nodes[node]) })
}
