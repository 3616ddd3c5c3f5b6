//! Random tensors by seed.

use orlop_core::{DType, MemoryFormat};
use orlop_tensor::{Error, Tensor, TensorOptions};

#[test]
fn a_seed_has_its_numbers_on_every_machine() {
    let uniform = Tensor::rand([4], 42, DType::F64).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(
        uniform,
        [0.681_896_192_306_671_4, 0.950_275_407_672_484, 0.427_516_402_856_519_7, 0.627_360_521_197_340_3]
    );
    let narrow = Tensor::rand([4], 42, DType::F32).unwrap().to_vec::<f32>().unwrap();
    // The first bits of the same numbers.
    assert!(
        uniform.iter().zip(narrow).all(|(wide, narrow)| (0.0..1e-7).contains(&(wide - f64::from(narrow))))
    );
    let normal = Tensor::randn([3], 42, DType::F64).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(normal, [0.477_981_238_351_021_74, 1.334_070_610_231_807_8, -0.210_866_683_271_030_28]);
}

#[test]
fn seeds_differ_and_the_order_in_memory_does_not_matter() {
    let plain = Tensor::randn([2, 3, 4, 5], 7, DType::F32).unwrap();
    let last = TensorOptions::from(DType::F32).memory_format(MemoryFormat::ChannelsLast);
    let last = Tensor::randn([2, 3, 4, 5], 7, last).unwrap();
    assert_eq!(last.to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap());
    let other = Tensor::randn([2, 3, 4, 5], 8, DType::F32).unwrap();
    assert_ne!(other.to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap());
    // A longer tensor begins with the numbers of a shorter one.
    let longer = Tensor::randn([200], 7, DType::F32).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(longer[..120], plain.to_vec::<f32>().unwrap());
}

#[test]
fn only_floats_are_random() {
    for dtype in DType::ALL {
        let results = [Tensor::rand([2], 1, dtype), Tensor::randn([2], 1, dtype)];
        for result in results {
            match result {
                Ok(_) => assert!(dtype.is_float(), "{dtype}"),
                Err(error) => {
                    assert!(!dtype.is_float() && matches!(error, Error::Layout(_)), "{dtype} {error}");
                }
            }
        }
    }
}
