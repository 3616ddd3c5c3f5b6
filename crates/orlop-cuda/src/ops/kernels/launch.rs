//! Launches over strided loops: one thread for each step.

use super::super::OnStream;
use super::module::{Function, Kernels};
use super::text::WIDTHS;
use crate::driver::call;
use crate::error::CudaError;
use orlop_alloc::engine_support::LoopDim;
use std::ffi::c_void;

/// The loops of one launch. More of them are launched step by step.
const MAX_LOOPS: usize = 8;

/// The steps of one launch, so that a thread computes its index with 32 bits.
const MAX_STEPS: usize = 1 << 30;

/// The threads of a block.
const THREADS: u32 = 256;

/// The parameter of every kernel, as the module declares it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct LaunchParameter {
    to: u64,
    from: u64,
    steps: u32,
    loops: u32,
    work: KernelWork,
    dims: [KernelLoop; MAX_LOOPS],
}

/// What a launch does, apart from where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct KernelWork {
    /// For casts: the dtype that is read, the kind of the other one, and which one of its kind it is.
    pub(super) source: u32,
    pub(super) kind: u32,
    pub(super) detail: u32,
    pub(super) unused: u32,
    /// For fills the element; for casts to integers their least and largest value.
    pub(super) value: [u64; 2],
}

/// A loop, innermost first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
struct KernelLoop {
    to: u64,
    from: u64,
    size: u32,
    unused: u32,
}

/// Returns the largest element, as the power of two of its size, of which all these numbers are multiples.
fn width_of(numbers: impl Iterator<Item = usize>) -> usize {
    let largest = WIDTHS.len() - 1;
    numbers.map(|number| number.trailing_zeros() as usize).min().map_or(largest, |power| power.min(largest))
}

impl Kernels {
    /// Copies runs of bytes at every step of the loops.
    ///
    /// # Safety
    ///
    /// `DeviceOps::copy_strided`, on one device.
    pub(in crate::ops) unsafe fn copy(
        &self,
        on: &OnStream<'_>,
        (to, from): (usize, usize),
        run: usize,
        loops: &[LoopDim],
    ) -> Result<(), CudaError> {
        let strides = loops.iter().flat_map(|dim| [dim.dst, dim.src]);
        let power = width_of(strides.chain([run, to, from]));
        let width = WIDTHS[power];
        let mut all = loops.to_vec();
        if run > width {
            all.push(LoopDim { size: run / width, dst: width, src: width });
        }
        // SAFETY: guaranteed by the caller: the elements of the runs, to which everything is aligned.
        unsafe { launch(on, self.copies[power], (to, from), KernelWork::default(), &all) }
    }

    /// Writes a pattern at every step of the loops.
    ///
    /// # Safety
    ///
    /// `DeviceOps::fill_strided`.
    pub(in crate::ops) unsafe fn fill(
        &self,
        on: &OnStream<'_>,
        to: usize,
        pattern: &[u8],
        loops: &[LoopDim],
    ) -> Result<(), CudaError> {
        let loops: Vec<LoopDim> = loops.iter().map(|dim| LoopDim { src: 0, ..*dim }).collect();
        let power = width_of(loops.iter().map(|dim| dim.dst).chain([pattern.len(), to]));
        let width = WIDTHS[power];
        for (number, part) in pattern.chunks_exact(width).enumerate() {
            let mut bytes = [0; 16];
            bytes[..width].copy_from_slice(part);
            let (low, high) = bytes.split_at(8);
            let word = |half: &[u8]| half.try_into().map_or(0, u64::from_ne_bytes);
            let work = KernelWork { value: [word(low), word(high)], ..KernelWork::default() };
            // SAFETY: guaranteed by the caller: this part of the elements, to which everything is aligned.
            unsafe { launch(on, self.fills[power], (to + number * width, 0), work, &loops) }?;
        }
        Ok(())
    }

    /// Casts an element at every step of the loops.
    ///
    /// # Safety
    ///
    /// `DeviceOps::cast`; all elements are aligned, and `work` describes their dtypes.
    pub(super) unsafe fn cast_loops(
        &self,
        on: &OnStream<'_>,
        places: (usize, usize),
        work: KernelWork,
        loops: &[LoopDim],
    ) -> Result<(), CudaError> {
        // SAFETY: guaranteed by the caller.
        unsafe { launch(on, self.cast, places, work, loops) }
    }
}

