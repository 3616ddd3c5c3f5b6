//! Copies between memory of all kinds, synchronous and in streams.
//!
//! Pageable host memory: a copy from it is staged when the call is made; a copy to it returns when it is
//! done. A synchronous copy runs in the legacy default stream; between device addresses it does not wait.

use crate::abi::{Copy2d, Copy3d, In, Plane, Volume};
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::guard::DriverGuard;
use crate::memory::{CopyShape, MemoryAccess, bytes};
use crate::state::work::{CopySource, Submission, Work};
use std::sync::Arc;

/// Where one side of a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Device,
    Host,
    /// Decided by the address.
    Unified,
}

/// A copy as the call describes it.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    name: &'static str,
    to: (usize, Side),
    from: (usize, Side),
    shape: CopyShape,
}

impl Transfer {
    fn line(name: &'static str, to: (usize, Side), from: (usize, Side), bytes: usize) -> Self {
        Self { name, to, from, shape: CopyShape::line(bytes) }
    }
}

/// Returns the rows of one side, each as a range of addresses; a single one if they are contiguous.
fn rows(start: usize, shape: &CopyShape, pitch: usize, slice: usize) -> Vec<(usize, usize)> {
    let is_line = shape.depth == 1 && (shape.height == 1 || pitch == shape.width);
    if is_line {
        return vec![(start, shape.width * shape.height)];
    }
    let each = (0..shape.depth).flat_map(|z| (0..shape.height).map(move |y| z * slice + y * pitch));
    each.map(|offset| (start + offset, shape.width)).collect()
}

/// Submits a copy. A synchronous one runs in the legacy default stream.
fn submit(driver: &mut DriverGuard, transfer: Transfer, stream: Option<u64>) -> Outcome {
    let Transfer { name, to: (to, to_side), from: (from, from_side), shape } = transfer;
    if shape.bytes() == 0 {
        return Ok(());
    }
    let id = driver.stream_of(stream.unwrap_or(0))?;
    let written = rows(to, &shape, shape.to_pitch, shape.to_slice);
    let read = rows(from, &shape, shape.from_pitch, shape.from_slice);
    let is_known = |driver: &DriverGuard, side: Side, rows: &[(usize, usize)]| -> Outcome<bool> {
        let known = rows.iter().all(|&(at, bytes)| driver.is_accessible(at, bytes));
        match side {
            Side::Device if !known => Err(Failure::INVALID_VALUE),
            _ => Ok(known),
        }
    };
    let to_known = is_known(driver, to_side, &written)?;
    let from_known = is_known(driver, from_side, &read)?;
    if stream.is_some() && !(to_known && from_known) && driver.stream(id)?.capture.is_some() {
        // Pageable memory would have to be read or written now.
        return driver.refuse_capturing(id);
    }
    let mut accesses = Vec::new();
    if from_known {
        accesses.extend(read.iter().map(|&(at, bytes)| MemoryAccess::read(at, bytes)));
    }
    if to_known {
        accesses.extend(written.iter().map(|&(at, bytes)| MemoryAccess::write(at, bytes)));
    }
    let (source, shape) = if from_known {
        (CopySource::Address(from), shape)
    } else {
        let staged: Vec<u8> = read.iter().flat_map(|&(at, bytes)| bytes::read(at, bytes)).collect();
        let packed = CopyShape { from_pitch: shape.width, from_slice: shape.width * shape.height, ..shape };
        (CopySource::Staged(Arc::from(staged)), packed)
    };
    let work = Work::Copy { to, from: source, shape, is_peer: name.starts_with("cuMemcpyPeer") };
    driver.submit(id, Submission::new(name, work, accesses))?;
    let is_host = |driver: &DriverGuard, known: bool, at: usize| {
        !known || driver.locate(at).is_some_and(|found| found.is_host())
    };
    let touches_host = is_host(driver, to_known, to) || is_host(driver, from_known, from);
    // The call returns when the host's memory was read or written.
    if !to_known || (stream.is_none() && touches_host) {
        driver.synchronize_stream(id)?;
    }
    Ok(())
}

/// Reads the side of a 2-D or 3-D copy: `CU_MEMORYTYPE_HOST`, `_DEVICE`, `_ARRAY`, `_UNIFIED`.
fn side(memory: i32, host: usize, device: usize) -> Outcome<(usize, Side)> {
    match memory {
        1 => Ok((host, Side::Host)),
        2 => Ok((device, Side::Device)),
        3 => Err(Failure::NOT_SUPPORTED),
        4 => Ok((device, Side::Unified)),
        _ => Err(Failure::INVALID_VALUE),
    }
}

fn planar(name: &'static str, copy: &Copy2d) -> Outcome<Transfer> {
    let start = |plane: &Plane| -> Outcome<(usize, Side)> {
        let (base, side) = side(plane.memory, plane.host, plane.device)?;
        // A pitch of 0 means rows without gaps, for a single row.
        let is_wide = plane.pitch >= plane.x + copy.width || copy.height <= 1;
        if !is_wide {
            return Err(Failure::INVALID_VALUE);
        }
        Ok((base + plane.y * plane.pitch + plane.x, side))
    };
    let (to, from) = (start(&copy.destination)?, start(&copy.source)?);
    let shape = CopyShape {
        width: copy.width,
        height: copy.height,
        depth: 1,
        to_pitch: copy.destination.pitch,
        to_slice: 0,
        from_pitch: copy.source.pitch,
        from_slice: 0,
    };
    Ok(Transfer { name, to, from, shape })
}

