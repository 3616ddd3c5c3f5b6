//! [`HostOps`]: the operations of the CPU, by the kernels of `orlop-host`.

use super::{DeviceOps, DevicePtr};
use crate::{DeviceMemory, Error, Result, StridedLoops};
use orlop_core::{DType, Device, StreamId};
use orlop_host::kernels::{LoopDim, cast_loops, copy_loops, fill_loops, pays};
use orlop_host::system_memory;

/// The operations of the CPU: vectorised, and parallel for large data with the crate's feature `rayon`. They
/// are done when they return.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostOps;

/// Returns an error unless both places are host memory.
fn check_host(to: DevicePtr, from: DevicePtr) -> Result<()> {
    if to.device.is_cpu() && from.device.is_cpu() {
        return Ok(());
    }
    Err(Error::NoCopyPath { from: from.device, to: to.device })
}

/// Returns an error unless the memory is the host's, also where the host can access a device's: that is
/// ordered by streams, which the host's operations are not.
fn check_own(to: DevicePtr) -> Result<()> {
    (&HostOps as &dyn DeviceOps).check_on(to.device)
}

// SAFETY: 1. the kernels read and write the given elements only, during the call. 2. and 3. so nothing is
// left to be done when a call returns. 4. the device is the CPU, and memory of any other is refused. 5. no
// stream but the host's own is waited for.
unsafe impl DeviceOps for HostOps {
    fn device(&self) -> Device {
        Device::CPU
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, _: StreamId) -> Result<()> {
        check_host(to, from)?;
        if pays(bytes) {
            let dims = &mut [LoopDim { size: bytes, dst: 1, src: 1 }];
            // SAFETY: both are host memory, valid and disjoint (guaranteed by the caller).
            unsafe { copy_loops(dims, to.ptr.as_ptr(), from.ptr.as_ptr(), bytes, 1) };
        } else {
            // SAFETY: as above.
            unsafe { to.ptr.copy_from_nonoverlapping(from.ptr, bytes) };
        }
        Ok(())
    }

    unsafe fn copy_strided(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        item: usize,
        loops: StridedLoops<'_>,
        _: StreamId,
    ) -> Result<()> {
        check_host(to, from)?;
        let bytes = loops.steps() * item;
        // SAFETY: both are host memory; the elements at all steps are valid and disjoint (guaranteed by the
        // caller).
        unsafe { copy_loops(&mut loops.dims().to_vec(), to.ptr.as_ptr(), from.ptr.as_ptr(), bytes, item) };
        Ok(())
    }

    unsafe fn cast(
        &self,
        (to, to_dtype): (DevicePtr, DType),
        (from, from_dtype): (DevicePtr, DType),
        loops: StridedLoops<'_>,
        _: StreamId,
    ) -> Result<()> {
        check_own(to)?;
        check_own(from)?;
        let (to, from) = (to.ptr, from.ptr);
        // SAFETY: the elements at all steps are valid, of these dtypes, and disjoint (guaranteed by the
        // caller).
        unsafe {
            cast_loops(&mut loops.dims().to_vec(), to.as_ptr(), to_dtype, from.as_ptr(), from_dtype);
        };
        Ok(())
    }

    unsafe fn fill(&self, to: DevicePtr, pattern: &[u8], count: usize, _: StreamId) -> Result<()> {
        check_own(to)?;
        let bytes = pattern.len() * count;
        if bytes > 0 {
            let dims = &mut [LoopDim { size: count, dst: pattern.len(), src: 0 }];
            // SAFETY: valid and accessed by this call only, for all repetitions (guaranteed by the caller).
            unsafe { fill_loops(dims, to.ptr.as_ptr(), pattern, bytes) };
        }
        Ok(())
    }

    unsafe fn fill_strided(
        &self,
        to: DevicePtr,
        pattern: &[u8],
        loops: StridedLoops<'_>,
        _: StreamId,
    ) -> Result<()> {
        check_own(to)?;
        let bytes = loops.steps() * pattern.len();
        if bytes > 0 {
            let mut dims = loops.dims().to_vec();
            dims.iter_mut().for_each(|dim| dim.src = 0);
            // SAFETY: the elements at all steps are valid, do not overlap, and are accessed by this call only
            // (guaranteed by the caller).
            unsafe { fill_loops(&mut dims, to.ptr.as_ptr(), pattern, bytes) };
        }
        Ok(())
    }

