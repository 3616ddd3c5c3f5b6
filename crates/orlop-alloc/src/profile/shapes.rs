//! Which shapes the memory was for.
//!
//! An allocator knows bytes. Who makes tensors knows their shapes, and says so around the allocation
//! ([`of_shape`]); profiles that want them find the shape with the block. While none does, saying so is one relaxed load.

use crate::RawBlock;
use orlop_core::{DType, Shape};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many profiles want shapes.
static WANTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What this thread is allocating memory for.
    static CURRENT: RefCell<Option<TensorShape>> = const { RefCell::new(None) };
}

/// What a block's memory is for: elements of a type, so many along each dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorShape {
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes.
    pub sizes: Shape,
}

/// What was allocated for one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShapeFigures {
    /// The shape.
    pub shape: TensorShape,
    /// Blocks handed out.
    pub allocations: u64,
    /// Bytes granted.
    pub allocated_bytes: u64,
}

/// Whether any profile wants to know shapes. Relaxed: what is allocated while one begins may be seen without.
#[inline]
#[must_use]
pub fn wants_shapes() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// Runs `allocate`, whose block is for a tensor of this shape. For those who make tensors of their own on orlop's blocks:
/// `orlop-tensor` does it.
///
/// ```
/// use orlop_alloc::profile::{LeakCheck, of_shape};
/// use orlop_alloc::{Context, Request};
/// use orlop_core::{DType, Device, Shape};
///
/// let (context, shape) = (Context::new(), Shape::new(&[64, 32])?);
/// let check = LeakCheck::on(&context);
/// let bytes = shape.checked_bytes(DType::F32.size())?;
/// let _block = of_shape(&shape, DType::F32, || context.allocate(Device::CPU, &Request::new(bytes)))?;
/// let leaks = check.finish();
/// assert_eq!(leaks.blocks()[0].shape.as_ref().map(ToString::to_string).as_deref(), Some("float32 [64, 32]"));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[inline]
pub fn of_shape<R>(sizes: &Shape, dtype: DType, allocate: impl FnOnce() -> R) -> R {
    let _current = wants_shapes().then(|| Current::set(TensorShape { dtype, sizes: sizes.clone() }));
    allocate()
}

/// The thread's shape while this lives.
struct Current(Option<TensorShape>);

impl Current {
    #[cold]
    fn set(shape: TensorShape) -> Self {
        // At the end of a thread there is nowhere to put it.
        Self(CURRENT.try_with(|current| current.borrow_mut().replace(shape)).ok().flatten())
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let before = self.0.take();
        let _gone = CURRENT.try_with(|current| std::mem::replace(&mut *current.borrow_mut(), before));
    }
}

/// The shape of the block that this thread was just given. While memory is made free for a tensor, others may allocate on
/// this thread: what is too small for the shape is not for it.
pub(super) fn of_block(block: &RawBlock) -> Option<TensorShape> {
    if !wants_shapes() {
        return None;
    }
    CURRENT
        .try_with(|current| current.borrow().as_ref().filter(|shape| shape.fits(block)).cloned())
        .ok()
        .flatten()
}

/// Shapes are said while this lives.
#[derive(Debug)]
pub(super) struct Wanted(());

impl Wanted {
    pub(super) fn new() -> Self {
        WANTED.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        WANTED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TensorShape {
    fn fits(&self, block: &RawBlock) -> bool {
        // A tensor with gaps takes more than its elements: any number of bytes from there on.
        self.sizes.checked_bytes(self.dtype.size()).is_ok_and(|bytes| block.requested >= bytes)
    }
}

/// `float32 [64, 32]`.
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
        (*count, *sum) = (*count + allocations, *sum + bytes);
    }

    pub(super) fn add_all(&mut self, figures: Vec<ShapeFigures>) {
        for ShapeFigures { shape, allocations, allocated_bytes } in figures {
            self.add(shape, allocations, allocated_bytes);
        }
    }

    /// By bytes, the largest first.
    pub(super) fn sorted(self) -> Vec<ShapeFigures> {
        let figures =
            |(shape, (allocations, allocated_bytes))| ShapeFigures { shape, allocations, allocated_bytes };
        let mut all: Vec<ShapeFigures> = self.0.into_iter().map(figures).collect();
        // By all of it: two runs of a program show the same.
        all.sort_by(|a, b| {
            let key = |it: &ShapeFigures| (Reverse(it.allocated_bytes), Reverse(it.allocations));
            let names = || (a.shape.dtype.to_string(), a.shape.sizes.as_slice());
            let others = || (b.shape.dtype.to_string(), b.shape.sizes.as_slice());
            key(a).cmp(&key(b)).then_with(|| names().cmp(&others()))
        });
        all
    }
}
