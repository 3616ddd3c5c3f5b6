//! The caching engine needs no more memory than best fit with coalescing, in the mean of the shipped traces,
//! and little more on any.

use orlop_alloc::backing::Null;
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::caching::Caching;
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_core::Device;
use orlop_lab::Result;
use orlop_lab::cpu_bench::smallest_pool;
use orlop_trace::formats::text::Trace;
use std::path::Path;

#[expect(clippy::unnecessary_wraps, reason = "a search asks for an allocator that may fail to be made")]
fn best_fit(bytes: usize) -> Result<AllocatorRef> {
    let builder = Bfc::builder(Null::new(Device::CPU)).policy(BfcPolicy::tensorflow_fixed());
    Ok(builder.limit(bytes).build().into_ref().erase())
}

#[expect(clippy::unnecessary_wraps, reason = "as above")]
fn caching(bytes: usize) -> Result<AllocatorRef> {
    Ok(Caching::builder(Null::new(Device::CPU)).limit(bytes).build().into_ref().erase())
}

#[test]
fn the_caching_engine_is_as_tight_as_best_fit() {
    let (mut ours, mut theirs) = (1.0, 1.0);
    for name in [
        "bert_infer_dyn20",
        "gpt2s_train_b2_s256",
        "llama8x512_decode_p128_d64",
        "resnet50_infer_b8",
        "resnet50_train_b4",
        "vit_b16_infer_b4",
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
        let trace = Trace::read(folder.join(format!("{name}.csv.gz"))).unwrap();
        let [caching, best_fit] = [
            smallest_pool(&trace, caching).unwrap().ratio(),
            smallest_pool(&trace, best_fit).unwrap().ratio(),
        ];
        println!("{name}: {caching:.4} of the peak, best fit {best_fit:.4}");
        assert!(caching <= best_fit * 1.08, "{name}: {caching} {best_fit}");
        (ours, theirs) = (ours * caching, theirs * best_fit);
    }
    assert!(ours <= theirs, "{ours} {theirs}");
}