    fn wait_for(&self, stream: StreamId, earlier: StreamId) -> Result<()> {
        if earlier == stream || earlier == StreamId::HOST {
            return Ok(());
        }
        Err(Error::StreamsNotHonoured { device: Device::CPU, stream: earlier })
    }

    fn synchronize(&self, _: StreamId) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> Option<DeviceMemory> {
        system_memory::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_core::{Layout, Shape, Strides};
    use std::ptr::NonNull;

    /// Forwards runs of bytes only, so that the strided defaults are used.
    #[derive(Debug)]
    struct RunsOnly;

    // SAFETY: as `HostOps`.
    unsafe impl DeviceOps for RunsOnly {
        fn device(&self) -> Device {
            Device::CPU
        }

        unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()> {
            // SAFETY: guaranteed by the caller.
            unsafe { HostOps.copy(to, from, bytes, stream) }
        }

        unsafe fn fill(&self, to: DevicePtr, pattern: &[u8], count: usize, stream: StreamId) -> Result<()> {
            // SAFETY: guaranteed by the caller.
            unsafe { HostOps.fill(to, pattern, count, stream) }
        }

        fn synchronize(&self, _: StreamId) -> Result<()> {
            Ok(())
        }
    }

    const ITEM: usize = 2;

    fn stream() -> StreamId {
        StreamId::from_raw(3)
    }

    fn first(bytes: &mut [u8]) -> DevicePtr {
        DevicePtr::new(NonNull::from(bytes).cast(), Device::CPU)
    }

    type Operation<'a> = &'a dyn Fn(StridedLoops<'_>) -> Result<()>;

    /// Layouts of one shape whose elements fit into 400 elements and do not overlap.
    fn layouts() -> Vec<Layout> {
        let strides = [[35, 7, 1], [1, 8, 40], [2, 40, 8], [90, 16, 3], [35, 7, 2]];
        let strides = if cfg!(miri) { &strides[1..2] } else { &strides[..] };
        let sizes = Shape::new(&[4, 5, 3]).unwrap();
        let layout =
            |strides: &[usize; 3]| Layout::new(sizes.clone(), Strides::new(strides).unwrap(), 0).unwrap();
        strides.iter().map(layout).filter(|it| it.element_range().end <= 400).collect()
    }

    fn offsets(layout: &Layout) -> Vec<usize> {
        let (sizes, strides) = (layout.shape(), layout.strides());
        let at =
            |index: [usize; 3]| index.iter().zip(strides.iter()).map(|(i, s)| i * s).sum::<usize>() * ITEM;
        let all = (0..sizes[0]).flat_map(|a| (0..sizes[1]).flat_map(move |b| (0..3).map(move |c| [a, b, c])));
        all.map(at).collect()
    }

    #[test]
    fn strided_operations_agree_with_loops_over_elements() {
        let source: Vec<u8> = (0..800u32).map(|index| index.wrapping_mul(37).to_le_bytes()[0]).collect();
        for ops in [&HostOps as &dyn DeviceOps, &RunsOnly] {
            for (to, from) in
                layouts().iter().flat_map(|to| layouts().into_iter().map(move |from| (to, from)))
            {
                let mut expected = vec![0xee; 800];
                for (to, from) in offsets(to).into_iter().zip(offsets(&from)) {
                    expected[to..to + ITEM].copy_from_slice(&source[from..from + ITEM]);
                }
                let (mut copied, mut from_bytes) = (vec![0xee; 800], source.clone());
                let (to_ptr, from_ptr) = (first(&mut copied), first(&mut from_bytes));
                let copy = |loops: StridedLoops<'_>| {
                    // SAFETY: both vectors are large enough for the layouts.
                    unsafe { ops.copy_strided(to_ptr, from_ptr, ITEM, loops, stream()) }
                };
                StridedLoops::with((to, ITEM), Some((&from, ITEM)), copy).unwrap().unwrap();
                assert!(copied == expected, "{ops:?} {to:?} {from:?}");
            }
        }
    }

    #[test]
    fn strided_fills_write_the_elements_only() {
        for ops in [&HostOps as &dyn DeviceOps, &RunsOnly] {
            for (layout, pattern) in layouts().iter().flat_map(|to| [(to, [1, 2]), (to, [7, 7])]) {
                let (mut expected, mut filled) = (vec![0xee; 800], vec![0xee; 800]);
                for to in offsets(layout) {
                    expected[to..to + ITEM].copy_from_slice(&pattern);
                }
                let to = first(&mut filled);
                // SAFETY: the vector is large enough for the layout.
                let fill =
                    |loops: StridedLoops<'_>| unsafe { ops.fill_strided(to, &pattern, loops, stream()) };
                StridedLoops::with((layout, ITEM), None, fill).unwrap().unwrap();
                assert!(filled == expected, "{ops:?} {layout:?}");
            }
        }
    }

    #[test]
    fn casts_are_native_on_the_host_and_refused_by_default() {
        let layout = Layout::contiguous(Shape::new(&[3]).unwrap());
        let mut from: Vec<u8> = [1.5f32, -2.0, 300.0].iter().flat_map(|float| float.to_le_bytes()).collect();
        let mut to = vec![0; 6];
        let (to_ptr, from_ptr) = (first(&mut to), first(&mut from));
        let cast = |ops: &dyn DeviceOps| {
            StridedLoops::with((&layout, 2), Some((&layout, 4)), |loops| {
                // SAFETY: three elements of these types.
                unsafe { ops.cast((to_ptr, DType::I16), (from_ptr, DType::F32), loops, stream()) }
            })
            .unwrap()
        };
        let refused = cast(&RunsOnly);
        assert!(matches!(refused, Err(Error::CannotCast { from: DType::F32, to: DType::I16 })));
        cast(&HostOps).unwrap();
        assert_eq!(to, [1i16, -2, 300].iter().flat_map(|int| int.to_le_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn the_host_copies_host_memory_only() {
        let mut bytes = vec![0; 8];
        let host = first(&mut bytes);
        let far = DevicePtr { device: Device::custom(5, 0), ..host };
        // SAFETY: refused before anything is accessed.
        let copied = unsafe { HostOps.copy(far, host, 4, stream()) };
        assert!(matches!(copied, Err(Error::NoCopyPath { .. })));
        let dtype = DType::U8;
        let others: [Operation<'_>; 5] = [
            // SAFETY: as above.
            &|_| unsafe { HostOps.fill(far, &[1], 4, stream()) },
            // SAFETY: as above.
            &|_| unsafe { HostOps.zero(far, 4, stream()) },
            // SAFETY: as above.
            &|loops| unsafe { HostOps.fill_strided(far, &[1], loops, stream()) },
            // SAFETY: as above.
            &|loops| unsafe { HostOps.cast((far, dtype), (host, dtype), loops, stream()) },
            // SAFETY: as above.
            &|loops| unsafe { HostOps.cast((host, dtype), (far, dtype), loops, stream()) },
        ];
        for operation in others {
            let refused = operation(StridedLoops::once());
            assert!(matches!(refused, Err(Error::WrongOperations { device, .. }) if device == far.device));
        }
        assert_eq!(bytes, [0; 8]);
    }

    #[test]
    fn the_host_waits_for_its_own_stream_only() {
        HostOps.wait_for(stream(), StreamId::HOST).unwrap();
        let refused = HostOps.wait_for(StreamId::HOST, stream());
        assert!(matches!(refused, Err(Error::StreamsNotHonoured { stream: of, .. }) if of == stream()));
    }

    #[test]
    fn large_fills_and_copies() {
        let count = if cfg!(miri) { 100 } else { 1 << 20 };
        let (mut filled, mut copied) = (vec![0; 3 * count], vec![0; 3 * count]);
        // SAFETY: the vector has this many repetitions.
        unsafe { HostOps.fill(first(&mut filled), &[1, 2, 3], count, stream()) }.unwrap();
        assert!(filled.chunks_exact(3).all(|part| part == [1, 2, 3]));
        // SAFETY: two vectors of this length.
        unsafe { HostOps.copy(first(&mut copied), first(&mut filled), 3 * count, stream()) }.unwrap();
        assert_eq!(copied, filled);
    }
}
