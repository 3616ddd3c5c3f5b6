//! Tensors of every kind for file formats, and damage to files.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_context::AllocatorConfig;
use orlop_context::Context;
use orlop_core::{DType, Device, Layout, MemoryFormat, Shape, Strides};
use orlop_tensor::{Storage, Tensor, TensorOptions};
use proptest::prelude::*;

/// The description of a tensor.
#[derive(Debug, Clone)]
pub(crate) struct TensorCase {
    dtype: DType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    seed: u8,
}

/// Generates tensors of these dtypes: row-major, column-major, gappy, overlapping, broadcast, empty, without
/// dimensions and with many.
pub(crate) fn cases(dtypes: &'static [DType]) -> impl Strategy<Value = TensorCase> {
    let sizes = prop::collection::vec(0usize..5, 0..6);
    let strides = (0u8..3, prop::collection::vec(0usize..20, 6));
    (prop::sample::select(dtypes), sizes, strides, 0usize..7, any::<u8>()).prop_map(
        |(dtype, sizes, (order, any_strides), offset, seed)| {
            let mut strides = match order {
                0 => any_strides,
                1 => dense(sizes.iter()),
                _ => dense(sizes.iter().rev()),
            };
            strides.truncate(sizes.len());
            if order == 1 {
                strides.reverse();
            }
            TensorCase { dtype, sizes, strides, offset, seed }
        },
    )
}

fn dense<'a>(sizes: impl Iterator<Item = &'a usize>) -> Vec<usize> {
    // The fastest dimension last for row-major, which the caller reverses; first for column-major.
    let sizes: Vec<usize> = sizes.copied().collect();
    let strides = Strides::contiguous(&Shape::new(&sizes).unwrap());
    strides.iter().rev().copied().collect()
}

impl TensorCase {
    pub(crate) fn layout(&self) -> Layout {
        let (shape, strides) = (Shape::new(&self.sizes).unwrap(), Strides::new(&self.strides).unwrap());
        Layout::new(shape, strides, self.offset).unwrap()
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Creates the tensor, in a storage a little larger than needed, with bytes that follow from the seed.
    pub(crate) fn tensor(&self) -> Tensor {
        let layout = self.layout();
        let bytes = layout.byte_range(self.dtype.size()).unwrap().end + 3;
        let storage = Storage::new(bytes, &TensorOptions::new()).unwrap();
        let mut next = self.seed;
        for byte in storage.write().unwrap().iter_mut() {
            next = next.wrapping_mul(137).wrapping_add(43);
            *byte = next;
        }
        Tensor::from_storage(storage, layout, self.dtype).unwrap()
    }
}

/// Returns the elements' bytes in row-major order.
pub(crate) fn elements(tensor: &Tensor) -> Vec<u8> {
    let dense = tensor.duplicate_in(MemoryFormat::Contiguous).unwrap();
    let bytes = dense.storage().unwrap().read().unwrap();
    bytes[..dense.nbytes()].to_vec()
}

/// Damage to a file: changed bytes, and an end that is cut off or extended.
#[derive(Debug, Clone)]
pub(crate) struct Damage {
    changes: Vec<(prop::sample::Index, u8)>,
    keep: Option<prop::sample::Index>,
    append: Vec<u8>,
}

pub(crate) fn damages() -> impl Strategy<Value = Damage> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), interesting()), 0..6);
    let keep = prop::option::weighted(0.2, any::<prop::sample::Index>());
    let append = prop_oneof![4 => Just(vec![]), 1 => prop::collection::vec(any::<u8>(), 1..20)];
    (changes, keep, append).prop_map(|(changes, keep, append)| Damage { changes, keep, append })
}

/// Generates bytes that have a meaning in headers, or any.
fn interesting() -> impl Strategy<Value = u8> {
    prop_oneof![prop::sample::select(&b"0123456789()[]{},:'\"-<>|= TFLOVM\0\xff\x7f\x80"[..]), any::<u8>()]
}

impl Damage {
    pub(crate) fn of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (place, byte) in &self.changes {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        if let Some(keep) = self.keep {
            bytes.truncate(keep.index(bytes.len()));
        }
        bytes.extend(&self.append);
        bytes
    }
}

/// Runs `read` with little memory: code that trusts a damaged file runs out of it.
pub(crate) fn in_little_memory<T>(read: impl FnOnce() -> orlop_tensor::Result<T>) -> orlop_tensor::Result<T> {
    let context = Context::with(Device::CPU, AllocatorConfig::new().named("bfc").limit(16 << 20));
    let result = context.scope(read);
    if let Err(orlop_tensor::Error::Alloc(error)) = &result {
        assert!(!error.is_out_of_memory(), "{error}");
    }
    result
}