/// Launches a kernel for all steps of the loops, in parts if they are too many.
///
/// # Safety
///
/// The elements at all steps are valid for what the kernel does, and aligned to its accesses.
unsafe fn launch(
    on: &OnStream<'_>,
    function: Function,
    places: (usize, usize),
    work: KernelWork,
    loops: &[LoopDim],
) -> Result<(), CudaError> {
    for_each_launch(places, loops, MAX_LOOPS, MAX_STEPS, &mut |(to, from), steps, loops| {
        let mut dims = [KernelLoop::default(); MAX_LOOPS];
        for (slot, dim) in dims.iter_mut().zip(loops.iter().rev()) {
            *slot =
                KernelLoop { to: dim.dst as u64, from: dim.src as u64, size: number(dim.size), unused: 0 };
        }
        let (steps, loops) = (number(steps), number(loops.len()));
        let mut parameter = LaunchParameter { to: to as u64, from: from as u64, steps, loops, work, dims };
        let mut parameters = [(&raw mut parameter).cast::<c_void>()];
        let (blocks, none) = (steps.div_ceil(THREADS), std::ptr::null_mut());
        let (driver, function, list) = (on.scope.driver(), function.0, parameters.as_mut_ptr());
        // SAFETY: the function takes this one parameter, which the call copies; the kernel accesses the
        // elements at the steps (guaranteed by the caller).
        Ok(unsafe {
            call!(driver, cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, on.handle, list, none))
        }?)
    })
}

/// Calls `visit` with the places, the number of steps and the loops of parts of the loops, each with at most
/// `max_loops` loops and `max_steps` steps, which together are all steps.
fn for_each_launch<E>(
    (to, from): (usize, usize),
    loops: &[LoopDim],
    max_loops: usize,
    max_steps: usize,
    visit: &mut impl FnMut((usize, usize), usize, &[LoopDim]) -> Result<(), E>,
) -> Result<(), E> {
    // The elements of a layout, whose count was checked.
    let steps = loops.iter().map(|dim| dim.size).product::<usize>();
    let Some((outer, inner)) = loops.split_first().filter(|_| loops.len() > max_loops || steps > max_steps)
    else {
        return if steps == 0 { Ok(()) } else { visit((to, from), steps, loops) };
    };
    // As many steps of the outer loop at once as fit; one if there are too many loops.
    let together = if loops.len() > max_loops { 1 } else { (max_steps / (steps / outer.size)).max(1) };
    for start in (0..outer.size).step_by(together) {
        let size = together.min(outer.size - start);
        let places = (to + start * outer.dst, from + start * outer.src);
        if size == 1 {
            for_each_launch(places, inner, max_loops, max_steps, visit)?;
        } else {
            let part = [&[LoopDim { size, ..*outer }], inner].concat();
            for_each_launch(places, &part, max_loops, max_steps, visit)?;
        }
    }
    Ok(())
}

/// Returns a number that is at most [`MAX_STEPS`].
fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The offsets in `loops.ptx` and `cast.ptx`.
    #[test]
    fn the_parameter_is_the_declared_one() {
        assert_eq!(size_of::<LaunchParameter>(), 248);
        assert_eq!(offset_of!(LaunchParameter, steps), 16);
        let work = offset_of!(LaunchParameter, work);
        assert_eq!((work, work + offset_of!(KernelWork, value)), (24, 40));
        assert_eq!(offset_of!(LaunchParameter, dims), 56);
        assert_eq!((size_of::<KernelLoop>(), offset_of!(KernelLoop, size)), (24, 16));
    }

    #[test]
    fn launches_are_small_enough_and_have_every_step_once() {
        let dim = |size, dst, src| LoopDim { size, dst, src };
        let loops = [dim(3, 100, 0), dim(7, 10, 1), dim(5, 2, 40)];
        let each = |loops: &[LoopDim], places: (usize, usize)| {
            loops.iter().fold(vec![places], |places, dim| {
                let steps =
                    |(to, from)| (0..dim.size).map(move |it| (to + it * dim.dst, from + it * dim.src));
                places.into_iter().flat_map(steps).collect::<Vec<_>>()
            })
        };
        for (max_loops, max_steps) in
            [(8, 1 << 30), (8, 105), (8, 104), (8, 35), (8, 4), (8, 1), (1, 9), (2, 12)]
        {
            let mut found = Vec::new();
            let visit = &mut |places, steps, loops: &[LoopDim]| {
                assert!(steps <= max_steps && loops.len() <= max_loops, "{steps} {loops:?}");
                let all = each(loops, places);
                assert_eq!(all.len(), steps);
                found.extend(all);
                Ok::<(), ()>(())
            };
            for_each_launch((7, 3), &loops, max_loops, max_steps, visit).unwrap();
            assert_eq!(found, each(&loops, (7, 3)), "{max_loops} {max_steps}");
        }
    }

    #[test]
    fn the_largest_element_that_divides_everything() {
        let width = |numbers: &[usize]| WIDTHS[width_of(numbers.iter().copied())];
        assert_eq!(width(&[64, 0x1000, 0, 32]), 16);
        assert_eq!(width(&[12, 0x1000, 24]), 4);
        assert_eq!(width(&[8, 0x1001]), 1);
        assert_eq!(width(&[6, 8]), 2);
    }
}
