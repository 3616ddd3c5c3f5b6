//! Every pair of dtypes, against the CPU.

use super::values::values;
use super::{KernelBench, first, layout};
use orlop_alloc::{
    Error,
    engine_support::{DeviceOps, HostOps, StridedLoops},
};
use orlop_core::{DType, Layout, Shape, StreamId};

impl KernelBench {
    /// Casts on the device and on the host. Returns the bytes of both.
    fn both(
        &self,
        (to, to_dtype): (&Layout, DType),
        (from, from_dtype): (&Layout, DType),
        source: &[u8],
    ) -> [Vec<u8>; 2] {
        let before = vec![0xa5; to.byte_range(to_dtype.size()).unwrap().end];
        let (target, from_block) = (self.block(&before), self.block(source));
        let (mut expected, mut source) = (before, source.to_vec());
        let sides = ((to, to_dtype.size()), Some((from, from_dtype.size())));
        let host = |bytes: &mut [u8]| {
            orlop_alloc::engine_support::DevicePtr::new(first(bytes), orlop_core::Device::CPU)
        };
        StridedLoops::with(sides.0, sides.1, |loops| {
            let (to, from) = ((target.device_ptr(), to_dtype), (from_block.device_ptr(), from_dtype));
            // SAFETY: the layouts are inside the blocks, which only this stream uses.
            unsafe { self.ops.cast(to, from, loops, self.stream.id()) }.unwrap();
            let (to, from) = ((host(&mut expected), to_dtype), (host(&mut source), from_dtype));
            // SAFETY: the layouts are inside the vectors.
            unsafe { HostOps.cast(to, from, loops, StreamId::HOST) }.unwrap();
        })
        .unwrap();
        [self.read(&target), expected]
    }
}

/// Makes signaling NaNs quiet: whether a compiler's conversion of `f32` through `f64` and back does so is not
/// defined.
fn quiet(bytes: &mut [u8]) {
    for word in bytes.chunks_exact_mut(4) {
        let value = f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        if value.is_nan() {
            word[2] |= 0x40;
        }
    }
}

#[test]
fn every_pair_of_dtypes_casts_as_on_the_cpu() {
    let caster = KernelBench::new();
    caster.ops.load_kernels().unwrap();
    let mut pairs = 0;
    for from in DType::ALL {
        let source = values(from);
        let layout = Layout::contiguous(Shape::new(&[source.len() / from.size()]).unwrap());
        for to in DType::ALL {
            let launches = caster.machine.calls("cuLaunchKernel");
            let [mut found, mut expected] = caster.both((&layout, to), (&layout, from), &source);
            if matches!((from, to), (DType::F32, DType::C64) | (DType::C64, DType::F32)) {
                quiet(&mut found);
                quiet(&mut expected);
            }
            let wrong = (0..layout.numel()).find(|index| {
                let element = |bytes: &[u8]| bytes[index * to.size()..(index + 1) * to.size()].to_vec();
                element(&found) != element(&expected)
            });
            if let Some(index) = wrong {
                let show =
                    |bytes: &[u8], size: usize| format!("{:02x?}", &bytes[index * size..(index + 1) * size]);
                let (value, expected) = (show(&source, from.size()), show(&expected, to.size()));
                panic!("{from} {value} to {to}: {}, not {expected}", show(&found, to.size()));
            }
            pairs += caster.machine.calls("cuLaunchKernel") - launches;
        }
    }
    // All but the same dtype, except `bool`, and integers of one size.
    assert_eq!(pairs, 17 * 17 - 16 - 8);
    assert_eq!(caster.machine.races(), []);
}

#[test]
fn strided_casts_of_transposed_and_expanded_elements() {
    let caster = KernelBench::new();
    let to = layout(&[3, 4, 5], &[40, 10, 2]);
    let sources = [&[20, 5, 1], &[1, 3, 12], &[0, 1, 4], &[0, 0, 0], &[7, 0, 3]];
    for (from_dtype, to_dtype) in [
        (DType::F32, DType::BF16),
        (DType::I16, DType::C128),
        (DType::C64, DType::F16),
        (DType::F64, DType::U8),
        (DType::F8E4M3, DType::F64),
        (DType::Bool, DType::Bool),
        (DType::U32, DType::I32),
    ] {
        for strides in sources {
            let from = layout(&[3, 4, 5], strides);
            let source = &values(from_dtype)[..from.byte_range(from_dtype.size()).unwrap().end];
            let [found, expected] = caster.both((&to, to_dtype), (&from, from_dtype), source);
            assert!(found == expected, "{from_dtype} {to_dtype} {strides:?}");
        }
    }
    assert_eq!(caster.machine.races(), []);
}

#[test]
fn a_cast_waits_for_nothing_and_one_of_unaligned_elements_is_left_to_the_host() {
    let caster = KernelBench::new();
    caster.ops.load_kernels().unwrap();
    let layout = Layout::contiguous(Shape::new(&[1000]).unwrap());
    let (to, from) = (caster.block(&[0; 8000]), caster.block(&[0; 8004]));
    let waits = caster.machine.counts().waits;
    drop(caster.machine.take_calls());
    let cast = |offset: usize| {
        StridedLoops::with((&layout, 8), Some((&layout, 4)), |loops| {
            // SAFETY: inside the block.
            let from = unsafe { from.device_ptr().add(offset) };
            // SAFETY: the layouts are inside the blocks.
            unsafe {
                caster.ops.cast((to.device_ptr(), DType::F64), (from, DType::F32), loops, caster.stream.id())
            }
        })
        .unwrap()
    };
    cast(4).unwrap();
    let calls = caster.machine.take_calls();
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert_eq!((caster.machine.counts().waits, of("cuLaunchKernel")), (waits, 1), "{calls:?}");
    assert!(!calls.keys().any(|name| name.contains("Memcpy") || name.contains("Host")), "{calls:?}");
    assert!(matches!(cast(2), Err(Error::CannotCast { from: DType::F32, to: DType::F64 })));
    assert_eq!(caster.machine.calls("cuLaunchKernel"), 0);
}
