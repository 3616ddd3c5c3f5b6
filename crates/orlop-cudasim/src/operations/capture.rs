//! Stream capture: operations become nodes of a graph, and calls that a capture forbids are refused.
//!
//! A call that is illegal because of a capture fails and invalidates the capture; ending it then fails too.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::state::capture::{
    Capture, GLOBAL, RELAXED, STATUS_ACTIVE, STATUS_INVALIDATED, STATUS_NONE, thread_mode,
};
use crate::state::graph::{Graph, GraphNode, NodeSet};
use crate::state::host_thread::thread;
use crate::state::work::Submission;
use std::sync::Arc;

impl Driver {
    /// Refuses a call that may wait for streams, if a capture forbids those to this thread.
    pub(crate) fn refuse_in_capture(&mut self) -> Outcome {
        let (mode, thread) = (thread_mode(), thread());
        if mode == RELAXED || self.captures.is_empty() {
            return Ok(());
        }
        let forbids = |capture: &Capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            own || (mode == GLOBAL && capture.mode == GLOBAL)
        };
        let mut refused = false;
        for capture in self.captures.values_mut().filter(|capture| forbids(capture)) {
            capture.is_invalid = true;
            refused = true;
        }
        if refused { Err(Failure::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses a call on a stream that captures.
    pub(crate) fn refuse_capturing(&mut self, stream: u64) -> Outcome {
        if let Some((capture, _)) = self.stream(stream)?.capture {
            self.invalidate(capture);
            return Err(Failure::STREAM_CAPTURE_UNSUPPORTED);
        }
        self.refuse_implicit(stream)
    }

    /// Refuses work in the legacy default stream while a stream that it would wait for captures.
    pub(crate) fn refuse_implicit(&mut self, stream: u64) -> Outcome {
        let captures = self.implicit_captures(stream)?;
        for capture in &captures {
            self.invalidate(*capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(Failure::STREAM_CAPTURE_IMPLICIT) }
    }

    /// Refuses to tell whether the legacy default stream captures while a stream that it would wait for does.
    /// That capture goes on.
    pub(crate) fn refuse_implicit_query(&self, stream: u64) -> Outcome {
        let captures = self.implicit_captures(stream)?;
        if captures.is_empty() { Ok(()) } else { Err(Failure::STREAM_CAPTURE_IMPLICIT) }
    }

    /// Returns the captures of the streams that a stream waits for as the legacy default one.
    fn implicit_captures(&self, stream: u64) -> Outcome<Vec<u64>> {
        let found = self.stream(stream)?;
        if !found.is_legacy || self.captures.is_empty() {
            return Ok(Vec::new());
        }
        let device = found.device;
        let blocking = self.streams.values().filter(|other| other.device == device && other.is_blocking());
        Ok(blocking.filter_map(|other| other.capture.as_ref().map(|(capture, _)| *capture)).collect())
    }

    /// Refuses a call that waits for a whole device while a stream of it captures.
    pub(crate) fn refuse_device_capturing(&mut self, device: usize) -> Outcome {
        let streams = self.streams.values().filter(|stream| stream.device == device);
        let captures: Vec<u64> =
            streams.filter_map(|stream| stream.capture.as_ref().map(|(capture, _)| *capture)).collect();
        for capture in &captures {
            self.invalidate(*capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(Failure::STREAM_CAPTURE_UNSUPPORTED) }
    }

    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_invalid = true;
        }
    }

    /// Fails if a capture was invalidated.
    pub(crate) fn check_capture(&self, capture: u64) -> Outcome {
        match self.captures.get(&capture) {
            Some(capture) if !capture.is_invalid => Ok(()),
            _ => Err(Failure::STREAM_CAPTURE_INVALIDATED),
        }
    }

    pub(crate) fn begin_capture(&mut self, stream: u64, mode: i32) -> Outcome {
        if !(GLOBAL..=RELAXED).contains(&mode) {
            return Err(Failure::INVALID_VALUE);
        }
        let found = self.stream(stream)?;
        let device = found.device;
        if found.is_legacy {
            return Err(Failure::STREAM_CAPTURE_UNSUPPORTED);
        }
        if found.capture.is_some() {
            return Err(Failure::ILLEGAL_STATE);
        }
        let (id, graph_handle) = (self.handle(), self.handle());
        let capture = Capture {
            origin: stream,
            mode,
            thread: thread(),
            is_invalid: false,
            graph: Graph::new(device),
            graph_handle,
            dependencies: Box::default(),
        };
        self.captures.insert(id, capture);
        self.stream_mut(stream)?.capture = Some((id, NodeSet::new()));
        Ok(())
    }

    /// Ends a capture and returns the handle of its graph.
    pub(crate) fn end_capture(&mut self, stream: u64) -> Outcome<u64> {
        let Some((id, joined)) = self.stream(stream)?.capture.clone() else {
            return Err(Failure::ILLEGAL_STATE);
        };
        let capture = self.captures.get(&id).ok_or(Failure::ILLEGAL_STATE)?;
        if capture.origin != stream {
            self.invalidate(id);
            return Err(Failure::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread() {
            return Err(Failure::STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = self.captures.remove(&id).ok_or(Failure::ILLEGAL_STATE)?;
        for stream in self.streams.values_mut() {
            if stream.capture.as_ref().is_some_and(|(capture, _)| *capture == id) {
                stream.capture = None;
            }
        }
        if capture.is_invalid {
            return Err(Failure::STREAM_CAPTURE_INVALIDATED);
        }
        if !capture.graph.is_covered_by(&joined) {
            return Err(Failure::STREAM_CAPTURE_UNJOINED);
        }
        self.graphs.insert(capture.graph_handle, Arc::new(capture.graph));
        Ok(capture.graph_handle)
    }

    /// Returns the status of a stream's capture, and the capture's id.
    pub(crate) fn capture_status(&self, stream: u64) -> Outcome<(i32, u64)> {
        let Some((id, _)) = self.stream(stream)?.capture else { return Ok((STATUS_NONE, 0)) };
        let is_valid = self.check_capture(id).is_ok();
        Ok((if is_valid { STATUS_ACTIVE } else { STATUS_INVALIDATED }, id))
    }

    /// Adds an operation to the capture of its stream.
    pub(crate) fn capture_node(&mut self, stream: u64, submission: Submission) -> Outcome {
        let Some((id, after)) = self.stream(stream)?.capture.clone() else {
            return Err(Failure::ILLEGAL_STATE);
        };
        self.check_capture(id)?;
        let capture = self.captures.get_mut(&id).ok_or(Failure::STREAM_CAPTURE_INVALIDATED)?;
        let node = capture.graph.add(GraphNode { branch: stream, after, submission });
        self.stream_mut(stream)?.capture = Some((id, NodeSet::from([node])));
        Ok(())
    }

    /// Makes a stream wait for a point in a capture, which adds the stream to it.
    pub(crate) fn join_capture(
        &mut self,
        stream: u64,
        own: Option<u64>,
        capture: u64,
        nodes: &NodeSet,
    ) -> Outcome {
        if !self.captures.contains_key(&capture) {
            return Err(Failure::CAPTURED_EVENT);
        }
        if let Some(own) = own.filter(|&own| own != capture) {
            self.invalidate(own);
            self.invalidate(capture);
            return Err(Failure::STREAM_CAPTURE_MERGE);
        }
        self.check_capture(capture)?;
        let stream = self.stream_mut(stream)?;
        if stream.is_legacy {
            return Err(Failure::STREAM_CAPTURE_IMPLICIT);
        }
        let (_, joined) = stream.capture.get_or_insert_with(|| (capture, NodeSet::new()));
        joined.extend(nodes);
        Ok(())
    }
}
