//! Graphs: captured operations, submitted again by each launch.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::state::graph::{Graph, GraphNode, NodeSet, SubmittedNode};
use crate::state::stream::{NON_BLOCKING, Stream};
use crate::state::work::{Submission, Work};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Driver {
    /// Submits the operations of a graph, each branch to a stream of its own.
    pub(crate) fn launch_graph(&mut self, handle: u64, stream: u64) -> Outcome {
        let executable = self.executables.get(&handle).ok_or(Failure::INVALID_HANDLE)?.clone();
        let graph = executable.graph;
        if self.stream(stream)?.capture.is_some() {
            return self.capture_graph(&graph, stream);
        }
        self.refuse_implicit(stream)?;
        // The first node of every branch follows this one.
        let entry =
            self.submit_node(stream, &Submission::new("cuGraphLaunch", Work::Nothing, Vec::new()), &[])?;
        let start: Vec<SubmittedNode> = std::iter::once(entry).chain(executable.last).collect();
        let mut lanes: BTreeMap<u64, u64> = BTreeMap::new();
        let mut submitted: Vec<SubmittedNode> = Vec::new();
        for node in &graph.nodes {
            let lane = match lanes.get(&node.branch) {
                Some(&lane) => lane,
                None => {
                    let lane = self.add_stream(graph.device, Stream::new(NON_BLOCKING, 0));
                    lanes.insert(node.branch, lane);
                    lane
                }
            };
            let after: Vec<SubmittedNode> = match node.after.is_empty() {
                true => start.clone(),
                false => node.after.iter().map(|&index| submitted[index].clone()).collect(),
            };
            let node = self.submit_node(lane, &node.submission, &after)?;
            submitted.push(node);
        }
        submitted.extend(start);
        let exit = Submission::new("cuGraphLaunch", Work::Nothing, Vec::new());
        let last = self.submit_node(stream, &exit, &submitted)?;
        for lane in lanes.into_values() {
            self.destroy_stream(lane)?;
        }
        if let Some(executable) = self.executables.get_mut(&handle) {
            executable.last = Some(last);
        }
        Ok(())
    }

    fn submit_node(
        &mut self,
        stream: u64,
        submission: &Submission,
        after: &[SubmittedNode],
    ) -> Outcome<SubmittedNode> {
        let queue = self.stream(stream)?.queue;
        for node in after {
            self.order.wait(queue, &node.clock);
        }
        let waits = after.iter().map(|node| (node.stream, node.position)).collect();
        self.push(stream, submission.clone(), waits)?;
        let position = self.stream(stream)?.submitted;
        Ok(SubmittedNode { stream, position, clock: self.order.record(queue) })
    }

    /// Adds the nodes of a graph to a capture.
    fn capture_graph(&mut self, graph: &Graph, stream: u64) -> Outcome {
        let Some((id, start)) = self.stream(stream)?.capture.clone() else {
            return Err(Failure::ILLEGAL_STATE);
        };
        self.check_capture(id)?;
        let capture = self.captures.get_mut(&id).ok_or(Failure::STREAM_CAPTURE_INVALIDATED)?;
        let (first, mut ends) = (capture.graph.nodes(), start.clone());
        for (index, node) in graph.nodes.iter().enumerate() {
            let inner: NodeSet = node.after.iter().map(|index| first + index).collect();
            let after = if inner.is_empty() { start.clone() } else { inner };
            capture.graph.add(GraphNode { after, ..node.clone() });
            ends.insert(first + index);
        }
        self.stream_mut(stream)?.capture = Some((id, ends));
        Ok(())
    }

    /// Frees the memory of a graph if nothing else refers to it.
    pub(crate) fn drop_graph(&mut self, graph: Arc<Graph>) {
        if let Some(graph) = Arc::into_inner(graph) {
            for address in graph.memory {
                // It was allocated by the capture, so that it is there.
                let freed = self.release_memory(address);
                debug_assert!(freed.is_ok(), "memory of a graph is freed once");
            }
        }
    }
}
