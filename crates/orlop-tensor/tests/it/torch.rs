//! Tensors against PyTorch: views and their values, strides of copies, casts.

use orlop_core::{DType, MemoryFormat};
use orlop_tensor::Tensor;
use orlop_testkit::golden;
use orlop_testkit::views::ViewProgram;

/// A few lines under Miri, which is slow.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take(if cfg!(miri) { 20 } else { usize::MAX })
}

#[test]
fn every_program_of_views_agrees() {
    let text = golden::gz_text(&golden::testdata("torch-views/views.jsonl.gz")).unwrap();
    let mut count = 0;
    for line in lines(&text) {
        let program: ViewProgram = serde_json::from_str(line).unwrap();
        if let Some(difference) = program.disagreement().unwrap() {
            panic!("{difference}");
        }
        count += 1;
    }
    assert!(cfg!(miri) || count == 6000);
}

#[test]
fn strides_of_copies() {
    let text = golden::gz_text(&golden::testdata("torch-views/preserve.json.gz")).unwrap();
    let cases: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    for case in &cases {
        let integers = |key: &str| -> Vec<usize> { serde_json::from_value(case[key].clone()).unwrap() };
        let (sizes, strides) = (integers("sizes"), integers("strides"));
        let offset: usize = serde_json::from_value(case["offset"].clone()).unwrap();
        let reach: usize =
            sizes.iter().zip(&strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
        let base = Tensor::arange(0.0, (reach + 1 + offset) as f64, 1.0, DType::I32).unwrap();
        let view = base.as_strided(&sizes, &strides, Some(offset.cast_signed())).unwrap();
        assert_eq!(view.empty_like().unwrap().strides().as_slice(), integers("empty_like"), "{case}");
        assert_eq!(view.duplicate().unwrap().strides().as_slice(), integers("clone"), "{case}");
        let contiguous = view.contiguous(MemoryFormat::Contiguous).unwrap();
        assert_eq!(contiguous.strides().as_slice(), integers("contiguous"), "{case}");
        assert_eq!(contiguous.to_vec::<i32>().unwrap(), view.to_vec::<i32>().unwrap(), "{case}");
    }
    assert!(!cases.is_empty());
}

/// Casts of whole tensors, dense and with gaps, give PyTorch's bits; the payload of a NaN is not compared.
#[test]
fn casts_of_tensors() {
    let text = golden::gz_text(&golden::testdata("torch-views/dtypes.json.gz")).unwrap();
    // Python writes numbers that JSON cannot express, in tables that are not of bits.
    let text = text.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null");
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut tables = 0;
    for table in file["casts"].as_array().unwrap().iter().filter(|table| !table["src_bits"].is_null()) {
        let dtype = |key: &str| -> DType { table[key].as_str().unwrap().parse().unwrap() };
        let bytes = |key: &str, dtype: DType| -> Vec<u8> {
            let bits: Vec<i64> = serde_json::from_value(table[key].clone()).unwrap();
            bits.iter().flat_map(|bits| bits.to_le_bytes()[..dtype.size()].to_vec()).collect()
        };
        let (src, dst) = (dtype("src"), dtype("dst"));
        let source = Tensor::from_slice(&bytes("src_bits", src)).unwrap().view_dtype(src).unwrap();
        let wanted = Tensor::from_slice(&bytes("dst_bits", dst)).unwrap().view_dtype(dst).unwrap();
        let count = source.numel();
        let spread = Tensor::zeros([count, 3], src).unwrap().select(1, 1).unwrap();
        spread.copy_(&source).unwrap();
        let gaps = Tensor::zeros([count, 2], dst).unwrap().select(1, 1).unwrap();
        gaps.copy_(&spread).unwrap();
        for ours in [source.to_dtype(dst).unwrap(), gaps] {
            orlop_core::dispatch!(dst, D => {
                let pairs = ours.to_vec::<D>().unwrap().into_iter().zip(wanted.to_vec::<D>().unwrap());
                for (place, (ours, wanted)) in pairs.enumerate() {
                    let both_nan = ours != ours && wanted != wanted;
                    let same = bytemuck::bytes_of(&ours) == bytemuck::bytes_of(&wanted);
                    let name = format!("{src} to {dst}, element {place}");
                    assert!(same || both_nan, "{name}: {ours:?}, PyTorch {wanted:?}");
                }
            });
        }
        tables += 1;
    }
    assert_eq!(tables, 12);
}
