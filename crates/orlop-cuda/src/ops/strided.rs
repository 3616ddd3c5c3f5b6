//! Strided copies, as the driver's copies of rows and planes.

use super::OnStream;
use crate::driver::abi::{Copy3D, CopySide};
use crate::driver::call;
use crate::error::CudaError;
use orlop_alloc::engine_support::{DevicePtr, LoopDim};

/// The largest distance of two rows that devices copy (`CU_DEVICE_ATTRIBUTE_MAX_PITCH`).
const MAX_PITCH: usize = i32::MAX as usize;

/// Rows up to this size are single elements to the driver: a copy of many such rows is slow.
const ROW: usize = 16;

/// Returns `true` if the driver copies these runs with one call, and in rows of some length.
pub(super) fn is_one_call(run: usize, dims: &[LoopDim]) -> bool {
    dims.is_empty() || (run > ROW && Planes::of(run, dims).is_some())
}

/// Rows at a distance, and planes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Planes {
    /// Distances of rows, in bytes.
    to_pitch: usize,
    from_pitch: usize,
    rows: usize,
    /// Distances of planes, in rows.
    to_plane: usize,
    from_plane: usize,
    count: usize,
}

impl Planes {
    /// Returns the planes of up to two loops over runs. `None` if they are not such planes: the caller then
    /// goes through the outer loop.
    fn of(run: usize, dims: &[LoopDim]) -> Option<Self> {
        let valid = |pitch: usize| (run..=MAX_PITCH).contains(&pitch);
        match *dims {
            [] => {
                Some(Self { to_pitch: run, from_pitch: run, rows: 1, to_plane: 1, from_plane: 1, count: 1 })
            }
            [rows] => (valid(rows.dst) && valid(rows.src)).then_some(Self {
                to_pitch: rows.dst,
                from_pitch: rows.src,
                rows: rows.size,
                to_plane: rows.size,
                from_plane: rows.size,
                count: 1,
            }),
            [planes, rows] => {
                let plane = Self::of(run, &[rows])?;
                let distance = |plane: usize, row: usize| {
                    let distance = plane.checked_div(row)?;
                    (plane.is_multiple_of(row) && distance >= rows.size).then_some(distance)
                };
                let (to_plane, from_plane) =
                    (distance(planes.dst, rows.dst)?, distance(planes.src, rows.src)?);
                Some(Self { to_plane, from_plane, count: planes.size, ..plane })
            }
            _ => None,
        }
    }
}

impl OnStream<'_> {
    /// Copies runs of bytes at every step of up to two loops.
    ///
    /// # Safety
    ///
    /// `DeviceOps::copy_strided`; host memory is pinned.
    pub(super) unsafe fn copy_planes(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        run: usize,
        dims: &[LoopDim],
    ) -> Result<(), CudaError> {
        if let Some(planes) = Planes::of(run, dims) {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.copy_once(to, from, run, planes) };
        }
        let Some((outer, inner)) = dims.split_first() else { return Ok(()) };
        for step in 0..outer.size {
            // SAFETY: the elements of a step are inside (guaranteed by the caller).
            let to = unsafe { to.add(step * outer.dst) };
            // SAFETY: as above.
            let from = unsafe { from.add(step * outer.src) };
            // SAFETY: guaranteed by the caller.
            unsafe { self.copy_planes(to, from, run, inner) }?;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As for [`Self::copy_planes`].
    unsafe fn copy_once(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        run: usize,
        planes: Planes,
    ) -> Result<(), CudaError> {
        let side = |place: DevicePtr, pitch, plane| {
            CopySide::new(place.ptr.as_ptr().expose_provenance(), place.device.is_cpu(), pitch, plane)
        };
        let copy = Copy3D {
            from: side(from, planes.from_pitch, planes.from_plane),
            to: side(to, planes.to_pitch, planes.to_plane),
            width: run,
            height: planes.rows,
            depth: planes.count,
        };
        // SAFETY: guaranteed by the caller: rows do not overlap, and the driver accesses them only.
        Ok(unsafe { call!(self.scope.driver(), cuMemcpy3DAsync_v2(&raw const copy, self.handle)) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(size: usize, dst: usize, src: usize) -> LoopDim {
        LoopDim { size, dst, src }
    }

    #[test]
    fn rows_and_planes() {
        let planes = Planes::of(12, &[dim(4, 600, 240), dim(5, 60, 24)]);
        let expected =
            Planes { to_pitch: 60, from_pitch: 24, rows: 5, to_plane: 10, from_plane: 10, count: 4 };
        assert_eq!(planes, Some(expected));
        assert_eq!(Planes::of(12, &[]).map(|planes| planes.rows * planes.count), Some(1));
        // Rows that overlap, a broadcast source, planes between rows, a pitch that devices do not have.
        assert_eq!(Planes::of(12, &[dim(5, 60, 8)]), None);
        assert_eq!(Planes::of(12, &[dim(5, 60, 0)]), None);
        assert_eq!(Planes::of(4, &[dim(4, 600, 4), dim(5, 60, 24)]), None);
        assert_eq!(Planes::of(4, &[dim(2, usize::MAX / 4, 8)]), None);
    }
}
