//! Structures with arbitrary contents: an import succeeds or fails with a typed error, and the deleter runs
//! once.
//!
//! The contract of the producer that cannot be checked is kept here: the pointers to sizes and strides, and
//! memory for every accepted tensor, which is never accessed.

use super::{Producer, count, import};
use proptest::prelude::*;
use std::ptr;

/// Generates numbers near edge cases, and others.
fn number() -> impl Strategy<Value = i64> {
    const EDGES: [i64; 11] = [0, 1, 2, 3, -1, 1 << 31, 1 << 32, 1 << 61, 1 << 62, i64::MAX, i64::MIN];
    prop_oneof![4 => 0..5i64, 2 => prop::sample::select(&EDGES), 1 => any::<i64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 2000 }))]

    #[test]
    fn whatever_it_says_it_comes_in_or_is_refused(
        dims in prop::collection::vec((number(), number()), 0..70),
        (with_strides, null) in (any::<bool>(), prop::bool::weighted(0.1)),
        version in prop_oneof![3 => Just(1u32), 1 => any::<u32>()],
        flags in any::<u64>(),
        code in 0..20u8,
        bits in prop_oneof![3 => prop::sample::select(vec![8u8, 16, 32, 64]), 1 => any::<u8>()],
        lanes in prop_oneof![3 => Just(1u16), 1 => any::<u16>()],
        device in (
            prop_oneof![3 => Just(1i32), 1 => -1..20i32],
            prop_oneof![3 => Just(0i32), 1 => any::<i32>()],
        ),
        offset in prop_oneof![3 => 0..100u64, 1 => any::<u64>()],
        ndim in prop_oneof![8 => Just(None), 1 => Just(Some(-1i32)), 1 => Just(Some(i32::MIN))],
    ) {
        let (shape, strides): (Vec<i64>, Vec<i64>) = dims.into_iter().unzip();
        let (producer, calls) = Producer::new(&[0.0; 16], &shape, with_strides.then_some(&strides[..]));
        let raw = producer.versioned(|managed| {
            managed.version.major = version;
            managed.flags = flags;
            let tensor = &mut managed.dl_tensor;
            (tensor.dtype.code.0, tensor.dtype.bits, tensor.dtype.lanes) = (code, bits, lanes);
            (tensor.device.device_type.0, tensor.device.device_id) = device;
            tensor.byte_offset = offset;
            if let Some(ndim) = ndim {
                tensor.ndim = ndim;
            }
            if null {
                tensor.data = ptr::null_mut();
            }
        });
        match import(raw) {
            Ok(tensor) => {
                prop_assert!(tensor.numel() == 0 || !null);
                prop_assert_eq!(tensor.sizes().len(), shape.len());
                let layout = tensor.layout();
                let bytes = layout.byte_range(tensor.itemsize()).unwrap().end;
                prop_assert_eq!(tensor.storage().unwrap().nbytes(), bytes);
                let _ = tensor.diagnose().to_string();
                prop_assert_eq!(count(&calls), 0);
                drop(tensor);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        prop_assert_eq!(count(&calls), 1);
    }
}
