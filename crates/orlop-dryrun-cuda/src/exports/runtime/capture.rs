//! Captures and graphs. A graph has no nodes: nothing is computed, and what it needs of memory was allocated.

use crate::abi::Out;
use crate::call::runtime_calls;
use crate::code::Outcome;
use crate::machine::Machine;

/// What `cudaStreamIsCapturing` and `cudaStreamGetCaptureInfo` return for a stream of a capture.
const ACTIVE: i32 = 1;

/// Writes what is known of the capture of a stream: its number, and a graph (the first of `parts`) without
/// nodes.
fn capture_info<const PARTS: usize>(
    machine: &mut Machine,
    stream: usize,
    is_capturing: &Out<i32>,
    id: &Out<u64>,
    parts: [&Out<usize>; PARTS],
) -> Outcome {
    let capture = machine.work.capture(stream)?;
    if let Some(capture) = capture {
        id.set_optional(capture);
        let graph = machine.handle();
        parts
            .iter()
            .enumerate()
            .for_each(|(index, part)| part.set_optional(if index == 0 { graph } else { 0 }));
    }
    is_capturing.set(if capture.is_some() { ACTIVE } else { 0 })
}

runtime_calls! {
    fn cudaStreamBeginCapture(stream: usize, _mode: i32) |machine| { machine.work.begin_capture(stream) }

    fn cudaStreamEndCapture(stream: usize, graph: Out<usize>) |machine| {
        machine.work.end_capture(stream)?;
        graph.set(machine.handle())
    }

    fn cudaStreamIsCapturing(stream: usize, is_capturing: Out<i32>) |machine| {
        is_capturing.set(if machine.work.capture(stream)?.is_some() { ACTIVE } else { 0 })
    }

    fn cudaStreamGetCaptureInfo(
        stream: usize,
        is_capturing: Out<i32>,
        id: Out<u64>,
        graph: Out<usize>,
        nodes: Out<usize>,
        edges: Out<usize>,
        count: Out<usize>,
    ) |machine| { capture_info(machine, stream, &is_capturing, &id, [&graph, &nodes, &edges, &count]) }

    fn cudaStreamGetCaptureInfo_v3(
        stream: usize,
        is_capturing: Out<i32>,
        id: Out<u64>,
        graph: Out<usize>,
        nodes: Out<usize>,
        edges: Out<usize>,
        count: Out<usize>,
    ) |machine| { capture_info(machine, stream, &is_capturing, &id, [&graph, &nodes, &edges, &count]) }

    fn cudaStreamGetCaptureInfo_v2(
        stream: usize,
        is_capturing: Out<i32>,
        id: Out<u64>,
        graph: Out<usize>,
        nodes: Out<usize>,
        count: Out<usize>,
    ) |machine| { capture_info(machine, stream, &is_capturing, &id, [&graph, &nodes, &count]) }

    fn cudaThreadExchangeStreamCaptureMode(mode: Out<i32>) |_machine| {
        // Global was the mode, and is again what the caller exchanges it for.
        mode.set(0)
    }

    fn cudaStreamUpdateCaptureDependencies(
        _stream: usize,
        _nodes: usize,
        _edges: usize,
        _count: usize,
        _flags: u32,
    ) |_machine| { Ok(()) }

    fn cudaStreamUpdateCaptureDependencies_v2(
        _stream: usize,
        _nodes: usize,
        _edges: usize,
        _count: usize,
        _flags: u32,
    ) |_machine| { Ok(()) }

    fn cudaGraphInstantiate(executable: Out<usize>, _graph: usize, _flags: u64) |machine| {
        executable.set(machine.handle())
    }

    fn cudaGraphInstantiateWithFlags(executable: Out<usize>, _graph: usize, _flags: u64) |machine| {
        executable.set(machine.handle())
    }

    fn cudaGraphLaunch(_executable: usize, stream: usize) |machine| { machine.work.submit(stream) }

    fn cudaGraphGetNodes(_graph: usize, _nodes: usize, count: Out<usize>) |_machine| { count.set(0) }

    fn cudaGraphDestroy(_graph: usize) |_machine| { Ok(()) }

    fn cudaGraphExecDestroy(_executable: usize) |_machine| { Ok(()) }

    fn cudaGraphDebugDotPrint(_graph: usize, _path: usize, _flags: u32) |_machine| { Ok(()) }
}
