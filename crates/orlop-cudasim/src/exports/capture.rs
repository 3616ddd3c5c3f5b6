//! Stream capture.

use crate::abi::Out;
use crate::call::calls;
use crate::codes::Outcome;
use crate::guard::DriverGuard;
use crate::state::capture::{RELAXED, STATUS_NONE, exchange_mode};

/// The optional results of `cuStreamGetCaptureInfo`.
struct CaptureInfo {
    id: Out<u64>,
    graph: Out<u64>,
    dependencies: Out<usize>,
    count: Out<usize>,
}

fn info(driver: &mut DriverGuard, stream: u64, status: &Out<i32>, info: &CaptureInfo) -> Outcome {
    let id = driver.stream_of(stream)?;
    driver.refuse_implicit_query(id)?;
    let (found, capture_id) = driver.capture_status(id)?;
    status.set(found)?;
    if found == STATUS_NONE {
        return Ok(());
    }
    info.id.set_optional(capture_id);
    let nodes = driver.stream(id)?.capture.as_ref().map(|(_, nodes)| nodes.clone()).unwrap_or_default();
    if let Some(capture) = driver.captures.get_mut(&capture_id) {
        info.graph.set_optional(capture.graph_handle);
        // A node's handle is its place in the graph, from 1.
        capture.dependencies = nodes.iter().map(|&node| node as u64 + 1).collect();
        info.dependencies.set_optional(capture.dependencies.as_ptr().expose_provenance());
        info.count.set_optional(capture.dependencies.len());
    }
    Ok(())
}

calls! {
    fn cuStreamBeginCapture_v2(stream: u64, mode: i32) Context |driver| {
        let id = driver.stream_of(stream)?;
        driver.begin_capture(id, mode)
    }

    fn cuStreamEndCapture(stream: u64, graph: Out<u64>) Context |driver| {
        let id = driver.stream_of(stream)?;
        graph.set(0)?;
        graph.set(driver.end_capture(id)?)
    }

    fn cuStreamIsCapturing(stream: u64, status: Out<i32>) Context |driver| {
        let id = driver.stream_of(stream)?;
        driver.refuse_implicit_query(id)?;
        status.set(driver.capture_status(id)?.0)
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<usize>,
        count: Out<usize>,
    ) Context |driver| {
        info(driver, stream, &status, &CaptureInfo { id, graph, dependencies, count })
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<usize>,
        edges: Out<usize>,
        count: Out<usize>,
    ) Context |driver| {
        // No edge has data of its own.
        edges.set_optional(0);
        info(driver, stream, &status, &CaptureInfo { id, graph, dependencies, count })
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) Init |_driver| {
        let before = exchange_mode(mode.get()?)?;
        debug_assert!(before <= RELAXED);
        mode.set(before)
    }
}
