//! Parallel execution of large operations, with the crate's feature `rayon`.

#[cfg(not(feature = "rayon"))]
pub(super) use one_thread::in_parts;
#[cfg(not(feature = "rayon"))]
pub use one_thread::pays;
#[cfg(feature = "rayon")]
pub(super) use threads::in_parts;
#[cfg(feature = "rayon")]
pub use threads::pays;

#[cfg(not(feature = "rayon"))]
mod one_thread {
    use crate::kernels::nest::LoopDim;

    /// Returns `true` if an operation on `bytes` bytes is worth several threads.
    #[must_use]
    pub const fn pays(_bytes: usize) -> bool {
        false
    }

    /// Runs `work` on all steps of the loops `dims`.
    ///
    /// # Safety
    /// Those of the function of this name with feature `rayon`.
    pub(in crate::kernels) unsafe fn in_parts(
        dims: &mut [LoopDim],
        dst: *mut u8,
        src: *const u8,
        _bytes: usize,
        work: impl Fn(&mut [LoopDim], *mut u8, *const u8) + Sync,
    ) {
        work(dims, dst, src);
    }
}

#[cfg(feature = "rayon")]
mod threads {
    use rayon::iter::{IntoParallelIterator, ParallelIterator};

    use crate::kernels::nest::LoopDim;

    /// The bytes below which one thread finishes before a second one has started.
    const MIN_BYTES: usize = 1 << 20;

    /// The smallest part that is worth a task.
    const PART_BYTES: usize = 1 << 18;

    /// The parts per thread: more than one, so that a late thread does not delay the rest.
    const PARTS_PER_THREAD: usize = 4;

    /// Parts start at multiples of this number of steps if there are enough: whole tiles, whole cache lines.
    const GRANULE: usize = 64;

    /// Returns `true` if an operation on `bytes` bytes is worth several threads.
    #[must_use]
    pub fn pays(bytes: usize) -> bool {
        bytes >= MIN_BYTES && rayon::current_num_threads() > 1
    }

    /// Runs `work` on all steps of the loops `dims`, in parallel on parts of them if `bytes` is large enough.
    /// `work` receives the loops and the pointers of its part.
    ///
    /// # Safety
    /// At every step of the loops, `work` may do on any thread what it does with the pointers, concurrently
    /// with other steps.
    pub(in crate::kernels) unsafe fn in_parts(
        dims: &mut [LoopDim],
        dst: *mut u8,
        src: *const u8,
        bytes: usize,
        work: impl Fn(&mut [LoopDim], *mut u8, *const u8) + Sync,
    ) {
        let choice = if pays(bytes) { choose(dims, bytes) } else { None };
        let Some((dim, chunk)) = choice else { return work(dims, dst, src) };
        let (dims, whole) = (&*dims, dims[dim]);
        let pointers = SyncPointers { dst, src };
        (0..whole.size.div_ceil(chunk)).into_par_iter().for_each(|part| {
            let from = part * chunk;
            let mut dims = dims.to_vec();
            dims[dim].size = chunk.min(whole.size - from);
            let (dst, src) = pointers.at(from * whole.dst, from * whole.src);
            work(&mut dims, dst, src);
        });
    }

    /// Returns the loop to split and the steps of a part: the outermost loop that is long enough, else the
    /// longest.
    fn choose(dims: &[LoopDim], bytes: usize) -> Option<(usize, usize)> {
        let parts = (bytes / PART_BYTES).min(rayon::current_num_threads() * PARTS_PER_THREAD);
        let outermost = dims.iter().position(|dim| dim.size >= parts);
        let longest = || (0..dims.len()).max_by_key(|&dim| dims[dim].size);
        let dim = outermost.or_else(longest)?;
        let chunk = dims[dim].size.div_ceil(parts);
        Some((dim, if chunk > GRANULE { chunk.next_multiple_of(GRANULE) } else { chunk }))
    }

    /// The two pointers of an operation.
    struct SyncPointers {
        dst: *mut u8,
        src: *const u8,
    }

    // SAFETY: two addresses; the caller of `in_parts` guarantees that they may be used on any thread.
    unsafe impl Sync for SyncPointers {}

    impl SyncPointers {
        /// Returns both pointers, advanced by these numbers of bytes.
        const fn at(&self, dst: usize, src: usize) -> (*mut u8, *const u8) {
            (self.dst.wrapping_add(dst), self.src.wrapping_add(src))
        }
    }
}
