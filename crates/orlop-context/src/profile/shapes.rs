//! The shapes that memory is allocated for.
//!
//! An allocator knows bytes. Code that creates tensors knows their shapes, and states them around the
//! allocation ([`with_shape`]); profiles that record shapes then find the shape with the block. While no
//! profile records shapes, that costs one relaxed load.

use orlop_alloc::engine_support::RawBlock;
use orlop_core::{DType, Shape};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of profiles that record shapes.
static WANTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The shape that this thread is allocating memory for.
    static CURRENT: RefCell<Option<TensorShape>> = const { RefCell::new(None) };
}

/// The shape of a tensor and the type of its elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorShape {
    /// The element type.
    pub dtype: DType,
    /// The sizes.
    pub sizes: Shape,
}

/// What was allocated for one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShapeStats {
    /// The shape.
    pub shape: TensorShape,
    /// Allocated blocks.
    pub allocations: u64,
    /// Granted bytes.
    pub allocated_bytes: u64,
}

/// Returns `true` if any profile records shapes. Relaxed: allocations made while a profile starts may be
/// recorded without.
#[inline]
#[must_use]
pub fn wants_shapes() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// Runs `allocate`, whose block is for a tensor of this shape. `orlop-tensor` uses it; so can others that
/// create tensors on orlop's blocks.
///
/// ```
/// use orlop_context::profile::{LeakCheck, with_shape};
/// use orlop_alloc::Request;
/// use orlop_context::Context;
/// use orlop_core::{DType, Device, Shape};
///
/// let (context, shape) = (Context::new(), Shape::new(&[64, 32])?);
/// let check = LeakCheck::on(&context);
/// let bytes = shape.checked_bytes(DType::F32.size())?;
/// let _block = with_shape(&shape, DType::F32, || context.allocate(Device::CPU, &Request::new(bytes)))?;
/// let leaks = check.finish();
/// let shape = leaks.blocks()[0].shape.as_ref().map(ToString::to_string);
/// assert_eq!(shape.as_deref(), Some("float32 [64, 32]"));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[inline]
pub fn with_shape<R>(sizes: &Shape, dtype: DType, allocate: impl FnOnce() -> R) -> R {
    let _current = wants_shapes().then(|| Current::set(TensorShape { dtype, sizes: sizes.clone() }));
    allocate()
}

/// Sets the thread's shape, and restores the previous one on drop.
struct Current(Option<TensorShape>);

impl Current {
    #[cold]
    fn set(shape: TensorShape) -> Self {
        // Fails at the end of a thread, when the thread-local has been destroyed.
        Self(CURRENT.try_with(|current| current.borrow_mut().replace(shape)).ok().flatten())
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let before = self.0.take();
        let _gone = CURRENT.try_with(|current| std::mem::replace(&mut *current.borrow_mut(), before));
    }
}

/// Returns the shape of a block that was just allocated on this thread. Other allocations may happen on this
/// thread meanwhile, for example in a pressure callback: a block that is too small for the shape is not for
/// it.
pub(super) fn of_block(block: &RawBlock) -> Option<TensorShape> {
    if !wants_shapes() {
        return None;
    }
    CURRENT
        .try_with(|current| current.borrow().as_ref().filter(|shape| shape.fits(block)).cloned())
        .ok()
        .flatten()
}

/// While this exists, shapes are recorded.
#[derive(Debug)]
pub(super) struct ShapeRecording(());

impl ShapeRecording {
    pub(super) fn new() -> Self {
        WANTED.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for ShapeRecording {
    fn drop(&mut self) {
        WANTED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TensorShape {
    fn fits(&self, block: &RawBlock) -> bool {
        // A tensor with gaps between its rows takes more bytes than its elements: only a lower bound is
        // checked.
        self.sizes.checked_bytes(self.dtype.size()).is_ok_and(|bytes| block.requested >= bytes)
    }
}

/// For example `float32 [64, 32]`.
impl fmt::Display for TensorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.sizes)
    }
}

/// Sums by shape.
#[derive(Debug, Default)]
pub(super) struct ShapeTotals(HashMap<TensorShape, (u64, u64)>);

impl ShapeTotals {
    pub(super) fn add(&mut self, shape: TensorShape, allocations: u64, bytes: u64) {
        let (count, sum) = self.0.entry(shape).or_default();
        (*count, *sum) = (*count + allocations, sum.saturating_add(bytes));
    }

    pub(super) fn add_all(&mut self, stats: Vec<ShapeStats>) {
        for ShapeStats { shape, allocations, allocated_bytes } in stats {
            self.add(shape, allocations, allocated_bytes);
        }
    }

    /// Returns the sums by bytes, the largest first.
    pub(super) fn sorted(self) -> Vec<ShapeStats> {
        let stats =
            |(shape, (allocations, allocated_bytes))| ShapeStats { shape, allocations, allocated_bytes };
        let mut all: Vec<ShapeStats> = self.0.into_iter().map(stats).collect();
        // Ties are broken by all fields, so that two runs of a program show the same order.
        all.sort_by(|a, b| {
            let key = |it: &ShapeStats| (Reverse(it.allocated_bytes), Reverse(it.allocations));
            let names = || (a.shape.dtype.to_string(), a.shape.sizes.as_slice());
            let others = || (b.shape.dtype.to_string(), b.shape.sizes.as_slice());
            key(a).cmp(&key(b)).then_with(|| names().cmp(&others()))
        });
        all
    }
}
