//! Large operations in parts, on several threads if the crate's feature `rayon` is on.

#[cfg(not(feature = "rayon"))]
pub(super) use one_thread::{in_parts, pays};
#[cfg(feature = "rayon")]
pub(super) use threads::{in_parts, pays};

#[cfg(not(feature = "rayon"))]
mod one_thread {
    use crate::kernels::nest::Dim;

    /// Whether an operation on so many bytes is worth several threads.
    pub(in crate::kernels) const fn pays(_bytes: usize) -> bool {
        false
    }

    /// Does `work` on all steps of the loops `dims`.
    ///
    /// # Safety
    /// Those that the other function of this name has, which is there with feature `rayon`.
    pub(in crate::kernels) unsafe fn in_parts(
        dims: &mut [Dim],
        dst: *mut u8,
        src: *const u8,
        _bytes: usize,
        work: impl Fn(&mut [Dim], *mut u8, *const u8) + Sync,
    ) {
        work(dims, dst, src);
    }
}

#[cfg(feature = "rayon")]
mod threads {
    use rayon::iter::{IntoParallelIterator, ParallelIterator};

    use crate::kernels::nest::Dim;

    /// Bytes below which one thread is done before a second one has begun.
    const MIN_BYTES: usize = 1 << 20;

    /// Bytes of a part that is worth a thread's while.
    const PART_BYTES: usize = 1 << 18;

    /// Parts for each thread, so that one that starts late does not hold up the rest.
    const PARTS_PER_THREAD: usize = 4;

    /// Parts begin at multiples of this many steps where there are enough: whole tiles, whole cache lines.
    const GRANULE: usize = 64;

    /// Whether an operation on so many bytes is worth several threads.
    pub(in crate::kernels) fn pays(bytes: usize) -> bool {
        bytes >= MIN_BYTES && rayon::current_num_threads() > 1
    }

    /// Does `work` on all steps of the loops `dims`, at the same time on parts of them if that pays for so many bytes.
    /// `work` gets the loops and the pointers of its part.
    ///
    /// # Safety
    /// At every step of the loops, `work` may do on any thread what it does with the pointers, whatever is done
    /// meanwhile at other steps.
    pub(in crate::kernels) unsafe fn in_parts(
        dims: &mut [Dim],
        dst: *mut u8,
        src: *const u8,
        bytes: usize,
        work: impl Fn(&mut [Dim], *mut u8, *const u8) + Sync,
    ) {
        let choice = if pays(bytes) { choose(dims, bytes) } else { None };
        let Some((dim, chunk)) = choice else { return work(dims, dst, src) };
        let (dims, whole) = (&*dims, dims[dim]);
        let pointers = Pointers { dst, src };
        (0..whole.size.div_ceil(chunk)).into_par_iter().for_each(|part| {
            let from = part * chunk;
            let mut dims = dims.to_vec();
            dims[dim].size = chunk.min(whole.size - from);
            let (dst, src) = pointers.at(from * whole.dst, from * whole.src);
            work(&mut dims, dst, src);
        });
    }

    /// Which of the loops to cut, and after how many steps: the outermost one that is long enough, else the longest.
    fn choose(dims: &[Dim], bytes: usize) -> Option<(usize, usize)> {
        let parts = (bytes / PART_BYTES).min(rayon::current_num_threads() * PARTS_PER_THREAD);
        let outermost = dims.iter().position(|dim| dim.size >= parts);
        let longest = || (0..dims.len()).max_by_key(|&dim| dims[dim].size);
        let dim = outermost.or_else(longest)?;
        let chunk = dims[dim].size.div_ceil(parts);
        Some((dim, if chunk > GRANULE { chunk.next_multiple_of(GRANULE) } else { chunk }))
    }

    /// The two pointers of an operation.
    struct Pointers {
        dst: *mut u8,
        src: *const u8,
    }

    // SAFETY: two addresses; the caller of `in_parts` vouches for what is done with them on any thread.
    unsafe impl Sync for Pointers {}

    impl Pointers {
        /// Both, so many bytes further.
        const fn at(&self, dst: usize, src: usize) -> (*mut u8, *const u8) {
            (self.dst.wrapping_add(dst), self.src.wrapping_add(src))
        }
    }
}
