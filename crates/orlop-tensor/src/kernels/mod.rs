//! What the processor does with elements: copy, cast and fill over any strides.
use crate::plain::{Plain, dispatch_plain};
use orlop_core::{Convert, DType, Element, Layout, Scalar};

fn offsets(l: &Layout) -> Vec<usize> {
    let mut out = vec![l.offset()];
    if l.is_empty() {
        return vec![];
    }
    for (&n, &s) in l.shape().iter().zip(l.strides().iter()) {
        out = out.iter().flat_map(|&o| (0..n).map(move |i| o + i * s)).collect();
    }
    out
}
pub(crate) unsafe fn copy(dst: *mut u8, dl: &Layout, src: *const u8, sl: &Layout, size: usize) {
    for (d, s) in offsets(dl).into_iter().zip(offsets(sl)) {
        unsafe { std::ptr::copy_nonoverlapping(src.add(s * size), dst.add(d * size), size) };
    }
}
pub(crate) unsafe fn cast(dst: *mut u8, dl: &Layout, dt: DType, src: *const u8, sl: &Layout, st: DType) {
    for (d, s) in offsets(dl).into_iter().zip(offsets(sl)) {
        let v = dispatch_plain!(st, T => unsafe { src.cast::<T>().add(s).read_unaligned() }.element().to_scalar());
        dispatch_plain!(dt, T => unsafe { dst.cast::<T>().add(d).write_unaligned(T::plain(<T as Plain>::Element::from_scalar(v))) });
    }
}
pub(crate) unsafe fn fill(dst: *mut u8, l: &Layout, dt: DType, v: Scalar) {
    for d in offsets(l) {
        dispatch_plain!(dt, T => unsafe { dst.cast::<T>().add(d).write_unaligned(T::plain(<T as Plain>::Element::from_scalar(v))) });
    }
}
