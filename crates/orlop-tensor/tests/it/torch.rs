//! What PyTorch answers, on tensors: views and their values, strides of copies, casts.

use orlop_core::{DType, MemoryFormat};
use orlop_tensor::Tensor;
use orlop_testkit::golden;
use orlop_testkit::views::Program;

/// A few under Miri, which is slow.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take(if cfg!(miri) { 20 } else { usize::MAX })
}

#[test]
fn every_program_of_views_agrees() {
    let text = golden::gz_text(&golden::testdata("torch-views/views.jsonl.gz")).unwrap();
    let mut count = 0;
    for line in lines(&text) {
        let program: Program = serde_json::from_str(line).unwrap();
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
        let offset = case["offset"].as_u64().unwrap() as isize;
        let reach: usize =
            sizes.iter().zip(&strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
        let base = Tensor::arange(0.0, (reach + 1 + offset as usize) as f64, 1.0, DType::I32).unwrap();
        let view = base.as_strided(&sizes, &strides, Some(offset)).unwrap();
        assert_eq!(view.empty_like().unwrap().strides().as_slice(), integers("empty_like"), "{case}");
        assert_eq!(view.duplicate().unwrap().strides().as_slice(), integers("clone"), "{case}");
        let contiguous = view.contiguous(MemoryFormat::Contiguous).unwrap();
        assert_eq!(contiguous.strides().as_slice(), integers("contiguous"), "{case}");
        assert_eq!(contiguous.to_vec::<i32>().unwrap(), view.to_vec::<i32>().unwrap(), "{case}");
    }
    assert!(!cases.is_empty());
}