fn spatial(name: &'static str, copy: &Copy3d) -> Outcome<Transfer> {
    let start = |volume: &Volume| -> Outcome<(usize, Side)> {
        let (base, side) = side(volume.memory, volume.host, volume.device)?;
        let is_wide = volume.pitch >= volume.x + copy.width || (copy.height <= 1 && copy.depth <= 1);
        let is_high = volume.height >= volume.y + copy.height || copy.depth <= 1;
        if !is_wide || !is_high {
            return Err(Failure::INVALID_VALUE);
        }
        Ok((base + (volume.z * volume.height + volume.y) * volume.pitch + volume.x, side))
    };
    let (to, from) = (start(&copy.destination)?, start(&copy.source)?);
    let shape = CopyShape {
        width: copy.width,
        height: copy.height,
        depth: copy.depth,
        to_pitch: copy.destination.pitch,
        to_slice: copy.destination.pitch * copy.destination.height,
        from_pitch: copy.source.pitch,
        from_slice: copy.source.pitch * copy.source.height,
    };
    Ok(Transfer { name, to, from, shape })
}

calls! {
    fn cuMemcpy(to: usize, from: usize, bytes: usize) Unsafe |driver| {
        submit(driver, Transfer::line("cuMemcpy", (to, Side::Unified), (from, Side::Unified), bytes), None)
    }

    fn cuMemcpyAsync(to: usize, from: usize, bytes: usize, stream: u64) Context |driver| {
        let transfer = Transfer::line("cuMemcpyAsync", (to, Side::Unified), (from, Side::Unified), bytes);
        submit(driver, transfer, Some(stream))
    }

    fn cuMemcpyHtoD_v2(to: usize, from: usize, bytes: usize) Unsafe |driver| {
        submit(driver, Transfer::line("cuMemcpyHtoD", (to, Side::Device), (from, Side::Host), bytes), None)
    }

    fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: u64) Context |driver| {
        let transfer = Transfer::line("cuMemcpyHtoDAsync", (to, Side::Device), (from, Side::Host), bytes);
        submit(driver, transfer, Some(stream))
    }

    fn cuMemcpyDtoH_v2(to: usize, from: usize, bytes: usize) Unsafe |driver| {
        submit(driver, Transfer::line("cuMemcpyDtoH", (to, Side::Host), (from, Side::Device), bytes), None)
    }

    fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, stream: u64) Context |driver| {
        let transfer = Transfer::line("cuMemcpyDtoHAsync", (to, Side::Host), (from, Side::Device), bytes);
        submit(driver, transfer, Some(stream))
    }

    fn cuMemcpyDtoD_v2(to: usize, from: usize, bytes: usize) Unsafe |driver| {
        submit(driver, Transfer::line("cuMemcpyDtoD", (to, Side::Device), (from, Side::Device), bytes), None)
    }

    fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: u64) Context |driver| {
        let transfer = Transfer::line("cuMemcpyDtoDAsync", (to, Side::Device), (from, Side::Device), bytes);
        submit(driver, transfer, Some(stream))
    }

    fn cuMemcpyPeer(
        to: usize,
        to_context: u64,
        from: usize,
        from_context: u64,
        bytes: usize,
    ) Unsafe |driver| {
        driver.device_of_context(to_context)?;
        driver.device_of_context(from_context)?;
        submit(driver, Transfer::line("cuMemcpyPeer", (to, Side::Device), (from, Side::Device), bytes), None)
    }

    fn cuMemcpyPeerAsync(
        to: usize,
        to_context: u64,
        from: usize,
        from_context: u64,
        bytes: usize,
        stream: u64,
    ) Context |driver| {
        driver.device_of_context(to_context)?;
        driver.device_of_context(from_context)?;
        let transfer = Transfer::line("cuMemcpyPeerAsync", (to, Side::Device), (from, Side::Device), bytes);
        submit(driver, transfer, Some(stream))
    }

    fn cuMemcpy2D_v2(copy: In<Copy2d>) Unsafe |driver| {
        submit(driver, planar("cuMemcpy2D", &copy.get()?)?, None)
    }

    fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) Unsafe |driver| {
        submit(driver, planar("cuMemcpy2DUnaligned", &copy.get()?)?, None)
    }

    fn cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: u64) Context |driver| {
        submit(driver, planar("cuMemcpy2DAsync", &copy.get()?)?, Some(stream))
    }

    fn cuMemcpy3D_v2(copy: In<Copy3d>) Unsafe |driver| {
        submit(driver, spatial("cuMemcpy3D", &copy.get()?)?, None)
    }

    fn cuMemcpy3DAsync_v2(copy: In<Copy3d>, stream: u64) Context |driver| {
        submit(driver, spatial("cuMemcpy3DAsync", &copy.get()?)?, Some(stream))
    }
}
